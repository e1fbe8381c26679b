package engine

import "math/rand/v2"

// gather turns a mask into the sum of powers of three that a table's index is
// made of, by one multiplication and one lookup, wherever in the word the used
// bits are: the multiplier brings every subset of them to a slot of its own.
type gather struct {
	used       uint64
	multiplier uint64
	sums       [1 << gatherBits]uint32
}

// A gather has four slots for each subset of ten bits. More bits than eleven
// leave too little room to find a multiplier.
const (
	gatherBits  = 12
	gatherShift = 64 - gatherBits
	gatherTries = 1 << 14
)

// newGather looks for a multiplier. It reports false where it finds none: then
// the ternary's own lookups have to do.
func newGather(t *ternary) (*gather, bool) {
	if len(t.bits) >= gatherBits {
		return nil, false
	}
	g := &gather{used: t.used}
	// The sequence is fixed, so that a bundle loads the same way every time;
	// sparse multipliers carry less from one bit into another.
	draw := rand.New(rand.NewPCG(3, 10))
	for range gatherTries {
		g.multiplier = draw.Uint64() & draw.Uint64() & draw.Uint64()
		if g.separates() {
			for set := uint64(0); ; set = (set - g.used) & g.used {
				g.sums[g.slot(set)] = t.index(set, 0)
				if set == g.used {
					return g, true
				}
			}
		}
	}
	return nil, false
}

// separates reports whether no two subsets share a slot.
func (g *gather) separates() bool {
	var taken [1 << gatherBits / 64]uint64
	for set := uint64(0); ; set = (set - g.used) & g.used {
		slot := g.slot(set)
		if taken[slot>>6]>>(slot&63)&1 == 1 {
			return false
		}
		taken[slot>>6] |= 1 << (slot & 63)
		if set == g.used {
			return true
		}
	}
}

func (g *gather) slot(mask uint64) uint64 { return (mask & g.used) * g.multiplier >> gatherShift }

// index is what ternary.index gives.
func (g *gather) index(yes, unknown uint64) uint32 {
	return g.sums[g.slot(yes)] + 2*g.sums[g.slot(unknown)]
}
