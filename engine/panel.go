package engine

import (
	"math/bits"
)

// panel judges several tabulated emissions at once. The indices of their tables
// are sums over the same few facts, so they are kept side by side in one word:
// each fact adds one number, and the word then holds every index.
type panel struct {
	fields  []panelField
	checks  []panelCheck
	ladders []panelLadder
}

// panelField is one finite fact: by code, what it adds to all indices.
type panelField struct {
	at     int
	weight [64]uint64
}

// panelCheck is one predicate: what it adds where it holds.
type panelCheck struct {
	predicate *predicate
	weight    uint64
}

// panelLadder is where a ladder's index stands in the word, and its table: the
// rung in the low byte of an entry, above it one bit each for True, Unknown and
// NotRead.
type panelLadder struct {
	shift   uint8
	bit     uint8
	mask    uint64
	entries []uint16
}

// newPanels packs what can be packed, in the order of the types; the others are
// left alone.
func newPanels(types []*ConditionType) (panels []panel, alone []*ConditionType) {
	used := 64 // bits of the last panel
	for _, t := range types {
		table := t.Emission.table
		if table == nil || t.Emission.tokens != nil || table.conditions != nil || len(table.tri) > 0 {
			alone = append(alone, t)
			continue
		}
		width := max(1, bits.Len(uint(len(table.rungs)-1)))
		if used+width > 64 {
			panels = append(panels, panel{})
			used = 0
		}
		panels[len(panels)-1].add(t, uint8(used), width)
		used += width
	}
	return panels, alone
}

// add puts a type's table at a place of the word.
func (p *panel) add(t *ConditionType, shift uint8, width int) {
	table := t.Emission.table
	l := panelLadder{shift: shift, bit: t.Bit, mask: 1<<width - 1, entries: make([]uint16, 1<<width)}
	for i, rung := range table.rungs {
		l.entries[i] = uint16(rung)
		if status := t.emits[rung].status; status != statusFalse {
			l.entries[i] |= 1 << (7 + status)
		}
	}
	p.ladders = append(p.ladders, l)
	for i := range table.finite {
		d := &table.finite[i]
		field := p.field(d.at)
		for code, weight := range d.weight {
			field.weight[code] += uint64(weight) << shift
		}
	}
	for _, d := range table.checks {
		p.check(d.predicate).weight += uint64(d.stride) << shift
	}
}

func (p *panel) field(at int) *panelField {
	for i := range p.fields {
		if p.fields[i].at == at {
			return &p.fields[i]
		}
	}
	p.fields = append(p.fields, panelField{at: at})
	return &p.fields[len(p.fields)-1]
}

func (p *panel) check(predicate *predicate) *panelCheck {
	for i := range p.checks {
		if p.checks[i].predicate == predicate {
			return &p.checks[i]
		}
	}
	p.checks = append(p.checks, panelCheck{predicate: predicate})
	return &p.checks[len(p.checks)-1]
}

// observe adds what the panel's ladders give.
func (p *panel) observe(in *input, out *Observed) {
	var word uint64
	for i := range p.fields {
		f := &p.fields[i]
		word += f.weight[in.codes[f.at]&63]
	}
	for i := range p.checks {
		if p.checks[i].predicate.holds(in) {
			word += p.checks[i].weight
		}
	}
	yes, unknown, notRead := out.True, out.Unknown, out.NotRead
	for i := range p.ladders {
		l := &p.ladders[i]
		entry := uint64(l.entries[word>>(l.shift&63)&l.mask])
		bit := l.bit & 63
		out.Rung[bit] = int16(entry & 0xff)
		yes |= entry >> 8 & 1 << bit
		unknown |= entry >> 9 & 1 << bit
		notRead |= entry >> 10 & 1 << bit
	}
	out.True, out.Unknown, out.NotRead = yes, unknown, notRead
}
