package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/musterhq/muster/engine"
)

const (
	sampleSize    = 1 << 16 // so many that no branch predictor knows them by heart
	learntSize    = 1 << 11 // so few that it does
	peerSize      = 1 << 12
	observeSize   = 1 << 13
	ingestSize    = 1 << 12
	cueSampleSize = 100 // CUE is so slow that more would say nothing new
	millionSize   = 1_000_000
	seed          = 20260301
)

// drawStandings draws devices: half of them with every condition at random,
// half as a fleet is found, in a pool and with little or nothing out of line.
// Nothing is stale.
func drawStandings(n int, uniform float64) []engine.Standing {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	fleet := make([]engine.Standing, n)
	for i := range fleet {
		var t, u uint64
		if rng.Float64() < uniform {
			t, u = maskOf(rng.IntN(59049))
		} else {
			switch rng.IntN(4) {
			case 0:
				t = enrolled | validationAllocated | slurmMember | slurmSchedulable
			case 1:
				t = enrolled | customerReady | instanceAllocated
			default:
				t = enrolled | customerReady | provisionAvailable
			}
			for rng.IntN(4) == 0 {
				bit := uint64(1) << conditions[rng.IntN(len(conditions))].bit
				if rng.IntN(4) == 0 {
					t, u = t&^bit, u|bit
				} else {
					t, u = t^bit, u&^bit
				}
			}
		}
		fleet[i] = standing(t, u)
	}
	return fleet
}

// benchDerive races the ladder by hand, compiled, and in the other engines.
func benchDerive(r *report, e effort, b, wide *engine.Bundle) error {
	if err := checkLadder(b, wide); err != nil {
		return err
	}
	fleet := drawStandings(sampleSize, 0.5)
	sample := make([]statuses, peerSize)
	for i, s := range fleet[:peerSize] {
		sample[i] = statusesOf(s.True, s.Unknown)
	}
	peers, err := peersOf(sample)
	if err != nil {
		return err
	}
	if err := checkPeers(peers, fleet[:peerSize]); err != nil {
		return err
	}
	narrow := race(e, contender{"hand-written Go", handAll(byHand, fleet)}, contender{"muster, compiled to a table", deriveAll(b, fleet)})
	learnt := race(e, contender{"hand-written Go, devices that repeat", handAll(byHand, fleet[:learntSize])}, contender{"muster, devices that repeat", deriveAll(b, fleet[:learntSize])})
	broad := race(e, contender{"hand-written Go, 15 rungs over 14 conditions", handAll(wideByHand, fleet)}, contender{"muster, the same, too wide for a table", deriveAll(wide, fleet)})
	few := fleet[:peerSize]
	slow := race(effort{rounds: max(3, e.rounds/3), slice: e.slice}, append([]contender{
		{"hand-written Go", handAll(byHand, few)}, {"muster, compiled to a table", deriveAll(b, few)}}, peerContenders(peers)...)...)
	t := r.table("Derive one device", "operational ladder of 11 rungs over 10 conditions, nothing stale; half of the devices at random, half as a fleet is found: %s of them, so many that no branch predictor learns them by heart, where they repeat %s; %s for the other engines, %d for CUE",
		thousands(sampleSize), thousands(learntSize), thousands(peerSize), cueSampleSize)
	t.figures(narrow...)
	t.figures(learnt...)
	t.figures(broad...)
	t.figures(slow[2:]...)
	t.target("table / hand-written", narrow[1].ratio, atMost, 0.5)
	t.target("table / hand-written, devices that repeat", learnt[1].ratio, atMost, 0.5)
	t.target("wide ladder / hand-written", broad[1].ratio, atMost, 4)
	t.target("allocations", narrow[1].allocs+broad[1].allocs, atMost, 0)
	t.remark("For the other engines a device is its ten conditions and nothing else, which is the least they can be given. CEL has them as typed variables, which is faster than a map.")
	ns := func(name string) float64 {
		for _, f := range slow {
			if f.name == name {
				return f.ns
			}
		}
		return 0
	}
	t.target("CEL, the faster way / table", min(ns("CEL, a program per rung"), ns("CEL, one chain"))/slow[1].ns, atLeast, 1000)
	t.target("OPA / table", ns("OPA, prepared, input parsed before")/slow[1].ns, atLeast, 10000)
	return nil
}

func handAll(by func(t, u uint64) int, fleet []engine.Standing) func(n int) {
	return func(n int) {
		var sum int
		for i := range n {
			s := &fleet[i&(len(fleet)-1)]
			sum += by(s.True, s.Unknown)
		}
		sink += uint64(sum)
	}
}

func deriveAll(b *engine.Bundle, fleet []engine.Standing) func(n int) {
	return func(n int) {
		var sum int
		for i := range n {
			sum += int(b.Derive(&fleet[i&(len(fleet)-1)]).Rung)
		}
		sink += uint64(sum)
	}
}

// checkPeers compares every answer with the code by hand.
func checkPeers(peers []peer, fleet []engine.Standing) error {
	for _, p := range peers {
		for i, s := range fleet {
			if p.name[:7] == "raw CUE" && i >= cueSampleSize {
				break
			}
			got, err := p.judge(i)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if want := byHand(s.True, s.Unknown); got != want {
				return fmt.Errorf("%s gives rung %d to device %d, the code by hand %d", p.name, got, i, want)
			}
		}
	}
	return nil
}

func peerContenders(peers []peer) []contender {
	var all []contender
	for _, p := range peers {
		size := peerSize
		if p.name[:7] == "raw CUE" {
			size = cueSampleSize
		}
		all = append(all, contender{p.name, func(n int) {
			for i := range n {
				rung, err := p.judge(i % size)
				if err != nil {
					panic(err) // it gave an answer to the same device before
				}
				sink += uint64(rung)
			}
		}})
	}
	return all
}

// benchMillion derives a whole large fleet once.
func benchMillion(r *report, e effort, b *engine.Bundle) {
	t := r.table("Derive 1,000,000 devices on one core", "one pass over all of them; uniform: every condition at random; fleet: as one is found")
	for _, kind := range []struct {
		name    string
		uniform float64
	}{{"fleet", 0}, {"uniform", 1}} {
		fleet := drawStandings(millionSize, kind.uniform)
		f := race(effort{rounds: e.rounds, slice: 1},
			contender{"hand-written loop, " + kind.name, func(n int) {
				for range n {
					var sum int
					for i := range fleet {
						sum += byHand(fleet[i].True, fleet[i].Unknown)
					}
					sink += uint64(sum)
				}
			}},
			contender{"muster, " + kind.name, func(n int) {
				for range n {
					var sum int
					for i := range fleet {
						sum += int(b.Derive(&fleet[i]).Rung)
					}
					sink += uint64(sum)
				}
			}})
		t.figures(f...)
		t.target(kind.name+" / hand-written", f[1].ratio, atMost, 1)
		t.target(kind.name+", ms", f[1].ns/1e6, atMost, 20)
	}
}
