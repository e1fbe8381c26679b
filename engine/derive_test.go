package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/facts"
)

// situation is a device as the device model speaks of it. Every type of both
// writers has a row and is False, where nothing else is said.
type situation struct {
	before  facts.OperationalStatus
	yes     []string // True
	unknown []string
	stale   []string
	noRow   []string
	past    []string // past the hold limit, and stale
	out     []string // out of scope
}

var (
	slurmTypes     = []string{"SlurmMember", "SlurmSchedulable"}
	openstackTypes = []string{"ProvisionFailed", "Maintenance", "Enrolled", "ProvisionAvailable", "InstanceAllocated", "ValidationAllocated", "MaintenancePool", "CustomerReady"}
)

func (s situation) standing(t *testing.T, b *Bundle) *Standing {
	t.Helper()
	mask := func(lists ...[]string) (mask uint64) {
		for _, name := range slices.Concat(lists...) {
			entry, ok := b.Type(name)
			if !ok {
				t.Fatalf("no condition type %s", name)
			}
			mask |= 1 << entry.Bit
		}
		return mask
	}
	all := mask(slurmTypes, openstackTypes)
	return &Standing{
		Masks:    Masks{True: mask(s.yes), Unknown: mask(s.unknown), Present: all &^ mask(s.noRow)},
		InScope:  all &^ mask(s.out),
		Stale:    mask(s.stale, s.past),
		PastHold: mask(s.past),
		Status:   s.before,
	}
}

func TestDeriveAsTheDeviceModelTells(t *testing.T) {
	t.Parallel()
	const (
		unknown    = facts.OperationalStatusUnknown
		quarantine = facts.OperationalStatusQuarantine
		validation = facts.OperationalStatusValidation
		available  = facts.OperationalStatusAvailable
		inUse      = facts.OperationalStatusInUse
		failed     = facts.OperationalStatusFailed
		drained    = facts.OperationalStatusDrained
	)
	validating := []string{"Enrolled", "ValidationAllocated"}
	idle := append(slices.Clone(validating), slurmTypes...)
	offered := []string{"Enrolled", "CustomerReady", "ProvisionAvailable"}
	occupied := []string{"Enrolled", "CustomerReady", "InstanceAllocated"}
	cases := map[string]struct {
		situation
		status facts.OperationalStatus
		rung   string
		hold   Hold
		fresh  bool
	}{
		"a node that burns in":                                    {situation{before: quarantine, yes: idle}, validation, "validation", Followed, true},
		"a customer's node":                                       {situation{before: available, yes: occupied}, inUse, "customer-in-use", Followed, true},
		"born, and nothing read yet":                              {situation{before: unknown, noRow: append(slices.Clone(openstackTypes), slurmTypes...)}, unknown, "no-infrastructure", Followed, false},
		"born, Ironic read, SLURM not":                            {situation{before: unknown, yes: validating, noRow: slurmTypes}, quarantine, "otherwise", Withheld, false},
		"and looked at again":                                     {situation{before: quarantine, yes: validating, noRow: slurmTypes}, quarantine, "validation", Held, false},
		"born at a site without SLURM":                            {situation{before: unknown, yes: validating, noRow: slurmTypes, out: slurmTypes}, validation, "validation", Followed, true},
		"born into the customer pool, SLURM dead":                 {situation{before: unknown, yes: offered, stale: slurmTypes}, available, "customer-available", Followed, true},
		"a scheduler outage leaves validation alone":              {situation{before: validation, yes: idle, stale: slurmTypes}, validation, "validation", Followed, false},
		"a drained node stays where it is while it lasts":         {situation{before: quarantine, yes: append(slices.Clone(validating), "SlurmMember"), stale: slurmTypes}, quarantine, "validation-unschedulable", Followed, false},
		"and is not promoted by what SLURM last said":             {situation{before: quarantine, yes: idle, stale: slurmTypes}, quarantine, "validation", Held, false},
		"a failed clean shows during a scheduler outage":          {situation{before: validation, yes: append([]string{"ProvisionFailed"}, idle...), stale: slurmTypes}, failed, "provision-failed", Followed, true},
		"and so does maintenance":                                 {situation{before: validation, yes: append([]string{"Maintenance"}, idle...), stale: slurmTypes}, quarantine, "maintenance", Followed, true},
		"an available node leased to SLURM stops being available": {situation{before: available, yes: validating, noRow: slurmTypes}, quarantine, "otherwise", Withheld, false},
		"a node whose lease left SLURM follows Ironic":            {situation{before: validation, yes: offered, stale: slurmTypes, out: slurmTypes}, available, "customer-available", Followed, true},
		"a lost trait ends the offer, whatever SLURM says":        {situation{before: available, yes: []string{"Enrolled", "ProvisionAvailable"}, stale: slurmTypes}, quarantine, "otherwise", Followed, true},
		"an Ironic outage turns nothing to unknown":               {situation{before: available, yes: offered, stale: openstackTypes}, available, "customer-available", Followed, false},
		"but past the hold limit it does":                         {situation{before: available, yes: offered, past: openstackTypes}, unknown, "customer-available", PastHold, false},
		"and stays so while nothing is read":                      {situation{before: unknown, yes: offered, past: openstackTypes}, unknown, "customer-available", PastHold, false},
		"and is offered again by fresh facts only":                {situation{before: unknown, yes: offered, stale: []string{"InstanceAllocated"}}, quarantine, "otherwise", Withheld, false},
		"a fresh customer is not hidden by a stale lease":         {situation{before: available, yes: occupied, stale: []string{"ValidationAllocated", "MaintenancePool"}}, inUse, "customer-in-use", Followed, true},
		"a stale instance offers the node to nobody":              {situation{before: inUse, yes: offered, stale: []string{"InstanceAllocated"}}, inUse, "customer-available", Held, false},
		"a node gone from a complete listing":                     {situation{before: inUse, unknown: openstackTypes, stale: slurmTypes}, unknown, "no-infrastructure", Followed, true},
		"an unread instance without a row":                        {situation{before: inUse, yes: offered, noRow: []string{"InstanceAllocated"}}, inUse, "otherwise", Held, false},
		"custody that ends follows the ladder":                    {situation{before: drained, yes: offered}, available, "customer-available", Followed, true},
		"and falls back where it may not promote":                 {situation{before: drained, yes: offered, stale: []string{"CustomerReady"}}, quarantine, "otherwise", Withheld, false},
		"a status that was never derived":                         {situation{yes: offered, stale: []string{"CustomerReady"}}, quarantine, "otherwise", Withheld, false},
		"otherwise, whatever is stale":                            {situation{before: quarantine, yes: []string{"Enrolled"}, stale: []string{"ProvisionAvailable"}}, quarantine, "otherwise", Followed, true},
		"otherwise, for want of a fresh lease":                    {situation{before: quarantine, yes: append([]string{"Enrolled"}, slurmTypes...), stale: []string{"ValidationAllocated"}}, quarantine, "otherwise", Followed, false},
	}
	b := shippedBundle(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.standing(t, b)
			v := b.Derive(s)
			if v.Status != c.status || b.RungName(v) != c.rung || v.Hold != c.hold {
				t.Errorf("%s by %s, %s; want %s by %s, %s", v.Status, b.RungName(v), v.Hold, c.status, c.rung, c.hold)
			}
			if fresh := b.StatusFresh(s, v); fresh != c.fresh {
				t.Errorf("fresh: %t", fresh)
			}
		})
	}
}

// shippedBits maps the bits of the oracle to those of the shipped catalogue.
func shippedBits(t testing.TB, b *Bundle) func(mask uint64) uint64 {
	to := map[uint64]uint64{}
	for bit, name := range bitNames {
		entry, ok := b.Type(name)
		if !ok {
			t.Fatalf("no condition type %s", name)
		}
		to[bit] = 1 << entry.Bit
	}
	return func(mask uint64) (mapped uint64) {
		for ; mask&allBits != 0; mask &^= mask & allBits & -(mask & allBits) {
			mapped |= to[mask&allBits&-(mask&allBits)]
		}
		return mapped
	}
}

// The properties of holds_test.go are of the device model's ladder; the shipped
// policy is that ladder, and what Derive makes of it is what the oracle says.
func TestShippedLadderIsTheDeviceModels(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	mapped := shippedBits(t, b)
	rng := rand.New(rand.NewPCG(11, 12))
	combinations(func(isTrue, unknown uint64) {
		s := Standing{Masks: Masks{True: isTrue, Unknown: unknown, Present: allBits}, InScope: allBits}
		s.Status = facts.OperationalStatus(1 + rng.IntN(9))
		if rng.IntN(2) == 0 {
			s.Stale, s.PastHold = rng.Uint64()&allBits, rng.Uint64()&rng.Uint64()&allBits
			s.Present, s.InScope = (rng.Uint64()|rng.Uint64())&allBits, (rng.Uint64()|rng.Uint64())&allBits
		}
		status, rung, hold := oracle(&s)
		own := Standing{
			Masks:    Masks{True: mapped(s.True), Unknown: mapped(s.Unknown), Present: mapped(s.Present)},
			InScope:  mapped(s.InScope),
			Stale:    mapped(s.Stale),
			PastHold: mapped(s.PastHold),
			Status:   s.Status,
		}
		v := b.Derive(&own)
		if v.Status != status || v.Rung != rung || v.Hold != hold {
			t.Fatalf("%s\ngives %s by %s (%s), want %s by rung %d (%s)", spell(&s), v.Status, b.RungName(v), v.Hold, status, rung, hold)
		}
		if info := b.OperationalRung(v.Rung); info.Tests != mapped(rungTests[rung]) || info.Tolerates != mapped(rungTolerates[rung]) {
			t.Fatalf("rung %s tests %x and tolerates %x", info.Name, info.Tests, info.Tolerates)
		}
	})
}

func TestExplainStatusAgrees(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	mapped := shippedBits(t, b)
	rng := rand.New(rand.NewPCG(13, 14))
	for range propertyCases(t, 4000) {
		s := Standing{Status: facts.OperationalStatus(rng.IntN(10))}
		s.Unknown = mapped(rng.Uint64() & rng.Uint64())
		s.True, s.Present, s.InScope = mapped(rng.Uint64())&^s.Unknown, mapped(rng.Uint64()|rng.Uint64()), mapped(rng.Uint64()|rng.Uint64())
		s.Stale, s.PastHold = mapped(rng.Uint64()&rng.Uint64()), mapped(rng.Uint64()&rng.Uint64()&rng.Uint64())
		v, trace := b.Derive(&s), b.ExplainStatus(&s)
		if trace.Verdict != v || trace.Outcome != v.Status.String() || trace.Rung != b.RungName(v) || trace.Held != (v.Hold == Held) || trace.Fresh != b.StatusFresh(&s, v) {
			t.Fatalf("%+v\nexplained as %+v", v, trace)
		}
		if (trace.HeldWhy != "") != (v.Hold != Followed) || trace.Held && !strings.Contains(trace.HeldWhy, "would be right with") {
			t.Fatalf("%s, and why: %q", v.Hold, trace.HeldWhy)
		}
		if trace.Pos == "-" || trace.Pos == "" {
			t.Fatalf("rung %s is nowhere", trace.Rung)
		}
		for i, step := range trace.Steps {
			switch {
			case step.Skipped:
			case step.Matched && v.Hold != Withheld && step.Rung != trace.Rung:
				t.Fatalf("step %s matched, the rung is %s", step.Rung, trace.Rung)
			case !step.Matched && i < len(trace.Steps)-1 && (step.Failed == nil || step.Failed.Actual == step.Failed.Want || step.Failed.Pos == "-"):
				t.Fatalf("step %s did not match, and no test says why: %+v", step.Rung, step.Failed)
			}
		}
	}
}

func TestExplainStatusSaysWhatHolds(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	cases := map[string]struct {
		situation
		why string
	}{
		"stale scheduler": {
			situation{before: facts.OperationalStatusQuarantine, yes: []string{"Enrolled", "ValidationAllocated", "SlurmMember", "SlurmSchedulable"}, stale: slurmTypes},
			"rung validation would make it validation, but it rests on what is stale: SlurmMember, SlurmSchedulable; quarantine stands, which would be right with SlurmSchedulable False (rung validation-unschedulable)",
		},
		"no row yet": {
			situation{before: facts.OperationalStatusInUse, yes: []string{"Enrolled", "CustomerReady", "ProvisionAvailable"}, noRow: []string{"InstanceAllocated"}},
			"rung otherwise would make it quarantine, but a type in scope has no row yet, and with InstanceAllocated False rung customer-available would match; in_use stands, which would be right with InstanceAllocated True (rung customer-in-use)",
		},
		"newly leased": {
			situation{before: facts.OperationalStatusAvailable, yes: []string{"Enrolled", "ValidationAllocated"}, noRow: slurmTypes},
			"rung validation would make it validation, but it rests on what is stale: SlurmMember, SlurmSchedulable; no value of what is stale gives available, so otherwise stands in",
		},
		"long outage": {
			situation{before: facts.OperationalStatusInUse, yes: []string{"Enrolled", "CustomerReady", "InstanceAllocated"}, past: []string{"InstanceAllocated"}},
			"rung customer-in-use tests InstanceAllocated (limit 24h0m0s), stale for longer than the hold limit: what rests on that is unknown",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := b.ExplainStatus(c.standing(t, b)).HeldWhy; got != c.why {
				t.Errorf("got:  %s\nwant: %s", got, c.why)
			}
		})
	}
}

func TestExplainStatusShowsLastValues(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	s := situation{before: facts.OperationalStatusQuarantine, yes: []string{"Enrolled", "ValidationAllocated"}, stale: []string{"Maintenance"}, noRow: slurmTypes}
	trace := b.ExplainStatus(s.standing(t, b))
	actual := map[string]string{}
	for _, step := range trace.Steps {
		for _, test := range step.Tests {
			actual[strings.TrimPrefix(test.Path, "conditions.")] = test.Actual
		}
	}
	for name, want := range map[string]string{"Maintenance": "False (stale)", "SlurmMember": "Unknown (no row)", "Enrolled": "True", "ProvisionFailed": "False"} {
		if actual[name] != want {
			t.Errorf("%s is %q, want %q", name, actual[name], want)
		}
	}
	if !slices.Equal(trace.NoRow, slurmTypes) || !slices.Equal(trace.Stale, append([]string{"Maintenance"}, slurmTypes...)) {
		t.Errorf("stale %v, without a row %v", trace.Stale, trace.NoRow)
	}
}

func TestWithoutARowTheCatalogueSpeaks(t *testing.T) {
	t.Parallel()
	const absentFalse = bitMaintenance | bitMaintenancePool | bitSlurmMember
	b := modelBundleOf(t, deviceModel(), facts.OperationalStatusQuarantine, absentFalse, 0)
	rng := rand.New(rand.NewPCG(17, 18))
	for range propertyCases(t, 20_000) {
		s := Standing{Masks: Masks{True: rng.Uint64(), Unknown: rng.Uint64(), Present: rng.Uint64() | rng.Uint64()}}
		if rng.IntN(2) == 0 {
			s.InScope, s.Stale = allBits&s.Present, bitMaintenancePool
		}
		s.Status = facts.OperationalStatusInUse
		// The same with a row for everything, each bit in one mask at most.
		unknown := s.Unknown&s.Present | allBits&^absentFalse&^s.Present
		plain := Standing{Masks: Masks{True: s.True & s.Present &^ unknown, Unknown: unknown, Present: ^uint64(0)}, InScope: s.InScope, Stale: s.Stale, Status: s.Status}
		if got, want := b.Derive(&s), b.Derive(&plain); got != want {
			t.Fatalf("%s\ngives %+v, want %+v", spell(&s), got, want)
		}
	}
}

func TestDurableTypesAreNeverStale(t *testing.T) {
	t.Parallel()
	b := modelBundleOf(t, deviceModel(), facts.OperationalStatusQuarantine, bitMaintenancePool, bitMaintenancePool)
	s := Standing{Masks: Masks{True: bitEnrolled | bitCustomerReady | bitProvisionAvailable, Present: allBits &^ bitMaintenancePool}, InScope: allBits, Stale: bitMaintenancePool, PastHold: bitMaintenancePool}
	if v := b.Derive(&s); v.Status != facts.OperationalStatusAvailable || v.Hold != Followed || !b.StatusFresh(&s, v) {
		t.Errorf("%+v", v)
	}
}

func TestDeriveAllocatesNothing(t *testing.T) {
	b := shippedBundle(t)
	offered := []string{"Enrolled", "CustomerReady", "ProvisionAvailable"}
	for name, s := range map[string]situation{
		"fresh": {before: facts.OperationalStatusUnknown, yes: offered},
		"held":  {before: facts.OperationalStatusInUse, yes: offered, noRow: []string{"InstanceAllocated"}, stale: slurmTypes},
	} {
		standing := s.standing(t, b)
		if n := testing.AllocsPerRun(100, func() { sink += uint64(b.Derive(standing).Status) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestOtherwiseMayNotPromote(t *testing.T) {
	t.Parallel()
	_, err := newDerivation(&Ladder{}, []facts.OperationalStatus{facts.OperationalStatusAvailable}, 0, 0)
	if err == nil || !strings.Contains(err.Error(), "otherwise gives available") {
		t.Errorf("error: %v", err)
	}
}

// A ladder over more conditions than a table takes, with alternatives.
func TestWideLadderDerives(t *testing.T) {
	t.Parallel()
	const conditions = 16
	alternative := func(bit int) *pattern {
		test := leaf{path: "conditions.C", tri: triTrue, bit: uint8(bit), cube: triCube(uint8(bit), triTrue)}
		return &pattern{tests: []leaf{test}, cubes: cubes{test.cube}}
	}
	l := &Ladder{Conditions: 1<<conditions - 1}
	gives := []facts.OperationalStatus{}
	for i := 0; i < conditions; i += 2 {
		p := &pattern{any: []*pattern{alternative(i), alternative(i + 1)}}
		p.cubes = cubes{p.any[0].cubes[0], p.any[1].cubes[0]}
		l.Rungs = append(l.Rungs, Rung{Name: "pair", Tests: 3 << i, pattern: p})
		gives = append(gives, facts.OperationalStatus(1+i%4))
	}
	l.build(&compiler{})
	gives = append(gives, facts.OperationalStatusQuarantine)
	d, err := newDerivation(l, gives, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if l.table != nil {
		t.Fatal("the ladder is not wide")
	}
	b := &Bundle{operational: l, operationalGives: gives, derivation: d}
	rng := rand.New(rand.NewPCG(15, 16))
	for range 2000 {
		s := Standing{Masks: Masks{Present: 1<<conditions - 1, True: rng.Uint64() & rng.Uint64() & rng.Uint64()}}
		want := l.scan(&input{yes: s.True & s.Present})
		v := b.Derive(&s)
		if int(v.Rung) != want || v.Status != gives[want] {
			t.Fatalf("true %x: rung %d, want %d", s.True, v.Rung, want)
		}
		if low := s.True & s.Present & -(s.True & s.Present); v.Decisive != low {
			t.Fatalf("true %x: %x is decisive, want the first alternative that matches", s.True, v.Decisive)
		}
	}
}
