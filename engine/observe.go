package engine

import (
	"github.com/musterhq/muster/facts"
)

// Observed is what one writer's ladders say of a device, by the bits of its
// types. A bit set in none of the masks is False. NotRead: the source did not
// give what the type rests on; nothing is written and the row keeps its value.
type Observed struct {
	True, Unknown, NotRead uint64

	// Rung holds by bit the index of the rung that matched; the number of rungs
	// means otherwise. It is read only.
	Rung [64]int16

	seen seen
}

// Observe judges the facts by the emission ladders of a writer. It allocates
// nothing, and is fastest where each writer has an out of its own that is used
// again and again. c must be the interned f. Only the bits of Writer.Emits and their
// rungs are meaningful in out.
func (b *Bundle) Observe(writer int, f *facts.Facts, c *facts.Codes, out *Observed) {
	w := &b.writerList[writer]
	in := input{facts: f, codes: c}
	if w.like != nil && w.like.again(&in, &out.seen) {
		out.True, out.Unknown, out.NotRead = out.seen.yes, out.seen.unknown, out.seen.unread
		return
	}
	w.observe(&in, out)
	out.seen.yes, out.seen.unknown, out.seen.unread = out.True, out.Unknown, out.NotRead
	if w.like == nil {
		out.seen.by = nil
	}
}

// observe asks every emission.
func (w *Writer) observe(in *input, out *Observed) {
	out.True, out.Unknown, out.NotRead = 0, 0, 0
	for i := range w.panels {
		w.panels[i].observe(in, out)
	}
	for _, t := range w.alone {
		rung := t.Emission.first(in)
		out.Rung[t.Bit&63] = int16(rung)
		bit := uint64(1) << (t.Bit & 63)
		switch t.emits[rung].status {
		case statusTrue:
			out.True |= bit
		case statusUnknown:
			out.Unknown |= bit
		case statusNotRead:
			out.NotRead |= bit
		}
	}
}

// Texts gives the reason and the message of what a rung of a type's emission
// observed. A reason is CamelCase and at most 64 runes long, a message at most
// 1024. Facts that are null are quoted as "null".
func (b *Bundle) Texts(bit uint8, rung int16, f *facts.Facts) (reason, message string) {
	t := b.byBit[bit&63]
	if t == nil || rung < 0 || int(rung) >= len(t.emits) {
		return "", ""
	}
	o := &t.emits[rung]
	return o.reason.render(f, maxReason), o.message.render(f, maxMessage)
}

// Quotes tells whether the texts of a rung quote facts: they may change
// although status and rung do not.
func (b *Bundle) Quotes(bit uint8, rung int16) bool {
	t := b.byBit[bit&63]
	if t == nil || rung < 0 || int(rung) >= len(t.emits) {
		return false
	}
	return !t.emits[rung].reason.fixed() || !t.emits[rung].message.fixed()
}

// RungTests lists the paths of the facts that a rung of a type's emission
// tests: the caller tells a fact that could not be decoded from one that was
// not sent.
func (b *Bundle) RungTests(bit uint8, rung int16) []string {
	t := b.byBit[bit&63]
	if t == nil || t.Emission == nil || rung < 0 || int(rung) >= len(t.Emission.Rungs) {
		return nil
	}
	return t.Emission.Rungs[rung].paths
}

// InScope says whether a writer speaks of a device. A writer without a scope
// posts what it did itself and has every device in none.
func (b *Bundle) InScope(writer int, f *facts.Facts, c *facts.Codes, m Masks) bool {
	w := &b.writerList[writer]
	if w.Scope == nil {
		return false
	}
	in := input{facts: f, codes: c}
	in.yes, in.unknown = b.whole(m)
	return w.scopeIn[w.Scope.first(&in)]
}
