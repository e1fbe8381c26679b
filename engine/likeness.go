package engine

import (
	"encoding/binary"
	"slices"

	"github.com/musterhq/muster/facts"
)

// likeness is what a writer's emissions tell devices apart by. Most devices of a
// site are alike in it, so one that is like the device before needs no second
// look.
type likeness struct {
	words  []likeWord
	checks []*predicate
	tokens bool // SLURM's tokens, which are compared as a set
}

// likeWord is eight codes at once.
type likeWord struct {
	offset int
	mask   uint64
}

// seen is what the last call of Observe saw and found; its zero value is like
// no device.
type seen struct {
	by                   *likeness
	words                [(len(facts.Codes{}) + 7) / 8]uint64
	checks               uint64
	states               facts.SlurmStates
	yes, unknown, unread uint64
}

// newLikeness reports false where the emissions ask more checks than fit.
func newLikeness(types []*ConditionType) (*likeness, bool) {
	l := &likeness{}
	var used facts.Codes
	tokens := tokenFields()
	for _, t := range types {
		for i := range t.Emission.Rungs {
			for _, c := range t.Emission.Rungs[i].pattern.cubes {
				for _, test := range c.finite {
					if _, token := tokens[test.at]; token {
						l.tokens = true
					} else {
						used[test.at] = 0xff
					}
				}
				for _, check := range c.checks {
					if !slices.Contains(l.checks, check.predicate) {
						l.checks = append(l.checks, check.predicate)
					}
				}
			}
		}
	}
	for at := 0; at < len(used); at += 8 {
		offset := min(at, len(used)-8) // the last word overlaps the one before
		if mask := binary.LittleEndian.Uint64(used[offset:]); mask != 0 {
			l.words = append(l.words, likeWord{offset, mask})
		}
	}
	return l, len(l.checks) <= 64
}

// again reports whether the input is like the one that s has seen, and takes it
// in where it is not.
func (l *likeness) again(in *input, s *seen) bool {
	same := s.by == l
	for i := range l.words {
		w := &l.words[i]
		if now := binary.LittleEndian.Uint64(in.codes[w.offset:]) & w.mask; now != s.words[i] {
			s.words[i] = now
			same = false
		}
	}
	if l.tokens && in.facts.Slurm.States != s.states {
		s.states = in.facts.Slurm.States
		same = false
	}
	var checks uint64
	for i, p := range l.checks {
		if p.known && p.text(in.facts).Known || !p.known && p.holds(in) {
			checks |= 1 << i
		}
	}
	if checks != s.checks {
		s.checks = checks
		same = false
	}
	s.by = l
	return same
}
