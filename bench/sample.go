package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/facts"
)

// The projects and the trait of the site that the sample is of.
const (
	slurmProject, enrolProject, maintenanceProject = "8b4f1d6e0c7a4a17b8f1a0c94b7f2a11", "2f0d6b1c9a3e4c55a6f7b0a3d1e8c922", "c41b7a90e2d84f36b5a1908e7d6f3b33"
	customerProject                                = "5a9c3e7f1b2d4866905e8d7c6b5a4f44"
	readyTrait                                     = "CUSTOM_CUSTOMER_READY"
)

var siteFacts = facts.Site{
	Name: "bench", EngagementMode: facts.EngagementModeFullyManaged, TraitBased: true,
	HasIronic: true, HasSlurm: true, InventorySource: facts.InventorySourceIronic,
}

func factsContext(now time.Time) facts.Context {
	return facts.Context{EnrolLessee: enrolProject, SlurmLessee: slurmProject, MaintenanceLessee: maintenanceProject, CustomerTrait: readyTrait, Now: now}
}

// drawIronic draws what Ironic says of a node as one finds it: as many facts
// as a real listing gives, a quarter of the nodes in validation, a fifth with a
// customer's instance, one in twenty out of line.
func drawIronic(rng *rand.Rand, name string, now time.Time) facts.Ironic {
	f := facts.Ironic{
		Listed: facts.True, Name: facts.TextOf(name), ProvisionState: facts.ProvisionStateAvailable, TargetProvisionState: facts.TextOf(""),
		Maintenance: facts.False, MaintenanceReason: facts.TextOf(""), Fault: facts.TextOf(""), LastError: facts.TextOf(""),
		PowerState: facts.TextOf("power on"), TargetPowerState: facts.TextOf(""), InstanceBound: facts.False, OurMark: facts.False,
		Lessee: facts.TextOf(customerProject), Owner: facts.TextOf(enrolProject), ResourceClass: facts.TextOf("baremetal.gpu-h200"), Driver: facts.TextOf("redfish"),
		Reservation: facts.TextOf(""), BMCAddress: facts.TextOf(fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), rng.IntN(256))),
		ProvisionUpdatedAt: now.Add(-time.Duration(rng.IntN(1_000_000)) * time.Second).Truncate(time.Second),
		Traits:             []string{"CUSTOM_GPU_H200", "CUSTOM_NVME", readyTrait},
		Properties:         map[string]any{"cpu_arch": "x86_64", "cpus": float64(224), "memory_mb": float64(2097152), "local_gb": float64(3576)},
	}
	switch rng.IntN(20) {
	case 0, 1, 2, 3, 4: // validation
		f.Lessee, f.Traits, f.ProvisionState = facts.TextOf(slurmProject), f.Traits[:2], facts.ProvisionStateActive
	case 5, 6, 7, 8:
		f.ProvisionState, f.InstanceBound, f.InstanceUUID = facts.ProvisionStateActive, facts.True, facts.TextOf(fmt.Sprintf("%08x-2222-4333-8444-%012x", rng.Uint32(), rng.Uint32()))
	case 9:
		outOfLine(rng, &f)
	}
	return f
}

func outOfLine(rng *rand.Rand, f *facts.Ironic) {
	switch rng.IntN(4) {
	case 0:
		f.Maintenance, f.MaintenanceReason = facts.True, facts.TextOf("fan 3 reads nothing")
	case 1:
		f.ProvisionState, f.LastError = facts.ProvisionStateCleanFailed, facts.TextOf("agent did not come back after 1800 s")
	case 2:
		f.ProvisionState = facts.ProvisionStateCleaning
	default:
		f.Lessee = facts.TextOf(maintenanceProject)
	}
}

func drawSlurm(rng *rand.Rand) facts.Slurm {
	f := facts.Slurm{Listed: facts.True, Reason: facts.TextOf(""), Partitions: []string{"burn-in", "all"}, States: facts.SlurmIdle}
	switch rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		f.States = facts.SlurmAllocated
	case 6:
		f.States, f.Reason = facts.SlurmIdle|facts.SlurmDrain, facts.TextOf("muster: gpu 5 fell off the bus")
	case 7:
		f.States, f.Reason = facts.SlurmDown|facts.SlurmNotResponding, facts.TextOf("Not responding")
	}
	return f
}

// drawFacts draws complete facts of devices: half at random over every value
// of what the emissions read, half as a fleet is found.
func drawFacts(n int, now time.Time) ([]facts.Facts, []facts.Codes) {
	rng := rand.New(rand.NewPCG(seed, 2))
	all, codes := make([]facts.Facts, n), make([]facts.Codes, n)
	context := factsContext(now)
	for i := range all {
		f := &all[i]
		f.Site = siteFacts
		f.Ironic, f.Slurm = drawIronic(rng, fmt.Sprintf("gpu-%05d", i), now), drawSlurm(rng)
		if i%2 == 0 {
			scatter(rng, f)
		}
		facts.Complete(f, &context)
		f.Intern(&codes[i])
	}
	return all, codes
}

func scatter(rng *rand.Rand, f *facts.Facts) {
	tri := func() facts.Bool { return facts.Bool(rng.IntN(3)) }
	f.Site.PlacementEnabled, f.Site.TraitBased = rng.IntN(2) == 0, rng.IntN(2) == 0
	f.Site.EngagementMode = facts.EngagementMode(1 + rng.IntN(4))
	f.Ironic.Listed, f.Ironic.Maintenance, f.Ironic.InstanceBound, f.Ironic.OurMark = tri(), tri(), tri(), tri()
	f.Ironic.ProvisionState, f.Ironic.Unmodelled = facts.ProvisionState(rng.IntN(33)), rng.IntN(8) == 0
	f.Ironic.Lessee = []facts.Text{{}, facts.TextOf(""), facts.TextOf(slurmProject), facts.TextOf(enrolProject), facts.TextOf(maintenanceProject), facts.TextOf("x")}[rng.IntN(6)]
	f.Ironic.Fault = []facts.Text{{}, facts.TextOf(""), facts.TextOf("power failure")}[rng.IntN(3)]
	f.Ironic.Traits = [][]string{nil, {}, {readyTrait}}[rng.IntN(3)]
	f.Placement.Allocated = tri()
	f.Slurm.Listed, f.Slurm.Unmodelled, f.Slurm.States = tri(), rng.IntN(8) == 0, 1<<rng.IntN(8)
	for rng.IntN(3) == 0 {
		f.Slurm.States |= 1 << (8 + rng.IntN(26))
	}
}
