package devices_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// said is one reading of a source at an instant of its own.
type said struct {
	source string
	at     int
	facts  facts.Facts
	gone   bool
}

// GoString keeps a failure readable.
func (s said) GoString() string {
	return fmt.Sprintf("%s@%d gone=%v %s %v", s.source, s.at, s.gone, s.facts.Ironic.ProvisionState, s.facts.Slurm.States.Tokens())
}

func anyReading(t *rapid.T, at int) said {
	if rapid.Bool().Draw(t, "slurm") {
		if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
			return said{source: "slurm", at: at, gone: true}
		}
		return said{source: "slurm", at: at, facts: slurm(facts.SlurmStates(1)<<rapid.IntRange(0, 33).Draw(t, "base") | facts.SlurmIdle)}
	}
	if rapid.IntRange(0, 6).Draw(t, "gone") == 0 {
		return said{source: "ironic", at: at, gone: true}
	}
	// Nothing is null: what is not read keeps its last value, and that is of before.
	changes := []func(*facts.Ironic){ready, maintenance, leased, cleanFailed, bound}
	var picked []func(*facts.Ironic)
	for _, c := range changes {
		if rapid.Bool().Draw(t, "change") {
			picked = append(picked, c)
		}
	}
	return said{source: "ironic", at: at, facts: node(picked...)}
}

// What is stored of a device is a function of the newest facts of each source:
// whatever came in between, in whatever order, and however often.
func TestTheOrderOfReadingsDoesNotMatter(t *testing.T) {
	w := newWorld(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		base := w.pass(time.Minute)
		var all []said
		for at := range rapid.IntRange(2, 6).Draw(t, "readings") {
			all = append(all, anyReading(t, at+1))
		}
		newest := map[string]said{}
		for _, s := range all {
			newest[s.source] = s
		}
		tangled := rapid.Permutation(append(slices.Clone(all), all[0])).Draw(t, "order")
		var straight []said
		for _, source := range []string{"ironic", "slurm"} {
			if s, ok := newest[source]; ok {
				straight = append(straight, s)
			}
		}
		one, other := fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n)
		ids := w.apply("ironic", born(w.say(one, node())), born(w.say(other, node()))).Born
		w.now.Store(base.Add(time.Minute).UnixNano())
		feed := func(id int64, ref string, readings []said) {
			for _, s := range readings {
				rd := w.say(ref, s.facts)
				rd.At, rd.Device, rd.Gone = base.Add(time.Duration(s.at)*time.Second), id, s.gone
				alone := w.batch(s.source, rd)
				alone.Epoch = 0 // each moves the instant of its facts; in a sweep the lease keeps order besides
				_, err := w.svc.Apply(w.ctx(), alone)
				must(w.t, err)
			}
		}
		feed(ids[0], one, tangled)
		feed(ids[1], other, straight)
		if a, b := w.effective(ids[0]), w.effective(ids[1]); !slices.Equal(a, b) {
			t.Fatalf("tangled: %v\nstraight: %v", a, b)
		}
		before := w.device(ids[0])
		feed(ids[0], one, tangled)
		if after := w.device(ids[0]); !after.UpdatedAt.Equal(before.UpdatedAt) {
			t.Fatal("the same again wrote the device")
		}
	})
}

// effective lists what a device counts as: every condition in scope, unread
// types, and, where nobody is held by values that never came, the status.
func (w *world) effective(id int64) []string {
	d := w.device(id)
	rows, err := store.ConditionsOf(w.ctx(), w.db, []int64{id})
	must(w.t, err)
	var all []string
	for _, c := range rows {
		if t, _ := w.bundle.Type(c.Type); d.InScope&^d.Unread>>t.Bit&1 == 1 {
			all = append(all, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	all = append(all, fmt.Sprintf("scope %x unread %x mirrors %s %v", d.InScope, d.Unread, d.IronicProvisionState, d.SlurmStates.Tokens()))
	if d.InScope&^d.Conditions.Present == 0 && d.Unread == 0 {
		all = append(all, d.Operational.String())
	}
	return all
}

// A listing that found a device unchanged wrote nothing of it but the watermark.
func TestAReadingFromBeforeTheWatermarkIsIgnored(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	between := w.pass(30 * time.Second)
	w.pass(30 * time.Second)
	if a := w.apply("ironic", w.say("n1", node(ready))); a.Unchanged != 1 {
		t.Fatalf("%+v", a)
	}
	w.finish("ironic")
	before := w.rowVersions()
	late := w.say("n1", node(ready, maintenance))
	late.At = between
	for _, epoch := range []int64{w.epoch, 0} {
		b := w.batch("ironic", late, fleet.Reading{Ref: "n1", Device: id, Gone: true, At: between}, born(fleet.Reading{Ref: "n2", Name: "n2", At: between, Facts: node()}))
		b.Epoch = epoch
		a, err := w.svc.Apply(w.ctx(), b)
		must(t, err)
		if a.Ignored != 3 || w.rowVersions() != before {
			t.Fatalf("%+v", a)
		}
	}
}

func TestTwoReplicasBearOneDevice(t *testing.T) {
	w := newWorld(t)
	var wait sync.WaitGroup
	results := make(chan devices.Applied, 4)
	for range 4 {
		wait.Go(func() {
			b := w.batch("ironic", born(w.say("n1", node())), born(w.say("n2", node())))
			a, err := w.service().Apply(w.ctx(), b)
			if err != nil {
				t.Error(err)
			}
			results <- a
		})
	}
	wait.Wait()
	close(results)
	births, refused := 0, 0
	for a := range results {
		births += len(a.Born)
		refused += len(a.Refused)
	}
	if births != 2 || refused != 6 {
		t.Fatalf("%d births, %d refused", births, refused)
	}
}

// A site whose inventory is a file, and whose nodes are Ironic's.
func fileAndIronic(s *fleet.SiteSpec) {
	s.Inventory = facts.InventorySourceFile
	s.Sources.Recorded = map[string]string{"file": "x", "ironic": "x", "slurm": "x"}
}

func TestANodeJoinsTheDeviceOfTheInventory(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	id := w.bearFromFile("n1")
	w.finish("ironic", "slurm")
	// A complete listing of Ironic without it: a device that ought to be there.
	w.apply("ironic", fleet.Reading{Device: id, Gone: true, At: w.clock()})
	w.wantStatus(id, "unknown", "no-infrastructure")
	w.wantCondition(id, "Enrolled", "Unknown NodeNotFound")
	if d := w.device(id); !d.AbsentSince.IsZero() || d.Inventory != facts.InventoryStatusActive {
		t.Fatal("Ironic is not the inventory, and ends nothing of it")
	}
	w.pass(time.Second)
	big := node(ready, func(i *facts.Ironic) { i.ResourceClass = facts.TextOf("gpu.big") })
	w.apply("ironic", joins(w.say("u1", big), id))
	w.wantStatus(id, "available", "customer-available")
	if d := w.device(id); d.InfrastructureRef != "u1" || d.ResourceClass != "gpu.big" || d.Name != "n1" {
		t.Fatalf("node %q, resource class %q, name %q", d.InfrastructureRef, d.ResourceClass, d.Name)
	}
	w.finish("file")
	var kind string
	must(t, w.db.QueryRow(w.ctx(), "select kind from source_findings where device_id = $1", id).Scan(&kind))
	if kind != fleet.FindingDifference {
		t.Fatalf("the finding is %s", kind)
	}
	// The node was deleted and enrolled anew: the listing has another ref of the same machine.
	w.pass(time.Second)
	w.apply("ironic", joins(w.say("u2", big), id))
	if d := w.device(id); d.InfrastructureRef != "u2" || d.Operational != facts.OperationalStatusAvailable {
		t.Fatalf("node %q, %s", d.InfrastructureRef, d.Operational)
	}
	if a := w.apply("ironic", w.say("u1", node())); len(a.Unknown) != 1 {
		t.Fatalf("the old ref still finds a device: %+v", a)
	}
}

func TestARefPassesOnWhenItsDeviceLosesItInTheSameBatch(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	one, other := w.bearFromFile("n1"), w.bearFromFile("n2")
	w.apply("ironic", joins(w.say("u1", node(ready)), one))
	w.pass(time.Second)
	if a := w.apply("ironic", joins(w.say("u1", node(ready)), other)); len(a.Refused) != 1 {
		t.Fatalf("a ref that is another's: %+v", a)
	}
	a := w.apply("ironic", fleet.Reading{Ref: "u1", Device: one, Gone: true, At: w.clock()}, joins(w.say("u1", node(ready)), other))
	if len(a.Refused) != 0 || a.Changed != 2 {
		t.Fatalf("%+v", a)
	}
	w.wantStatus(one, "unknown", "no-infrastructure")
	w.wantStatus(other, "available", "customer-available")
}

func TestHealthFollowsTheChassisWhileItIsRead(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	id := w.bear("n1", node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf("10.0.0.1") }))
	tell := func(change func(*facts.BMC)) {
		t.Helper()
		var f facts.Facts
		f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK, Processors: facts.RedfishHealthOK}
		change(&f.BMC)
		w.apply("bmc", joins(w.say("10.0.0.1", f), id))
	}
	want := func(health string, ready bool) {
		t.Helper()
		if d := w.device(id); d.Health.String() != health || d.CustomerReady != ready {
			t.Fatalf("health is %s, customer-ready %v, want %s and %v", d.Health, d.CustomerReady, health, ready)
		}
	}
	want("unknown", false)
	tell(func(*facts.BMC) {})
	want("healthy", true)
	w.finish("bmc")
	w.wantCondition(id, "ChassisHealthy", "True RedfishHealthOk")
	w.pass(time.Minute)
	tell(func(b *facts.BMC) { b.ChassisHealth = facts.RedfishHealthWarning })
	want("degraded", false)
	w.pass(time.Minute)
	tell(func(*facts.BMC) {})
	want("healthy", true)

	// The BMC falls silent: what it said last counts for as long as the policy holds it.
	w.pass(time.Minute)
	silent := w.clock()
	tell(func(b *facts.BMC) { b.Failures = facts.BMCFailures1 })
	want("healthy", true)
	for w.clock().Before(silent.Add(14 * time.Minute)) {
		w.pass(time.Minute)
		w.finish("bmc", "ironic", "slurm")
		w.project()
		want("healthy", true)
	}
	if due := w.device(id).DueAt; !due.Equal(silent.Add(15 * time.Minute)) {
		t.Fatalf("due at %v, want %v", due, silent.Add(15*time.Minute))
	}
	w.pass(time.Minute)
	w.finish("bmc", "ironic", "slurm")
	w.project()
	want("unknown", false)
	if p := w.project(); p.Rows != (devices.Rows{}) {
		t.Fatalf("again: %+v", p.Rows)
	}
}

func TestADeadRoundOfBMCsMakesHealthUnknownButForgivesNothing(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	bear := func(name, address string, health facts.RedfishHealth) int64 {
		id := w.bear(name, node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf(address) }))
		var f facts.Facts
		f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: health}
		w.apply("bmc", joins(w.say(address, f), id))
		return id
	}
	healthy, critical := bear("n1", "10.0.0.1", facts.RedfishHealthOK), bear("n2", "10.0.0.2", facts.RedfishHealthCritical)
	w.finish("bmc")
	w.project()
	w.pass(15 * time.Minute)
	w.finish("ironic", "slurm")
	w.project()
	if d := w.device(healthy); d.Health != facts.HealthStatusUnknown || d.CustomerReady {
		t.Errorf("the healthy one is %s", d.Health)
	}
	if d := w.device(critical); d.Health != facts.HealthStatusCritical {
		t.Errorf("the critical one is %s", d.Health)
	}
}
