package engine

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

// randomDevice draws facts with every finite field set, at random.
func randomDevice(t *rapid.T) *facts.Facts {
	f := &facts.Facts{}
	f.Device.DeviceClass = facts.DeviceClass(rapid.IntRange(1, 7).Draw(t, "class"))
	f.Device.InventoryStatus = facts.InventoryStatus(rapid.IntRange(1, 10).Draw(t, "inventory"))
	f.Device.OperationalStatus = facts.OperationalStatus(rapid.IntRange(1, 9).Draw(t, "status"))
	f.Device.HealthStatus = facts.HealthStatus(rapid.IntRange(1, 4).Draw(t, "health"))
	f.Device.InTriage = rapid.IntRange(0, 5).Draw(t, "triage") == 0
	f.Device.ImpairmentHold = rapid.IntRange(0, 5).Draw(t, "hold") == 0
	f.Device.BMCAddress = facts.Text{Value: "10.0.0.1", Known: rapid.Bool().Draw(t, "bmc")}
	f.Device.InfrastructureRef = facts.Text{Value: "node", Known: rapid.Bool().Draw(t, "ref")}
	f.Enrollment.Proof = facts.ProofState(rapid.IntRange(1, 3).Draw(t, "proof"))
	f.Site.EngagementMode = facts.EngagementMode(rapid.IntRange(1, 4).Draw(t, "mode"))
	f.Site.PlacementEnabled = rapid.Bool().Draw(t, "placement")
	f.Site.TraitBased = rapid.Bool().Draw(t, "traits")
	f.Site.ForceReclaimEnabled = rapid.Bool().Draw(t, "force")
	f.Site.HasIronic, f.Site.HasSlurm, f.Site.HasBMC = rapid.Bool().Draw(t, "ironic"), rapid.Bool().Draw(t, "slurm"), rapid.Bool().Draw(t, "polled")
	tri := func(name string) facts.Bool { return facts.Bool(rapid.IntRange(0, 2).Draw(t, name)) }
	f.Ironic.Listed, f.Ironic.Maintenance, f.Ironic.InstanceBound = tri("listed"), tri("maintenance"), tri("bound")
	f.Ironic.OurMark, f.Ironic.CustomerTrait = tri("mark"), tri("trait")
	f.Ironic.ProvisionState = facts.ProvisionState(rapid.IntRange(0, 32).Draw(t, "state"))
	f.Ironic.LesseeRole = facts.IronicLesseeRole(rapid.IntRange(0, 5).Draw(t, "lessee"))
	f.Ironic.Fault = facts.Text{Value: "power failure", Known: rapid.Bool().Draw(t, "fault")}
	f.Ironic.LastError = facts.TextOf("no image")
	f.Placement.Allocated = tri("allocated")
	f.Slurm.Listed = tri("in slurm")
	f.Slurm.States = facts.SlurmStates(rapid.Uint64Range(0, 1<<34-1).Draw(t, "states")) & facts.SlurmStates(rapid.Uint64Range(0, 1<<34-1).Draw(t, "fewer"))
	f.BMC.Failures = facts.BMCFailures(rapid.IntRange(0, 4).Draw(t, "failures"))
	f.BMC.ChassisHealth = facts.RedfishHealth(rapid.IntRange(0, 3).Draw(t, "chassis"))
	f.BMC.Gpus = facts.RedfishHealth(rapid.IntRange(0, 3).Draw(t, "gpus"))
	return f
}

func randomMasks(t *rapid.T) Masks {
	m := Masks{Present: rapid.Uint64().Draw(t, "present")}
	m.True = rapid.Uint64().Draw(t, "true")
	m.Unknown = rapid.Uint64().Draw(t, "unknown") &^ m.True
	return m
}

// The explain twins name the rung that the fast path took, on every device, and
// tell for each rung above it a test that failed, with what the device has.
func TestExplainAgreesWithTheFastPath(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	rapid.Check(t, func(t *rapid.T) {
		f, m := randomDevice(t), randomMasks(t)
		var c facts.Codes
		f.Intern(&c)
		for i, w := range b.Writers() {
			if w.Scope == nil {
				continue
			}
			var o Observed
			b.Observe(i, f, &c, &o)
			for _, kind := range b.Catalogue() {
				if w.Emits>>kind.Bit&1 == 0 {
					continue
				}
				trace, ok := b.ExplainCondition(kind.Name, f)
				if want := kind.Emission.RungName(int(o.Rung[kind.Bit])); !ok || trace.Rung != want || trace.Outcome != statusIn(&o, kind.Bit) {
					t.Fatalf("%s: observed %s by %s, explained %s by %s", kind.Name, statusIn(&o, kind.Bit), want, trace.Outcome, trace.Rung)
				}
				checkTrace(t, trace)
			}
			trace, _ := b.ExplainScope(i, f, m)
			if in := b.InScope(i, f, &c, m); in != (trace.Outcome == "in") {
				t.Fatalf("%s: in scope %v, explained %s", w.Name, in, trace.Outcome)
			}
			checkTrace(t, trace)
		}
		health, rung := b.Health(f, &c)
		if trace := b.ExplainHealth(f); trace.Rung != rung || trace.Outcome != health.String() {
			t.Fatalf("health %v by %s, explained %+v", health, rung, trace)
		}
		rung, frozen := b.Frozen(f, &c)
		if trace := b.ExplainFreeze(f); trace.Rung != rung || (trace.Outcome == "frozen") != frozen {
			t.Fatalf("frozen %v by %s, explained %+v", frozen, rung, trace)
		}
		if trace := b.ExplainCustomerReady(f); (trace.Outcome == "yes") != b.CustomerReady(f, &c) {
			t.Fatalf("customer-ready: explained %+v", trace)
		}
	})
}

func statusIn(o *Observed, bit uint8) string {
	switch {
	case o.True>>bit&1 == 1:
		return "True"
	case o.Unknown>>bit&1 == 1:
		return "Unknown"
	case o.NotRead>>bit&1 == 1:
		return "NotRead"
	}
	return "False"
}

// checkTrace holds a trace to its own promises.
func checkTrace(t *rapid.T, trace Trace) {
	decided := false
	for _, step := range trace.Steps {
		switch {
		case step.Rung == otherwise:
		case decided != step.Skipped:
			t.Fatalf("%s: step %s skipped %v after a decision %v", trace.Ladder, step.Rung, step.Skipped, decided)
		case decided:
		case step.Matched:
			decided = true
			if step.Rung != trace.Rung {
				t.Fatalf("%s: the first matching step is %s, the rung %s", trace.Ladder, step.Rung, trace.Rung)
			}
		case step.Failed == nil || step.Failed.Path == "" || step.Failed.Actual == "" || !strings.Contains(step.Failed.Pos, ".cue:"):
			t.Fatalf("%s: step %s does not say why: %+v", trace.Ladder, step.Rung, step.Failed)
		}
		if !strings.Contains(step.Pos, "policies/") {
			t.Fatalf("%s: step %s stands at %s", trace.Ladder, step.Rung, step.Pos)
		}
	}
}

func TestTraceTellsWhyNot(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	f := &facts.Facts{}
	f.Ironic.Listed, f.Ironic.Maintenance = facts.True, facts.True
	trace, _ := b.ExplainCondition("Maintenance", f)
	if trace.Rung != "set" || trace.Outcome != "True" || trace.Reason != "MaintenanceSet" {
		t.Fatalf("%+v", trace)
	}
	got := *trace.Steps[2].Failed
	want := FieldTest{Path: "ironic.fault", Want: "!=null", Actual: "null", Pos: "policies/conditions/conditions.cue:36"}
	if got != want {
		t.Errorf("why not fault: %+v, want %+v", got, want)
	}
	if first := trace.Steps[0].Failed; first.Path != "ironic.listed" || first.Want != "false" || first.Actual != "true" {
		t.Errorf("why not no-node: %+v", first)
	}
	if last := trace.Steps[len(trace.Steps)-1]; last.Rung != "otherwise" || !last.Skipped {
		t.Errorf("otherwise: %+v", last)
	}
}
