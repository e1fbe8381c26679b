package engine

import (
	"math/bits"
	"strings"

	"github.com/musterhq/muster/facts"
)

// tokens answers the rungs of a ladder that ask for one SLURM token and nothing
// else. A node has few tokens of the many, so they are no part of the table:
// the ladder's answer is the earlier of the two.
type tokens struct {
	set    facts.SlurmStates
	rungOf [64]uint8 // the first rung that a token gives
	none   int       // the number of rungs
}

func (t *tokens) first(states facts.SlurmStates) int {
	first := t.none
	for hit := uint64(states & t.set); hit != 0; hit &= hit - 1 {
		first = min(first, int(t.rungOf[bits.TrailingZeros64(hit)&63]))
	}
	return first
}

// single finds the token of a cube that asks for one token and nothing else.
func (c *cube) single(at map[int]facts.SlurmStates) (facts.SlurmStates, bool) {
	if len(c.finite) != 1 || len(c.checks) > 0 || c.conditions() != 0 {
		return 0, false
	}
	token, ok := at[c.finite[0].at]
	return token, ok && c.finite[0].allow == 1<<2
}

// splitTokens takes the cubes of single tokens out of a ladder's patterns and
// gives what is left, by rung.
func splitTokens(l *Ladder) (*tokens, []cubes) {
	at := tokenFields()
	t := &tokens{none: len(l.Rungs)}
	rest := make([]cubes, len(l.Rungs))
	for i := range l.Rungs {
		for _, c := range l.Rungs[i].pattern.cubes {
			token, ok := c.single(at)
			if !ok {
				rest[i] = append(rest[i], c)
				continue
			}
			if t.set&token == 0 {
				t.set |= token
				t.rungOf[bits.TrailingZeros64(uint64(token))] = uint8(i)
			}
		}
	}
	return t, rest
}

// tokenFields gives the token of each field that is one, by its place in Codes.
func tokenFields() map[int]facts.SlurmStates {
	at := map[int]facts.SlurmStates{}
	for _, f := range facts.Fields {
		if token, ok := cutToken(f.Path); ok {
			at[f.At] = token
		}
	}
	return at
}

// cutToken finds the SLURM token that a path tests.
func cutToken(path string) (facts.SlurmStates, bool) {
	name, ok := strings.CutPrefix(path, "slurm.states.")
	if !ok {
		return 0, false
	}
	return facts.SlurmToken(name)
}

// wide answers a ladder over too many facts for a table by scanning its cubes
// in order.
type wide struct {
	cubes []wideCube
	rungs int
}

// wideCube is a cube with its tests of SLURM's tokens packed: a set that must
// be there whole and one of which nothing may be there.
type wideCube struct {
	must, never facts.SlurmStates
	rung        int
	cube        cube
}

func newWide(l *Ladder) *wide {
	at := tokenFields()
	w := &wide{rungs: len(l.Rungs)}
	for i := range l.Rungs {
		for _, c := range l.Rungs[i].pattern.cubes {
			packed := wideCube{rung: i, cube: c}
			packed.cube.finite = nil
			for _, t := range c.finite {
				token, ok := at[t.at]
				switch {
				case ok && t.allow == 1<<2:
					packed.must |= token
				case ok && t.allow&(1<<2) == 0 && t.allow&(1<<1) != 0:
					packed.never |= token
				default:
					packed.cube.finite = append(packed.cube.finite, t)
				}
			}
			w.cubes = append(w.cubes, packed)
		}
	}
	return w
}

func (w *wide) first(in *input) int {
	var states facts.SlurmStates
	if in.facts != nil { // a ladder over conditions alone is asked without facts
		states = in.facts.Slurm.States
	}
	for i := range w.cubes {
		c := &w.cubes[i]
		if states&c.must == c.must && states&c.never == 0 && c.cube.matches(in) {
			return c.rung
		}
	}
	return w.rungs
}
