package engine

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
)

// maxRegion bounds what the linter may expand a question to. Past it the
// question is left open: nothing is said rather than something wrong.
const maxRegion = 1 << 12

// space is the set of all inputs that may be: unlike the matcher's domains it
// knows which facts are never null, so that "any value" means every input.
type space struct {
	all    domains
	fields [len(facts.Codes{})]facts.Field
	types  [64]*ConditionType
}

func newSpace(b *Bundle) *space {
	s := &space{types: b.byBit}
	for _, f := range facts.Fields {
		if f.At < 0 {
			continue
		}
		s.fields[f.At], s.all[f.At] = f, fullDomain(f)
		if !f.Nullable {
			s.all[f.At] &^= 1
		}
	}
	return s
}

// within leaves out of cubes what no input can be.
func (s *space) within(cs cubes) cubes {
	var out cubes
next:
	for i := range cs {
		c := cs[i]
		c.finite = slices.Clone(c.finite)
		for j := range c.finite {
			if c.finite[j].allow &= s.all[c.finite[j].at]; c.finite[j].allow == 0 {
				continue next
			}
		}
		out = append(out, c)
	}
	return out
}

// minus gives what is in the cubes and in none of the others; false where that
// grows past the bound.
func (s *space) minus(cs, others cubes) (cubes, bool) {
	for i := range others {
		var rest cubes
		for j := range cs {
			rest = append(rest, s.sharp(cs[j], &others[i])...)
		}
		if len(rest) > maxRegion {
			return nil, false
		}
		cs = rest
	}
	return cs, true
}

// sharp gives c without d as cubes that do not overlap: of each test of d, what
// passes the ones before and fails it.
func (s *space) sharp(c cube, d *cube) cubes {
	if both, meet := c.and(d); !meet || !consistent(&both) {
		return cubes{c}
	}
	var out cubes
	part := func(fails, passes cube) bool {
		if piece, ok := c.and(&fails); ok && consistent(&piece) {
			out = append(out, piece)
		}
		var ok bool
		c, ok = c.and(&passes)
		return ok
	}
	for rest := d.conditions(); rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		passes := cube{notTrue: d.notTrue & bit, notFalse: d.notFalse & bit, notUnknown: d.notUnknown & bit}
		fails := cube{notTrue: bit &^ d.notTrue, notFalse: bit &^ d.notFalse, notUnknown: bit &^ d.notUnknown}
		if !part(fails, passes) {
			return out
		}
	}
	for _, t := range d.finite {
		passes := cube{finite: []finiteTest{t}}
		other := s.all[t.at] &^ t.allow
		if other == 0 {
			continue
		}
		if !part(cube{finite: []finiteTest{{t.at, other}}}, passes) {
			return out
		}
	}
	for _, t := range d.checks {
		if !part(cube{checks: []check{{t.predicate, !t.want}}}, cube{checks: []check{t}}) {
			return out
		}
	}
	return out
}

// meet gives what is in both.
func (s *space) meet(a, b cubes) (cubes, bool) {
	var out cubes
	for i := range a {
		for j := range b {
			if both, ok := a[i].and(&b[j]); ok && consistent(&both) {
				out = append(out, both)
			}
		}
		if len(out) > maxRegion {
			return nil, false
		}
	}
	return out, true
}

// rest gives what is in none of the cubes.
func (s *space) rest(cs cubes) (cubes, bool) { return s.minus(cubes{{}}, cs) }

// consistent reports whether one text can pass all that a cube asks of it, as
// far as that is known: where the cube names the text, the other tests are
// asked about it.
func consistent(c *cube) bool {
	for i := range c.checks {
		text, named := namedText(c.checks[i])
		if !named {
			continue
		}
		for _, other := range c.checks {
			if p := other.predicate; p.path == c.checks[i].predicate.path && (p.known || p.str != nil && p.str(text)) != other.want {
				return false
			}
		}
	}
	return true
}

// certain reports whether there surely is an input in the cube: at most one
// test of each text, or one that names it.
func certain(c *cube) bool {
	asked := map[string]int{}
	for _, t := range c.checks {
		asked[t.predicate.path]++
	}
	for _, t := range c.checks {
		if _, named := namedText(t); named {
			delete(asked, t.predicate.path)
		}
	}
	for _, n := range asked {
		if n > 1 {
			return false
		}
	}
	return consistent(c)
}

// namedText is the one text that passes a test of equality.
func namedText(t check) (string, bool) {
	quoted, ok := strings.CutPrefix(t.predicate.spelled(), "=")
	if !ok || !t.want || strings.HasPrefix(quoted, "~") {
		return "", false
	}
	text, err := strconv.Unquote(quoted)
	return text, err == nil
}

// spelled is the test as the predicate's key spells it.
func (p *predicate) spelled() string {
	test, _, _ := strings.Cut(strings.TrimPrefix(p.key, p.path+"\x00"), "\x00")
	test = strings.TrimSuffix(strings.TrimPrefix(test, "("), ")")
	return strings.TrimSuffix(strings.TrimSuffix(test, " & (- | string)"), " & string")
}

// witness spells one input of a cube, as far as the patterns ask of it: each
// test by one value that passes.
func (s *space) witness(c *cube, asked ...*pattern) string {
	tested := map[string]bool{}
	for _, p := range asked {
		p.walk(func(l *leaf, _ bool) { tested[l.path] = true })
	}
	var parts []string
	add := func(path, value string) {
		if len(asked) == 0 || tested[path] {
			parts = append(parts, strings.TrimPrefix(path, "conditions.")+" "+value)
		}
	}
	for rest := c.conditions(); rest != 0; rest &= rest - 1 {
		bit := bits.TrailingZeros64(rest)
		value := "Unknown"
		switch {
		case c.notTrue>>bit&1 == 0:
			value = "True"
		case c.notFalse>>bit&1 == 0:
			value = "False"
		}
		add("conditions."+s.types[bit].Name, value)
	}
	for _, t := range c.finite {
		add(s.fields[t.at].Path, s.spell(t))
	}
	for _, t := range c.checks {
		if t.want {
			add(t.predicate.path, t.predicate.spelled())
		} else {
			add(t.predicate.path, "not "+t.predicate.spelled())
		}
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, ", ")
}

// spell names the first value of a set, a value before null.
func (s *space) spell(t finiteTest) string {
	if set := t.allow &^ 1; set != 0 {
		return s.fields[t.at].Values[bits.TrailingZeros64(set)-1]
	}
	return "null"
}

// regions gives for every rung, otherwise last, the inputs that it decides; nil
// where that cannot be told within the bound.
func (s *space) regions(l *Ladder) []cubes {
	out := make([]cubes, len(l.Rungs)+1)
	left := cubes{{}}
	for i := range l.Rungs {
		own := s.within(l.Rungs[i].pattern.cubes)
		decides, ok := s.meet(own, left)
		if !ok {
			return nil
		}
		if left, ok = s.minus(left, own); !ok {
			return nil
		}
		out[i] = decides
	}
	out[len(l.Rungs)] = left
	return out
}
