package engine

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxDiagramStates bounds the memory that building a diagram may take. The
// shipped ladder needs fewer than two hundred.
const maxDiagramStates = 1 << 16

// term is one alternative of a rung over conditions alone: it matches when no
// condition has a value that the term forbids. A condition in none of the
// three masks is not tested.
type term struct {
	rung                          int16
	notTrue, notUnknown, notFalse uint64
}

func (t term) mentions() uint64 { return t.notTrue | t.notUnknown | t.notFalse }

// The values of a condition, as digits of a diagram and of a table.
const (
	digitFalse = iota
	digitTrue
	digitUnknown
	digits
)

func (t term) forbids(bit uint64, digit int) bool {
	return [digits]uint64{t.notFalse, t.notTrue, t.notUnknown}[digit]&bit != 0
}

// rungSet is a set of rung indices, `otherwise` included: it has room for
// maxRungs of them.
type rungSet [4]uint64

func (s *rungSet) add(rung int32)      { s[rung>>6] |= 1 << (rung & 63) }
func (s *rungSet) has(rung int16) bool { return s[rung>>6]>>(rung&63)&1 == 1 }

// diagram is a first-match ladder over conditions as a decision diagram: each
// node asks for one condition, each leaf is a rung. It answers what a table of
// combinations cannot answer cheaply: which rungs can match while some of the
// conditions may have any value. Immutable.
type diagram struct {
	root  int32 // a node, or a leaf as leafOf writes it
	nodes []decision
}

type decision struct {
	bit  uint64
	next [digits]int32 // indices of nodes, always lower than the node's own, or leaves
}

func leafOf(rung int16) int32   { return ^int32(rung) }
func isLeaf(at int32) bool      { return at < 0 }
func rungOfLeaf(at int32) int32 { return ^at }
func digit(isTrue, unknown, bit uint64) int {
	switch {
	case unknown&bit != 0:
		return digitUnknown
	case isTrue&bit != 0:
		return digitTrue
	}
	return digitFalse
}

// newDiagram builds the diagram of terms in ladder order; otherwise is the
// rung of what none of them matches. It fails when the ladder tests so many
// conditions in so many combinations that it passes the bound.
func newDiagram(terms []term, otherwise int16) (diagram, error) {
	b := diagramBuilder{
		terms:     terms,
		otherwise: otherwise,
		states:    map[string]int32{},
		unique:    map[decision]int32{},
	}
	var seen uint64
	alive := make([]uint16, len(terms))
	for i, t := range terms {
		alive[i] = uint16(i)
		for rest := t.mentions() &^ seen; rest != 0; rest &= rest - 1 {
			b.order = append(b.order, rest&-rest)
		}
		seen |= t.mentions()
	}
	b.later = make([]uint64, len(b.order)+1)
	for i := len(b.order) - 1; i >= 0; i-- {
		b.later[i] = b.later[i+1] | b.order[i]
	}
	root, err := b.build(0, alive)
	return diagram{root: root, nodes: b.nodes}, err
}

type diagramBuilder struct {
	terms     []term
	otherwise int16
	order     []uint64 // the conditions in the order they are asked
	later     []uint64 // by level: the conditions not yet asked
	states    map[string]int32
	unique    map[decision]int32
	nodes     []decision
}

// build gives the node for the terms that the answers so far leave alive.
func (b *diagramBuilder) build(level int, alive []uint16) (int32, error) {
	alive, asked := b.cut(level, alive)
	if asked == 0 {
		if len(alive) == 0 {
			return leafOf(b.otherwise), nil
		}
		return leafOf(b.terms[alive[0]].rung), nil
	}
	for b.order[level]&asked == 0 {
		level++
	}
	key := stateKey(level, alive)
	if at, ok := b.states[key]; ok {
		return at, nil
	}
	if len(b.states) >= maxDiagramStates {
		return 0, fmt.Errorf("the ladder tests too many combinations of conditions (more than %d states): merge rungs or test fewer conditions", maxDiagramStates)
	}
	bit := b.order[level]
	node := decision{bit: bit}
	for d := range digits {
		left := make([]uint16, 0, len(alive))
		for _, t := range alive {
			if !b.terms[t].forbids(bit, d) {
				left = append(left, t)
			}
		}
		next, err := b.build(level+1, left)
		if err != nil {
			return 0, err
		}
		node.next[d] = next
	}
	at := b.intern(node)
	b.states[key] = at
	return at, nil
}

// cut drops what comes after the first term that already matches, and gives
// the conditions that the rest still asks for.
func (b *diagramBuilder) cut(level int, alive []uint16) ([]uint16, uint64) {
	var asked uint64
	for i, t := range alive {
		open := b.terms[t].mentions() & b.later[level]
		if open == 0 {
			return alive[:i+1], asked
		}
		asked |= open
	}
	return alive, asked
}

func (b *diagramBuilder) intern(node decision) int32 {
	if node.next[0] == node.next[1] && node.next[1] == node.next[2] {
		return node.next[0]
	}
	if at, ok := b.unique[node]; ok {
		return at
	}
	at := int32(len(b.nodes))
	b.nodes = append(b.nodes, node)
	b.unique[node] = at
	return at
}

func stateKey(level int, alive []uint16) string {
	key := make([]byte, 0, 1+2*len(alive))
	key = append(key, byte(level))
	for _, t := range alive {
		key = binary.LittleEndian.AppendUint16(key, t)
	}
	return string(key)
}

// match gives the rung that matches, as the ladder's own first match does.
func (d *diagram) match(isTrue, unknown uint64) int16 {
	at := d.root
	for !isLeaf(at) {
		n := &d.nodes[at]
		at = n.next[digit(isTrue, unknown, n.bit)]
	}
	return int16(rungOfLeaf(at))
}

// reach gives every rung that matches for some values of the conditions in
// free, the others being as the masks say. Its cost is the number of nodes,
// however many conditions are free.
func (d *diagram) reach(isTrue, unknown, free uint64) (found rungSet) {
	if isLeaf(d.root) {
		found.add(rungOfLeaf(d.root))
		return found
	}
	var few [16]uint64
	pending := few[:]
	if len(d.nodes) > 64*len(few) {
		pending = make([]uint64, (len(d.nodes)+63)/64)
	}
	mark := func(at int32) {
		if isLeaf(at) {
			found.add(rungOfLeaf(at))
		} else {
			pending[at>>6] |= 1 << (at & 63)
		}
	}
	mark(d.root)
	for word := int(d.root >> 6); word >= 0; word-- {
		for pending[word] != 0 {
			i := bits.Len64(pending[word]) - 1
			pending[word] &^= 1 << i
			n := &d.nodes[word<<6|i]
			if n.bit&free == 0 {
				mark(n.next[digit(isTrue, unknown, n.bit)])
				continue
			}
			mark(n.next[digitFalse])
			mark(n.next[digitTrue])
			mark(n.next[digitUnknown])
		}
	}
	return found
}

// witness gives values for conditions in free under which one of the wanted
// rungs matches, keeping the values of the masks where it can, and the
// conditions it had to change.
func (d *diagram) witness(isTrue, unknown, free uint64, wanted rungSet) (atTrue, atUnknown, changed uint64, ok bool) {
	barren := map[int32]bool{}
	var walk func(at int32, isTrue, unknown, changed uint64) bool
	walk = func(at int32, t, u, c uint64) bool {
		if isLeaf(at) {
			if wanted.has(int16(rungOfLeaf(at))) {
				atTrue, atUnknown, changed = t, u, c
				return true
			}
			return false
		}
		if barren[at] {
			return false
		}
		n := &d.nodes[at]
		kept := digit(t, u, n.bit)
		if walk(n.next[kept], t, u, c) {
			return true
		}
		for other := range digits {
			if other == kept || n.bit&free == 0 {
				continue
			}
			ot, ou := t&^n.bit, u&^n.bit
			switch other {
			case digitTrue:
				ot |= n.bit
			case digitUnknown:
				ou |= n.bit
			}
			if walk(n.next[other], ot, ou, c|n.bit) {
				return true
			}
		}
		barren[at] = true
		return false
	}
	ok = walk(d.root, isTrue, unknown, 0)
	return atTrue, atUnknown, changed, ok
}
