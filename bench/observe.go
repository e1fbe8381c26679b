package main

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
)

// stateSet is a set of provision states by code.
type stateSet uint64

func setOf(states ...facts.ProvisionState) stateSet {
	var s stateSet
	for _, state := range states {
		s |= 1 << state
	}
	return s
}

func (s stateSet) has(state facts.ProvisionState) bool { return s>>(state&63)&1 == 1 }

var (
	failures = setOf(facts.ProvisionStateDeployFailed, facts.ProvisionStateCleanFailed, facts.ProvisionStateInspectFailed, facts.ProvisionStateRescueFailed,
		facts.ProvisionStateUnrescueFailed, facts.ProvisionStateAdoptFailed, facts.ProvisionStateServiceFailed, facts.ProvisionStateError)
	beforeEnrolment = setOf(facts.ProvisionStateEnroll, facts.ProvisionStateVerifying, facts.ProvisionStateManageable, facts.ProvisionStateInspecting,
		facts.ProvisionStateInspectWait, facts.ProvisionStateAdopting)
	underInstance = setOf(facts.ProvisionStateDeploying, facts.ProvisionStateWaitCallback, facts.ProvisionStateActive)

	// slurmBlocks are the states that keep a node from work, the reasons in order.
	slurmBlocks = [...]facts.SlurmStates{
		facts.SlurmDown, facts.SlurmError, facts.SlurmFuture, facts.SlurmExternal, facts.SlurmDrain, facts.SlurmFail, facts.SlurmBlocked,
		facts.SlurmNotResponding, facts.SlurmMaintenance, facts.SlurmInvalidReg, facts.SlurmPoweredDown, facts.SlurmPoweringDown, facts.SlurmPowerDown,
		facts.SlurmPowerDownAsap, facts.SlurmPowerDownForce, facts.SlurmPowerDrain, facts.SlurmPoweringUp, facts.SlurmRebootIssued, facts.SlurmRebootRequested,
	}
	slurmBlocked = func() (all facts.SlurmStates) {
		for _, s := range slurmBlocks {
			all |= s
		}
		return all
	}()
)

// observer is what hand-written emissions fill, in the form of the engine's.
type observer struct{ out *engine.Observed }

func (o observer) give(bit uint8, rung int16, status uint64) {
	o.out.Rung[bit&63] = rung
	o.out.True |= status & 1 << (bit & 63)
	o.out.Unknown |= status >> 1 & 1 << (bit & 63)
	o.out.NotRead |= status >> 2 & 1 << (bit & 63)
}

const (
	isFalse   = 0
	isTrue    = 1
	isUnknown = 2
	isNotRead = 4
)

// observeByHand is the ten emissions of openstack and slurm as one would write
// them in Go over the same facts, enums and bools as small numbers.
//
//go:noinline
func observeByHand(f *facts.Facts, out *engine.Observed) {
	out.True, out.Unknown, out.NotRead = 0, 0, 0
	o := observer{out}
	n := &f.Ironic
	if n.Listed == facts.False {
		for _, bit := range [...]uint8{18, 11, 5, 17, 9, 23, 12, 3} {
			o.give(bit, 0, isUnknown)
		}
	} else {
		observeStates(o, n)
		observeMaintenance(o, n)
		observeInstance(o, f)
		observeLeases(o, f)
		observeReady(o, f)
	}
	observeSlurm(o, &f.Slurm)
}

func observeStates(o observer, n *facts.Ironic) {
	switch {
	case n.Unmodelled:
		o.give(18, 1, isNotRead)
		o.give(5, 1, isNotRead)
		o.give(17, 1, isNotRead)
		return
	case n.ProvisionState == 0:
		o.give(18, 2, isNotRead)
		o.give(5, 2, isNotRead)
		o.give(17, 2, isNotRead)
		return
	}
	if failures.has(n.ProvisionState) {
		o.give(18, 3, isTrue)
	} else {
		o.give(18, 4, isFalse)
	}
	if beforeEnrolment.has(n.ProvisionState) {
		o.give(5, 3, isFalse)
	} else {
		o.give(5, 4, isTrue)
	}
	if n.ProvisionState == facts.ProvisionStateAvailable {
		o.give(17, 3, isTrue)
	} else {
		o.give(17, 4, isFalse)
	}
}

func observeMaintenance(o observer, n *facts.Ironic) {
	switch {
	case n.Maintenance == facts.Null:
		o.give(11, 1, isNotRead)
	case n.Maintenance == facts.False:
		o.give(11, 4, isFalse)
	case n.Fault.Known && n.Fault.Value != "":
		o.give(11, 2, isTrue)
	default:
		o.give(11, 3, isTrue)
	}
}

func observeInstance(o observer, f *facts.Facts) {
	switch {
	case f.Ironic.InstanceBound == facts.True:
		o.give(9, 1, isTrue)
	case f.Site.PlacementEnabled && f.Placement.Allocated == facts.True:
		o.give(9, 2, isTrue)
	case f.Ironic.InstanceBound == facts.Null:
		o.give(9, 3, isNotRead)
	case f.Site.PlacementEnabled && f.Placement.Allocated == facts.Null:
		o.give(9, 4, isNotRead)
	default:
		o.give(9, 5, isFalse)
	}
}

func observeLeases(o observer, f *facts.Facts) {
	n := &f.Ironic
	alone := !f.Site.PlacementEnabled
	switch {
	case n.LesseeRole == facts.IronicLesseeRoleSlurm:
		o.give(23, 1, isTrue)
	case alone && n.InstanceBound == facts.True && n.OurMark == facts.True && underInstance.has(n.ProvisionState):
		o.give(23, 2, isTrue)
	case n.LesseeRole == 0:
		o.give(23, 3, isNotRead)
	case alone && (n.InstanceBound == facts.Null || n.InstanceBound == facts.True && (n.OurMark == facts.Null || n.OurMark == facts.True && n.ProvisionState == 0)):
		o.give(23, 4, isNotRead)
	default:
		o.give(23, 5, isFalse)
	}
	switch n.LesseeRole {
	case 0:
		o.give(12, 1, isNotRead)
	case facts.IronicLesseeRoleMaintenance:
		o.give(12, 2, isTrue)
	default:
		o.give(12, 3, isFalse)
	}
}

func observeReady(o observer, f *facts.Facts) {
	switch {
	case f.Site.EngagementMode == facts.EngagementModeMetalDelegated || f.Site.EngagementMode == facts.EngagementModeSelfManaged:
		o.give(3, 1, isFalse)
	case f.Site.TraitBased:
		switch f.Ironic.CustomerTrait {
		case facts.Null:
			o.give(3, 2, isNotRead)
		case facts.True:
			o.give(3, 3, isTrue)
		default:
			o.give(3, 4, isFalse)
		}
	case f.Ironic.LesseeRole == 0:
		o.give(3, 5, isNotRead)
	case f.Ironic.LesseeRole == facts.IronicLesseeRoleNone || f.Ironic.LesseeRole == facts.IronicLesseeRoleCustomer:
		o.give(3, 7, isTrue)
	default:
		o.give(3, 6, isFalse)
	}
}

func observeSlurm(o observer, n *facts.Slurm) {
	switch n.Listed {
	case facts.Null:
		o.give(20, 0, isNotRead)
		o.give(21, 0, isNotRead)
		return
	case facts.False:
		o.give(20, 2, isFalse)
		o.give(21, 1, isUnknown)
		return
	}
	o.give(20, 1, isTrue)
	if n.States&slurmBlocked != 0 {
		for i, s := range slurmBlocks {
			if n.States&s != 0 {
				o.give(21, int16(2+i), isFalse)
				return
			}
		}
	}
	switch {
	case n.States&(facts.SlurmUnknown|facts.SlurmInvalid) != 0:
		o.give(21, 21, isNotRead)
	case n.Unmodelled:
		o.give(21, 22, isNotRead)
	case n.States&(facts.SlurmIdle|facts.SlurmAllocated|facts.SlurmMixed) != 0:
		o.give(21, 23, isTrue)
	default:
		o.give(21, 24, isNotRead)
	}
}

// benchObserve races the ten emissions.
func benchObserve(r *report, e effort, b *engine.Bundle) error {
	fleet, codes := drawFacts(observeSize, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	openstack, slurm := b.WriterIndex("openstack"), b.WriterIndex("slurm")
	if openstack < 0 || slurm < 0 {
		return fmt.Errorf("the shipped bundle has no writer openstack or slurm")
	}
	var ours, theirs, byHand engine.Observed // each used again and again, as devices are judged
	for i := range fleet {
		b.Observe(openstack, &fleet[i], &codes[i], &ours)
		b.Observe(slurm, &fleet[i], &codes[i], &theirs)
		observeByHand(&fleet[i], &byHand)
		if err := sameObservation(&ours, &theirs, &byHand); err != nil {
			return fmt.Errorf("device %d, %+v %+v: %w", i, fleet[i].Ironic, fleet[i].Slurm, err)
		}
	}
	f := race(e,
		contender{"hand-written Go", func(n int) {
			for i := range n {
				observeByHand(&fleet[i%observeSize], &byHand)
				sink += byHand.True
			}
		}},
		contender{"muster, compiled", func(n int) {
			for i := range n {
				k := i % observeSize
				b.Observe(openstack, &fleet[k], &codes[k], &ours)
				b.Observe(slurm, &fleet[k], &codes[k], &theirs)
				sink += ours.True | theirs.True
			}
		}},
		contender{"muster, openstack's eight of it", func(n int) {
			for i := range n {
				b.Observe(openstack, &fleet[i%observeSize], &codes[i%observeSize], &ours)
				sink += ours.True
			}
		}},
		contender{"muster, slurm's two of it", func(n int) {
			for i := range n {
				b.Observe(slurm, &fleet[i%observeSize], &codes[i%observeSize], &theirs)
				sink += theirs.True
			}
		}},
	)
	t := r.table("Observe one device", "the ten emissions of openstack and slurm, status and rung of each, from interned facts; half of %s devices at random, half as a fleet is found", thousands(observeSize))
	t.figures(f...)
	t.target("muster / hand-written", f[1].ratio, atMost, 1)
	t.target("allocations", f[1].allocs, atMost, 0)
	return nil
}

// sameObservation compares what the engine makes of two writers' types with
// the code by hand.
func sameObservation(openstack, slurm, byHand *engine.Observed) error {
	for _, c := range conditions {
		ours := openstack
		if slurmConditions>>c.bit&1 == 1 {
			ours = slurm
		}
		spell := func(o *engine.Observed) string {
			return fmt.Sprintf("rung %d, True %d, Unknown %d, NotRead %d", o.Rung[c.bit], o.True>>c.bit&1, o.Unknown>>c.bit&1, o.NotRead>>c.bit&1)
		}
		if spell(ours) != spell(byHand) {
			return fmt.Errorf("%s: the engine observes %s, the code by hand %s", c.name, spell(ours), spell(byHand))
		}
	}
	return nil
}
