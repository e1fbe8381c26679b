package engine

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/facts"
)

// input is what a pattern is matched against. Conditions are whole: a device
// without a row has been given the catalogue's absent value.
type input struct {
	facts      *facts.Facts
	codes      *facts.Codes
	yes        uint64 // conditions that are True, by bit
	unknown    uint64 // conditions that are Unknown
	parameters map[string]any
}

// maxCubes bounds what one pattern may expand to.
const maxCubes = 256

// Tri-states as bits of a set.
const (
	triFalse   uint8 = 1 << iota
	triTrue          // 2
	triUnknown       // 4
	triAll     = triFalse | triTrue | triUnknown
)

// cube is an "and" of field tests, at most one a field.
type cube struct {
	// A condition whose bit is set in one of these may not have that value.
	notTrue, notFalse, notUnknown uint64
	finite                        []finiteTest
	checks                        []check
}

// finiteTest asks that the code of a fact is in a set.
type finiteTest struct {
	at    int
	allow uint64 // bit set of codes
}

// check asks a text or a parameter.
type check struct {
	predicate *predicate
	want      bool
}

// domains gives the set of all codes of a finite fact.
type domains [len(facts.Codes{})]uint64

func (c *cube) matches(in *input) bool {
	if in.yes&c.notTrue|in.unknown&c.notUnknown|^(in.yes|in.unknown)&c.notFalse != 0 {
		return false
	}
	for _, t := range c.finite {
		if t.allow>>in.codes[t.at]&1 == 0 {
			return false
		}
	}
	for i := range c.checks {
		if c.checks[i].predicate.holds(in) != c.checks[i].want {
			return false
		}
	}
	return true
}

// and joins two cubes; it reports false when nothing matches both.
func (c *cube) and(d *cube) (cube, bool) {
	joined := cube{
		notTrue:    c.notTrue | d.notTrue,
		notFalse:   c.notFalse | d.notFalse,
		notUnknown: c.notUnknown | d.notUnknown,
		finite:     slices.Clone(c.finite),
		checks:     slices.Clone(c.checks),
	}
	if joined.notTrue&joined.notFalse&joined.notUnknown != 0 {
		return cube{}, false
	}
	for _, t := range d.finite {
		i := slices.IndexFunc(joined.finite, func(f finiteTest) bool { return f.at == t.at })
		if i < 0 {
			joined.finite = append(joined.finite, t)
			continue
		}
		if joined.finite[i].allow &= t.allow; joined.finite[i].allow == 0 {
			return cube{}, false
		}
	}
	for _, t := range d.checks {
		i := slices.IndexFunc(joined.checks, func(f check) bool { return f.predicate == t.predicate })
		if i < 0 {
			joined.checks = append(joined.checks, t)
		} else if joined.checks[i].want != t.want {
			return cube{}, false
		}
	}
	slices.SortFunc(joined.finite, func(a, b finiteTest) int { return a.at - b.at })
	return joined, true
}

// implies reports whether every input that matches c matches d.
func (c *cube) implies(d *cube) bool {
	if d.notTrue&^c.notTrue|d.notFalse&^c.notFalse|d.notUnknown&^c.notUnknown != 0 {
		return false
	}
	for _, t := range d.finite {
		i := slices.IndexFunc(c.finite, func(f finiteTest) bool { return f.at == t.at })
		if i < 0 || c.finite[i].allow&^t.allow != 0 {
			return false
		}
	}
	for _, t := range d.checks {
		if !slices.Contains(c.checks, t) {
			return false
		}
	}
	return true
}

// negate gives the cubes of "not c", one a field test.
func (c *cube) negate(all *domains) []cube {
	var out []cube
	rest := c.notTrue | c.notFalse | c.notUnknown
	for ; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		not := cube{}
		if c.notTrue&bit == 0 {
			not.notTrue = bit
		}
		if c.notFalse&bit == 0 {
			not.notFalse = bit
		}
		if c.notUnknown&bit == 0 {
			not.notUnknown = bit
		}
		out = append(out, not)
	}
	for _, t := range c.finite {
		if other := all[t.at] &^ t.allow; other != 0 {
			out = append(out, cube{finite: []finiteTest{{t.at, other}}})
		}
	}
	for _, t := range c.checks {
		out = append(out, cube{checks: []check{{t.predicate, !t.want}}})
	}
	return out
}

// conditions is the mask of the conditions that the cube tests.
func (c *cube) conditions() uint64 { return c.notTrue | c.notFalse | c.notUnknown }

// cubes is an "or" of cubes: none matches nothing, one empty cube everything.
type cubes []cube

func (cs cubes) matches(in *input) bool {
	for i := range cs {
		if cs[i].matches(in) {
			return true
		}
	}
	return false
}

// or adds cubes and drops those that others cover.
func (cs cubes) or(more cubes) (cubes, error) {
	out := slices.Clone(cs)
next:
	for i := range more {
		for j := range out {
			if more[i].implies(&out[j]) {
				continue next
			}
		}
		out = slices.DeleteFunc(out, func(c cube) bool { return c.implies(&more[i]) })
		out = append(out, more[i])
	}
	if len(out) > maxCubes {
		return nil, fmt.Errorf("it expands to more than %d alternatives: split it into several rungs", maxCubes)
	}
	return out, nil
}

// and multiplies two lists.
func (cs cubes) and(more cubes) (cubes, error) {
	var out cubes
	for i := range cs {
		var row cubes
		for j := range more {
			if joined, ok := cs[i].and(&more[j]); ok {
				row = append(row, joined)
			}
		}
		var err error
		if out, err = out.or(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// not gives the cubes that match what cs does not.
func (cs cubes) not(all *domains) (cubes, error) {
	out := cubes{{}}
	for i := range cs {
		var err error
		if out, err = out.and(cs[i].negate(all)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pattern is a compiled pattern: the tree as it is written, for traces and for
// what is decisive, and the cubes that decide.
type pattern struct {
	tests []leaf     // all of these,
	any   []*pattern // one of these if there are any,
	not   []*pattern // and none of these
	cubes cubes
}

// leaf is one field test as it is written.
type leaf struct {
	path  string // family.fact, conditions.TYPE or parameters.NAME
	want  string // as the policy spells it
	pos   Pos
	tri   uint8 // of a condition: the values that match
	bit   uint8 // of a condition
	cube  cube  // the test alone
	never bool  // no value matches
}

func (l *leaf) condition() bool { return l.tri != 0 }

// matches asks the tree, as a trace does; cubes.matches gives the same answer.
func (p *pattern) matches(in *input) bool {
	for i := range p.tests {
		if !p.tests[i].matches(in) {
			return false
		}
	}
	holds := func(q *pattern) bool { return q.matches(in) }
	return (len(p.any) == 0 || slices.ContainsFunc(p.any, holds)) && !slices.ContainsFunc(p.not, holds)
}

func (l *leaf) matches(in *input) bool { return !l.never && l.cube.matches(in) }

// walk calls f on every leaf of the tree.
func (p *pattern) walk(f func(l *leaf, negated bool)) { p.walkIn(f, false) }

func (p *pattern) walkIn(f func(l *leaf, negated bool), negated bool) {
	for i := range p.tests {
		f(&p.tests[i], negated)
	}
	for _, q := range p.any {
		q.walkIn(f, negated)
	}
	for _, q := range p.not {
		q.walkIn(f, !negated)
	}
}

// conditions is the mask of every condition that the pattern mentions.
func (p *pattern) conditions() uint64 {
	var mask uint64
	p.walk(func(l *leaf, _ bool) {
		if l.condition() {
			mask |= 1 << l.bit
		}
	})
	return mask
}

// top is the mask of the conditions tested beside any and not.
func (p *pattern) top() uint64 {
	var mask uint64
	for i := range p.tests {
		if p.tests[i].condition() {
			mask |= 1 << p.tests[i].bit
		}
	}
	return mask
}

// decisive is the mask of the conditions that made a matching pattern match:
// the top-level ones and those of the first matching alternative of any.
func (p *pattern) decisive(in *input) uint64 {
	mask := p.top()
	for _, q := range p.any {
		if q.matches(in) {
			return mask | q.decisive(in)
		}
	}
	return mask
}

// triCube is the cube of one condition test.
func triCube(bit, tri uint8) cube {
	var c cube
	mask := uint64(1) << bit
	if tri&triTrue == 0 {
		c.notTrue = mask
	}
	if tri&triFalse == 0 {
		c.notFalse = mask
	}
	if tri&triUnknown == 0 {
		c.notUnknown = mask
	}
	return c
}

func fullDomain(f facts.Field) uint64 { return 1<<(len(f.Values)+1) - 1 }
