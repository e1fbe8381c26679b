package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/facts"
)

// population makes devices of which one in so many is not like the others.
func population(n, oneIn int) ([]facts.Facts, []facts.Codes) {
	random := rand.New(rand.NewPCG(1, 2))
	fs, cs := make([]facts.Facts, n), make([]facts.Codes, n)
	for i := range fs {
		f := &fs[i]
		f.Device.DeviceClass, f.Device.InventoryStatus = facts.DeviceClassGpuCompute, facts.InventoryStatusActive
		f.Device.OperationalStatus, f.Device.HealthStatus = facts.OperationalStatusInUse, facts.HealthStatusHealthy
		f.Device.InfrastructureRef = facts.TextOf("6f9a")
		f.Device.BMCAddress = facts.TextOf("10.0.0.1")
		f.Site = facts.Site{Name: "ams1", EngagementMode: facts.EngagementModeFullyManaged, TraitBased: true, PlacementEnabled: true, HasIronic: true, HasSlurm: true, HasBMC: true}
		f.Enrollment.Proof = facts.ProofStateValid
		f.Ironic = facts.Ironic{
			Listed: facts.True, ProvisionState: facts.ProvisionStateActive, Maintenance: facts.False, InstanceBound: facts.True,
			OurMark: facts.False, LesseeRole: 5, CustomerTrait: facts.True,
		}
		f.Placement = facts.Placement{ProviderExists: facts.True, Allocated: facts.True}
		idle, _ := facts.SlurmToken("IDLE")
		f.Slurm = facts.Slurm{Listed: facts.True, States: idle}
		f.BMC = facts.BMC{Failures: 1, ChassisHealth: 1, Processors: 1, Memory: 1, Storage: 1, NetworkAdapters: 1, PowerSupplies: 1, Thermal: 1, Gpus: 1, Fpgas: 1}
		if random.IntN(oneIn) == 0 {
			f.Ironic.ProvisionState = facts.ProvisionState(random.IntN(33))
			f.Ironic.Maintenance = facts.Bool(random.IntN(3))
			f.Ironic.InstanceBound = facts.Bool(random.IntN(3))
			f.Ironic.LesseeRole = facts.IronicLesseeRole(random.IntN(6))
			f.Slurm.States = 1 << random.IntN(34)
			f.BMC.Gpus = facts.RedfishHealth(random.IntN(4))
		}
		f.Intern(&cs[i])
	}
	return fs, cs
}

const (
	benchDevices = 2048
	fewDiffer    = 50 // a site on a usual day
	manyDiffer   = 5  // a bad one
)

// BenchmarkObserve judges one device by every emission of the two writers that
// feed the operational status, and the same written by hand in Go.
func BenchmarkObserve(b *testing.B) {
	bundle := shippedBundle(b)
	openstack, slurm := bundle.WriterIndex("openstack"), bundle.WriterIndex("slurm")
	blocking := handBlocking()
	for name, oneIn := range map[string]int{"few differ": fewDiffer, "many differ": manyDiffer} {
		fs, cs := population(benchDevices, oneIn)
		b.Run(name+"/compiled", func(b *testing.B) {
			var one, two Observed
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := i % benchDevices
				bundle.Observe(openstack, &fs[k], &cs[k], &one)
				bundle.Observe(slurm, &fs[k], &cs[k], &two)
			}
		})
		b.Run(name+"/by hand", func(b *testing.B) {
			var out Observed
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				observeByHand(&fs[i%benchDevices], blocking, &out)
			}
		})
	}
}

func BenchmarkObserveHealth(b *testing.B) {
	bundle := shippedBundle(b)
	fs, cs := population(benchDevices, fewDiffer)
	writer := bundle.WriterIndex("health-status")
	var out Observed
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := i % benchDevices
		bundle.Observe(writer, &fs[k], &cs[k], &out)
	}
}

func BenchmarkIntern(b *testing.B) {
	fs, _ := population(benchDevices, fewDiffer)
	var c facts.Codes
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		fs[i%benchDevices].Intern(&c)
	}
}

func BenchmarkAdmit(b *testing.B) {
	bundle := shippedBundle(b)
	fs, cs := population(benchDevices, fewDiffer)
	r := &AdmitRequest{Parameters: map[string]any{"force_reclaim": false, "cordon_only": true}}
	admission := bundle.Admission("move_to_test_cluster", r.Parameters)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := i % benchDevices
		r.Facts, r.Codes = &fs[k], &cs[k]
		admission.Admit(r)
	}
}

// handBlocking lists the tokens that forbid work, in the order in which the
// policy tells them.
func handBlocking() []facts.SlurmStates {
	var blocking []facts.SlurmStates
	for _, name := range []string{
		"DOWN", "ERROR", "FUTURE", "EXTERNAL", "DRAIN", "FAIL", "BLOCKED", "NOT_RESPONDING", "MAINTENANCE", "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN",
		"POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "POWER_DRAIN", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED",
	} {
		token, _ := facts.SlurmToken(name)
		blocking = append(blocking, token)
	}
	return blocking
}

// observeByHand is what an engineer would write for the ten types, with the
// index of the rung as the engine gives it. The bits are 0 to 9.
func observeByHand(f *facts.Facts, blocking []facts.SlurmStates, out *Observed) {
	var yes, unknown, notRead uint64
	n := &f.Ironic
	put := func(bit uint8, rung int16, status observationStatus) {
		out.Rung[bit] = rung
		switch status {
		case statusTrue:
			yes |= 1 << bit
		case statusUnknown:
			unknown |= 1 << bit
		case statusNotRead:
			notRead |= 1 << bit
		}
	}
	state := func(bit uint8, hit func(facts.ProvisionState) bool, then, otherwise observationStatus) {
		switch {
		case n.Listed == facts.False:
			put(bit, 0, statusUnknown)
		case n.Unmodelled:
			put(bit, 1, statusNotRead)
		case n.ProvisionState.Null():
			put(bit, 2, statusNotRead)
		case hit(n.ProvisionState):
			put(bit, 3, then)
		default:
			put(bit, 4, otherwise)
		}
	}
	state(0, func(s facts.ProvisionState) bool {
		switch s {
		case facts.ProvisionStateDeployFailed, facts.ProvisionStateCleanFailed, facts.ProvisionStateInspectFailed, facts.ProvisionStateRescueFailed,
			facts.ProvisionStateUnrescueFailed, facts.ProvisionStateAdoptFailed, facts.ProvisionStateServiceFailed, facts.ProvisionStateError:
			return true
		}
		return false
	}, statusTrue, statusFalse)
	state(1, func(s facts.ProvisionState) bool {
		switch s {
		case facts.ProvisionStateEnroll, facts.ProvisionStateVerifying, facts.ProvisionStateManageable, facts.ProvisionStateInspecting, facts.ProvisionStateInspectWait, facts.ProvisionStateAdopting:
			return true
		}
		return false
	}, statusFalse, statusTrue)
	state(2, func(s facts.ProvisionState) bool { return s == facts.ProvisionStateAvailable }, statusTrue, statusFalse)
	switch {
	case n.Listed == facts.False:
		put(3, 0, statusUnknown)
	case n.Maintenance == facts.Null:
		put(3, 1, statusNotRead)
	case n.Maintenance == facts.True && n.Fault.Known:
		put(3, 2, statusTrue)
	case n.Maintenance == facts.True:
		put(3, 3, statusTrue)
	default:
		put(3, 4, statusFalse)
	}
	switch {
	case n.Listed == facts.False:
		put(4, 0, statusUnknown)
	case n.InstanceBound == facts.True:
		put(4, 1, statusTrue)
	case f.Site.PlacementEnabled && f.Placement.Allocated == facts.True:
		put(4, 2, statusTrue)
	case n.InstanceBound == facts.Null:
		put(4, 3, statusNotRead)
	case f.Site.PlacementEnabled && f.Placement.Allocated == facts.Null:
		put(4, 4, statusNotRead)
	default:
		put(4, 5, statusFalse)
	}
	under := n.ProvisionState == facts.ProvisionStateDeploying || n.ProvisionState == facts.ProvisionStateWaitCallback || n.ProvisionState == facts.ProvisionStateActive
	switch {
	case n.Listed == facts.False:
		put(5, 0, statusUnknown)
	case n.LesseeRole == 3:
		put(5, 1, statusTrue)
	case !f.Site.PlacementEnabled && n.InstanceBound == facts.True && n.OurMark == facts.True && under:
		put(5, 2, statusTrue)
	case n.LesseeRole == 0:
		put(5, 3, statusNotRead)
	case !f.Site.PlacementEnabled && (n.InstanceBound == facts.Null || n.InstanceBound == facts.True && (n.OurMark == facts.Null || n.OurMark == facts.True && n.ProvisionState.Null())):
		put(5, 4, statusNotRead)
	default:
		put(5, 5, statusFalse)
	}
	switch {
	case n.Listed == facts.False:
		put(6, 0, statusUnknown)
	case n.LesseeRole == 0:
		put(6, 1, statusNotRead)
	case n.LesseeRole == 4:
		put(6, 2, statusTrue)
	default:
		put(6, 3, statusFalse)
	}
	switch {
	case n.Listed == facts.False:
		put(7, 0, statusUnknown)
	case f.Site.EngagementMode == facts.EngagementModeMetalDelegated || f.Site.EngagementMode == facts.EngagementModeSelfManaged:
		put(7, 1, statusFalse)
	case f.Site.TraitBased && n.CustomerTrait == facts.Null:
		put(7, 2, statusNotRead)
	case f.Site.TraitBased && n.CustomerTrait == facts.True:
		put(7, 3, statusTrue)
	case f.Site.TraitBased:
		put(7, 4, statusFalse)
	case n.LesseeRole == 0:
		put(7, 5, statusNotRead)
	case n.LesseeRole >= 2 && n.LesseeRole <= 4:
		put(7, 6, statusFalse)
	default:
		put(7, 7, statusTrue)
	}
	switch f.Slurm.Listed {
	case facts.Null:
		put(8, 0, statusNotRead)
	case facts.True:
		put(8, 1, statusTrue)
	default:
		put(8, 2, statusFalse)
	}
	schedulableByHand(&f.Slurm, blocking, put)
	out.True, out.Unknown, out.NotRead = yes, unknown, notRead
}

func schedulableByHand(s *facts.Slurm, blocking []facts.SlurmStates, put func(uint8, int16, observationStatus)) {
	switch s.Listed {
	case facts.Null:
		put(9, 0, statusNotRead)
		return
	case facts.False:
		put(9, 1, statusUnknown)
		return
	}
	for i, token := range blocking {
		if s.States.Has(token) {
			put(9, int16(2+i), statusFalse)
			return
		}
	}
	next := int16(2 + len(blocking))
	switch {
	case s.States&(1<<1|1<<0) != 0: // UNKNOWN, INVALID
		put(9, next, statusNotRead)
	case s.Unmodelled:
		put(9, next+1, statusNotRead)
	case s.States&(1<<3|1<<4|1<<6) != 0: // IDLE, ALLOCATED, MIXED
		put(9, next+2, statusTrue)
	default:
		put(9, next+3, statusNotRead)
	}
}

// handBits are the types of observeByHand by bit.
var handBits = []string{"ProvisionFailed", "Enrolled", "ProvisionAvailable", "Maintenance", "InstanceAllocated", "ValidationAllocated", "MaintenancePool", "CustomerReady", "SlurmMember", "SlurmSchedulable"}

// The hand-written judgements that the benchmark compares with are the shipped
// policy's own.
func TestObserveEqualsTheHandWrittenLadders(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	fs, cs := population(20_000, 5)
	openstack, slurm := b.WriterIndex("openstack"), b.WriterIndex("slurm")
	blocking := handBlocking()
	var got, want Observed
	for i := range fs {
		b.Observe(openstack, &fs[i], &cs[i], &got)
		first := got
		b.Observe(slurm, &fs[i], &cs[i], &got)
		observeByHand(&fs[i], blocking, &want)
		for bit, name := range handBits {
			kind, _ := b.Type(name)
			o := &first
			if kind.Writers[0] == "slurm" {
				o = &got
			}
			if status, hand := statusIn(o, kind.Bit), statusIn(&want, uint8(bit)); status != hand || o.Rung[kind.Bit] != want.Rung[bit] {
				t.Fatalf("%s: engine %s by rung %d, by hand %s by %d; %+v", name, status, o.Rung[kind.Bit], hand, want.Rung[bit], fs[i])
			}
		}
	}
}

func TestJudgingAllocatesNothing(t *testing.T) {
	b := shippedBundle(t)
	fs, cs := population(64, fewDiffer)
	var out Observed
	r := &AdmitRequest{Facts: &fs[0], Codes: &cs[0], Parameters: map[string]any{"force_reclaim": false, "cordon_only": true}}
	if refused := b.Admit("move_to_test_cluster", r); len(refused) > 0 {
		t.Fatalf("the device is to pass: %+v", refused)
	}
	for name, judge := range map[string]func(i int){
		"intern": func(i int) { fs[i].Intern(&cs[i]) },
		"observe": func(i int) {
			for w := range b.Writers() {
				b.Observe(w, &fs[i], &cs[i], &out)
			}
		},
		"scope": func(i int) {
			for w := range b.Writers() {
				b.InScope(w, &fs[i], &cs[i], Masks{True: 1, Present: 1})
			}
		},
		"health":         func(i int) { b.Health(&fs[i], &cs[i]) },
		"freeze":         func(i int) { b.Frozen(&fs[i], &cs[i]) },
		"customer-ready": func(i int) { b.CustomerReady(&fs[i], &cs[i]) },
		"inventory":      func(i int) { b.Inventory("netbox", &fs[i], &cs[i]) },
		"admit":          func(int) { b.Admit("move_to_test_cluster", r) },
	} {
		i := 0
		if got := testing.AllocsPerRun(200, func() { judge(i % 64); i++ }); got != 0 {
			t.Errorf("%s allocates %v times", name, got)
		}
	}
}
