package engine

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestGatherIsTheTernaryIndex(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	missed := 0
	for range 200 {
		var used uint64
		for n := rng.IntN(11); bits.OnesCount64(used) < n; {
			used |= 1 << rng.IntN(64)
		}
		digits := newTernary(used)
		g, ok := newGather(digits)
		if !ok {
			missed++
			continue
		}
		for range 500 {
			unknown := rng.Uint64()
			yes := rng.Uint64() &^ unknown
			if got, want := g.index(yes, unknown), digits.index(yes, unknown); got != want {
				t.Fatalf("used %x, true %x, unknown %x: %d, want %d", used, yes, unknown, got, want)
			}
		}
	}
	if missed > 4 {
		t.Errorf("no multiplier for %d of 200 sets of ten bits at most", missed)
	}
}

func TestGatherLeavesWideLaddersAlone(t *testing.T) {
	t.Parallel()
	if _, ok := newGather(newTernary(1<<gatherBits - 1)); ok {
		t.Error("a multiplier for as many bits as a slot has")
	}
}
