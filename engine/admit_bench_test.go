package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/facts"
)

// admissionFleet draws devices of a fully managed site as a submission finds
// them: most may be moved, some are a customer's, some have one thing amiss.
func admissionFleet(b *Bundle, size int, parameters map[string]any) []AdmitRequest {
	rng := rand.New(rand.NewPCG(9, 10))
	ready, _ := b.Type("CustomerReady")
	fleet := make([]AdmitRequest, size)
	for i := range fleet {
		f := &facts.Facts{}
		f.Device.DeviceClass, f.Device.InventoryStatus = facts.DeviceClassGpuCompute, facts.InventoryStatusActive
		f.Device.OperationalStatus, f.Device.InfrastructureRef = facts.OperationalStatusQuarantine, facts.TextOf("n1")
		f.Enrollment.Proof = facts.ProofStateValid
		f.Site.EngagementMode, f.Site.TraitBased, f.Site.ForceReclaimEnabled = facts.EngagementModeFullyManaged, true, true
		f.Site.HasImaging = true
		f.Ironic.ProvisionState, f.Ironic.InstanceBound, f.Ironic.OurMark = facts.ProvisionStateAvailable, facts.False, facts.False
		f.Ironic.LesseeRole = facts.IronicLesseeRoleNone
		switch rng.IntN(8) {
		case 0:
			f.Ironic.ProvisionState, f.Ironic.InstanceBound, f.Ironic.LesseeRole = facts.ProvisionStateActive, facts.True, facts.IronicLesseeRoleCustomer
			f.Device.OperationalStatus = facts.OperationalStatusInUse
		case 1:
			f.Enrollment.Proof = facts.ProofStateMissing
		case 2:
			f.Ironic.ProvisionState, f.Ironic.InstanceBound, f.Ironic.LesseeRole = facts.ProvisionStateActive, facts.True, facts.IronicLesseeRoleSlurm
			f.Site.HasImaging = false
		case 3:
			f.Site.HasImaging = false
		}
		codes := &facts.Codes{}
		f.Intern(codes)
		bit := uint64(1) << ready.Bit
		fleet[i] = AdmitRequest{Facts: f, Codes: codes, Conditions: Masks{Present: bit, True: bit & -uint64(rng.IntN(2))}, Parameters: parameters}
	}
	return fleet
}

// admitByHand is the policy of move_to_test_cluster as a programmer would write
// it, told as one bit for each gate that refuses.
func admitByHand(r *AdmitRequest, customerReady uint64, force, cordon bool) (refused uint) {
	f := r.Facts
	no := func(gate uint, refuses bool) {
		if refuses {
			refused |= 1 << gate
		}
	}
	status := f.Device.OperationalStatus
	custody := !force && (status == facts.OperationalStatusDelegated || status == facts.OperationalStatusPendingHandover)
	class := f.Device.DeviceClass
	no(0, class != facts.DeviceClassGpuCompute && class != facts.DeviceClassCpuBaremetal && class != facts.DeviceClassCpuHypervisor)
	no(1, f.Site.EngagementMode == facts.EngagementModeSelfManaged)
	no(2, cordon && (f.Site.EngagementMode != facts.EngagementModeFullyManaged || !f.Site.TraitBased))
	no(3, !custody && (status == facts.OperationalStatusDelegated || status == facts.OperationalStatusPendingHandover || status == facts.OperationalStatusDrained))
	no(4, !custody && !f.Device.InfrastructureRef.Known)
	no(5, !custody && !cordon && f.Device.InventoryStatus != facts.InventoryStatusActive)
	no(6, !custody && !cordon && f.Enrollment.Proof != facts.ProofStateValid)
	no(7, !force && !cordon && !custody && f.Ironic.InstanceBound != facts.False && f.Ironic.LesseeRole != facts.IronicLesseeRoleSlurm && f.Ironic.OurMark != facts.True)
	no(8, force && (f.Site.EngagementMode != facts.EngagementModeFullyManaged || !f.Site.TraitBased || !f.Site.ForceReclaimEnabled))
	theirs := f.Ironic.ProvisionState == facts.ProvisionStateActive && f.Ironic.InstanceBound == facts.True && f.Ironic.OurMark == facts.False &&
		f.Ironic.LesseeRole != 0 && f.Ironic.LesseeRole != facts.IronicLesseeRoleSlurm
	cordoned := r.Conditions.Present&customerReady != 0 && (r.Conditions.True|r.Conditions.Unknown)&customerReady == 0
	no(9, force && f.Ironic.InstanceBound != facts.False && (!theirs || status != facts.OperationalStatusInUse && !cordoned))
	ours := f.Ironic.ProvisionState == facts.ProvisionStateActive && f.Ironic.InstanceBound == facts.True &&
		(f.Ironic.LesseeRole == facts.IronicLesseeRoleSlurm || f.Ironic.OurMark == facts.True)
	no(10, f.Site.EngagementMode == facts.EngagementModeFullyManaged && !cordon && !custody && !f.Site.HasImaging && !ours)
	return refused
}

var submissions = []struct {
	name          string
	force, cordon bool
}{{"plain", false, false}, {"force", true, false}, {"cordon", false, true}}

// The policy by hand refuses what the compiled one refuses, or the race of the
// two would be between strangers.
func TestAdmissionByHandAgrees(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	ready, _ := b.Type("CustomerReady")
	for _, s := range submissions {
		fleet := admissionFleet(b, 2000, map[string]any{"force_reclaim": s.force, "cordon_only": s.cordon})
		refusals := 0
		for i := range fleet {
			var got uint
			for _, refusal := range b.Admit("move_to_test_cluster", &fleet[i]) {
				for at, g := range b.eligibility["move_to_test_cluster"].gates {
					if g.name == refusal.Name {
						got |= 1 << at
						refusals++
					}
				}
			}
			if want := admitByHand(&fleet[i], 1<<ready.Bit, s.force, s.cordon); got != want {
				t.Fatalf("%s: refused by gates %b, by hand %b: %+v", s.name, got, want, fleet[i].Facts)
			}
		}
		if refusals == 0 && s.name != "cordon" {
			t.Errorf("%s: nobody is refused", s.name)
		}
	}
}

// A device that passes costs no allocation, however it is asked for.
func TestAdmittingAllocatesNothing(t *testing.T) {
	b := shippedBundle(t)
	parameters := map[string]any{"force_reclaim": false, "cordon_only": true}
	r := &admissionFleet(b, 1, parameters)[0]
	admission := b.Admission("move_to_test_cluster", parameters)
	if refused := admission.Admit(r); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	for name, ask := range map[string]func() []Refusal{
		"once ready": func() []Refusal { return admission.Admit(r) },
		"on its own": func() []Refusal { return b.Admit("move_to_test_cluster", r) },
	} {
		if allocated := testing.AllocsPerRun(100, func() { sink += uint64(len(ask())) }); allocated > 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// A submission for 10,000 devices, with every refusal told; those that pass
// alone; and the policy by hand, which tells nothing but yes or no.
func BenchmarkAdmitFleet(bench *testing.B) {
	b := shippedBundle(bench)
	ready, _ := b.Type("CustomerReady")
	const size = 10_000
	perDevice := func(bench *testing.B) {
		bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N)/size, "ns/device")
	}
	for _, s := range submissions {
		parameters := map[string]any{"force_reclaim": s.force, "cordon_only": s.cordon}
		fleet := admissionFleet(b, size, parameters)
		passing := make([]AdmitRequest, 0, size)
		for i := 0; len(passing) < size; i = (i + 1) % size {
			if admitByHand(&fleet[i], 1<<ready.Bit, s.force, s.cordon) == 0 {
				passing = append(passing, fleet[i])
			}
		}
		bench.Run(s.name+"/every refusal", func(bench *testing.B) {
			for bench.Loop() {
				admission := b.Admission("move_to_test_cluster", parameters)
				for i := range fleet {
					sink += uint64(len(admission.Admit(&fleet[i])))
				}
			}
			perDevice(bench)
		})
		bench.Run(s.name+"/passing", func(bench *testing.B) {
			bench.ReportAllocs()
			for bench.Loop() {
				admission := b.Admission("move_to_test_cluster", parameters)
				for i := range passing {
					sink += uint64(len(admission.Admit(&passing[i])))
				}
			}
			perDevice(bench)
		})
		bench.Run(s.name+"/by hand", func(bench *testing.B) {
			for bench.Loop() {
				for i := range passing {
					sink += uint64(admitByHand(&passing[i], 1<<ready.Bit, s.force, s.cordon))
				}
			}
			perDevice(bench)
		})
	}
}
