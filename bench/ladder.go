package main

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/engine"
)

// The ten conditions that the shipped operational ladder reads. The bundle is
// loaded with these bits, so that hand-written code can have them as constants,
// as whoever writes such code would.
const (
	customerReady       = 1 << 3
	enrolled            = 1 << 5
	instanceAllocated   = 1 << 9
	maintenance         = 1 << 11
	maintenancePool     = 1 << 12
	provisionAvailable  = 1 << 17
	provisionFailed     = 1 << 18
	slurmMember         = 1 << 20
	slurmSchedulable    = 1 << 21
	validationAllocated = 1 << 23

	allConditions = customerReady | enrolled | instanceAllocated | maintenance | maintenancePool | provisionAvailable |
		provisionFailed | slurmMember | slurmSchedulable | validationAllocated
	slurmConditions = slurmMember | slurmSchedulable
)

// condition is one of the ten by name.
type condition struct {
	name string
	bit  uint8
}

var conditions = []condition{
	{"CustomerReady", 3}, {"Enrolled", 5}, {"InstanceAllocated", 9}, {"Maintenance", 11}, {"MaintenancePool", 12},
	{"ProvisionAvailable", 17}, {"ProvisionFailed", 18}, {"SlurmMember", 20}, {"SlurmSchedulable", 21}, {"ValidationAllocated", 23},
}

// rung is one rung as the other engines get it: every test must hold.
type rung struct {
	name  string
	tests []test
}

type test struct{ condition, status string }

// ladder is the operational ladder of the device model, for engines that do
// not read CUE. What `otherwise` gives is the index past the last.
var ladder = []rung{
	{"provision-failed", []test{{"ProvisionFailed", "True"}}},
	{"maintenance", []test{{"Maintenance", "True"}}},
	{"no-infrastructure", []test{{"Enrolled", "Unknown"}}},
	{"not-enrolled", []test{{"Enrolled", "False"}}},
	{"validation-not-in-slurm", []test{{"ValidationAllocated", "True"}, {"CustomerReady", "False"}, {"SlurmMember", "False"}}},
	{"validation-unschedulable", []test{{"ValidationAllocated", "True"}, {"CustomerReady", "False"}, {"SlurmSchedulable", "False"}}},
	{"validation", []test{{"ProvisionFailed", "False"}, {"Maintenance", "False"}, {"Enrolled", "True"}, {"ValidationAllocated", "True"}, {"CustomerReady", "False"}}},
	{"customer-in-use", []test{{"CustomerReady", "True"}, {"InstanceAllocated", "True"}}},
	{"customer-available", []test{{"ProvisionFailed", "False"}, {"Maintenance", "False"}, {"Enrolled", "True"}, {"CustomerReady", "True"},
		{"InstanceAllocated", "False"}, {"MaintenancePool", "False"}, {"ProvisionAvailable", "True"}}},
	{"customer-occupied", []test{{"CustomerReady", "True"}, {"InstanceAllocated", "False"}, {"MaintenancePool", "False"}, {"ProvisionAvailable", "False"}}},
	{"maintenance-pool", []test{{"MaintenancePool", "True"}}},
}

// byHand is the operational ladder as one would write it in Go over the same
// masks: the reference. It gives the index of the rung.
//
//go:noinline
func byHand(t, u uint64) int {
	f := ^(t | u)
	if t&provisionFailed != 0 {
		return 0
	}
	if t&maintenance != 0 {
		return 1
	}
	if u&enrolled != 0 {
		return 2
	}
	if f&enrolled != 0 {
		return 3
	}
	if t&validationAllocated != 0 && f&customerReady != 0 {
		if f&slurmMember != 0 {
			return 4
		}
		if f&slurmSchedulable != 0 {
			return 5
		}
		if f&provisionFailed != 0 && f&maintenance != 0 && t&enrolled != 0 {
			return 6
		}
	}
	if t&customerReady != 0 {
		if t&instanceAllocated != 0 {
			return 7
		}
		if f&instanceAllocated != 0 && f&maintenancePool != 0 {
			if f&provisionFailed != 0 && f&maintenance != 0 && t&enrolled != 0 && t&provisionAvailable != 0 {
				return 8
			}
			if f&provisionAvailable != 0 {
				return 9
			}
		}
	}
	if t&maintenancePool != 0 {
		return 10
	}
	return 11
}

// wideBits are four more conditions, of a ladder that is too wide for a table.
const (
	wide1 = 1 << (30 + iota)
	wide2
	wide3
	wide4

	wideConditions = wide1 | wide2 | wide3 | wide4
)

// wideByHand is byHand with four more rungs before "no-infrastructure".
//
//go:noinline
func wideByHand(t, u uint64) int {
	f := ^(t | u)
	if t&provisionFailed != 0 {
		return 0
	}
	if t&maintenance != 0 {
		return 1
	}
	if t&wide1 != 0 {
		return 2
	}
	if t&wide2 != 0 {
		return 3
	}
	if t&wide3 != 0 {
		return 4
	}
	if t&wide4 != 0 {
		return 5
	}
	if u&enrolled != 0 {
		return 6
	}
	if f&enrolled != 0 {
		return 7
	}
	if t&validationAllocated != 0 && f&customerReady != 0 {
		if f&slurmMember != 0 {
			return 8
		}
		if f&slurmSchedulable != 0 {
			return 9
		}
		if f&wideConditions == wideConditions && f&provisionFailed != 0 && f&maintenance != 0 && t&enrolled != 0 {
			return 10
		}
	}
	if t&customerReady != 0 {
		if t&instanceAllocated != 0 {
			return 11
		}
		if f&instanceAllocated != 0 && f&maintenancePool != 0 {
			if f&wideConditions == wideConditions && f&provisionFailed != 0 && f&maintenance != 0 && t&enrolled != 0 && t&provisionAvailable != 0 {
				return 12
			}
			if f&provisionAvailable != 0 {
				return 13
			}
		}
	}
	if t&maintenancePool != 0 {
		return 14
	}
	return 15
}

// checkLadder compares the table for the other engines and the code by hand
// with the shipped bundle, over every combination of the ten conditions.
func checkLadder(b *engine.Bundle, wide *engine.Bundle) error {
	for i, r := range ladder {
		if got := b.OperationalRung(int16(i)).Name; got != r.name {
			return fmt.Errorf("rung %d of the shipped ladder is %s, here it is %s: bring bench/ladder.go up to date", i, got, r.name)
		}
	}
	combinations := 1
	for range conditions {
		combinations *= 3
	}
	for n := range combinations {
		t, u := maskOf(n)
		for _, c := range []struct {
			b      *engine.Bundle
			byHand func(t, u uint64) int
			more   uint64
		}{{b, byHand, 0}, {wide, wideByHand, 0}, {wide, wideByHand, 1 << (30 + n%4)}} {
			s := standing(t|c.more, u)
			if got, want := int(c.b.Derive(&s).Rung), c.byHand(t|c.more, u); got != want {
				return fmt.Errorf("with True %b and Unknown %b the engine gives rung %d, the code by hand %d", t|c.more, u, got, want)
			}
		}
	}
	return nil
}

// maskOf spells a combination's number in digits of base 3.
func maskOf(n int) (t, u uint64) {
	for _, c := range conditions {
		switch n % 3 {
		case 1:
			t |= 1 << c.bit
		case 2:
			u |= 1 << c.bit
		}
		n /= 3
	}
	return t, u
}

func standing(t, u uint64) engine.Standing {
	const known = allConditions | wideConditions
	return engine.Standing{Masks: engine.Masks{True: t, Unknown: u, Present: known}, InScope: known}
}

// spelled writes a rung as one expression of an engine.
func spelled(r rung, equal, and string) string {
	var parts []string
	for _, t := range r.tests {
		parts = append(parts, fmt.Sprintf(equal, t.condition, t.status))
	}
	return strings.Join(parts, and)
}
