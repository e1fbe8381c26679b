package engine

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

// An Observed that is used again and again gives for each device what a new one
// gives, however little two devices in a row differ.
func TestObserveIsNotMisledByTheDeviceBefore(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	var finite []facts.Field
	for _, f := range facts.Fields {
		if _, token := cutToken(f.Path); f.At >= 0 && !token {
			finite = append(finite, f)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := randomDevice(t)
		var c facts.Codes
		f.Intern(&c)
		used := make([]Observed, len(b.Writers()))
		for range 40 {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				f.Slurm.States ^= 1 << rapid.IntRange(0, 33).Draw(t, "token")
			case 1:
				f.Ironic.Fault.Known = !f.Ironic.Fault.Known
			default:
				field := rapid.SampledFrom(finite).Draw(t, "field")
				c[field.At] = uint8(rapid.IntRange(0, len(field.Values)).Draw(t, "code"))
			}
			for w := range b.Writers() {
				var fresh Observed
				b.Observe(w, f, &c, &fresh)
				b.Observe(w, f, &c, &used[w])
				if got, want := used[w], fresh; got.True != want.True || got.Unknown != want.Unknown || got.NotRead != want.NotRead || got.Rung != want.Rung {
					t.Fatalf("%s: used %+v, fresh %+v", b.Writers()[w].Name, got, want)
				}
			}
		}
	})
}

func TestTextsOfAnObservation(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	kind, _ := b.Type("Failed")
	f := &facts.Facts{}
	f.Ironic.ProvisionState, f.Ironic.LastError = facts.ProvisionStateDeployFailed, facts.TextOf("no image")
	var c facts.Codes
	f.Intern(&c)
	var out Observed
	b.Observe(b.WriterIndex("openstack"), f, &c, &out)
	reason, message := b.Texts(kind.Bit, out.Rung[kind.Bit], f)
	if out.True>>kind.Bit&1 != 1 || reason != "DeployFailed" || message != "no image" {
		t.Errorf("%b %s %q", out.True, reason, message)
	}
	if !b.Quotes(kind.Bit, out.Rung[kind.Bit]) || b.Quotes(kind.Bit, 2) {
		t.Error("which texts quote facts is not told")
	}
	if tests := b.RungTests(kind.Bit, 0); len(tests) != 1 || tests[0] != "ironic.provision_state" {
		t.Errorf("rung 0 tests %v", tests)
	}
}

// A SLURM device comes into scope by the condition that another writer emits.
func TestScopeReadsConditions(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	slurm := b.WriterIndex("slurm")
	kind, _ := b.Type("ValidationAllocated")
	f := &facts.Facts{}
	f.Site.HasSlurm = true
	var c facts.Codes
	f.Intern(&c)
	leased := Masks{True: 1 << kind.Bit, Present: 1 << kind.Bit}
	if b.InScope(slurm, f, &c, Masks{}) || !b.InScope(slurm, f, &c, leased) {
		t.Error("scope does not follow the lease")
	}
	if noRow := (Masks{True: 1 << kind.Bit}); b.InScope(slurm, f, &c, noRow) {
		t.Error("a condition without a row counts as True")
	}
	if custody := b.WriterIndex("custody"); b.InScope(custody, f, &c, leased) {
		t.Error("a writer that posts has a scope")
	}
}
