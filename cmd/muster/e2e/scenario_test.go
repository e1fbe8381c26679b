package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources/ironic/ironictest"
)

const (
	customerTrait = "CUSTOM_CUSTOMER_READY"
	enrolProject  = "11111111111111111111111111111111"
	slurmProject  = "22222222222222222222222222222222"
	job           = "muster:e2e"
)

// want is a status with the rung that gives it and the conditions that decide.
type want struct {
	status, rung string
	decisive     []string
}

var (
	notEnrolled   = want{"quarantine", "not-enrolled", []string{"Enrolled"}}
	unleased      = want{"quarantine", "otherwise", nil}
	validating    = want{"validation", "validation", []string{"CustomerReady", "Enrolled", "Maintenance", "ProvisionFailed", "ValidationAllocated"}}
	unschedulable = want{"quarantine", "validation-unschedulable", []string{"CustomerReady", "SlurmSchedulable", "ValidationAllocated"}}
	maintained    = want{"quarantine", "maintenance", []string{"Maintenance"}}
	available     = want{"available", "customer-available", []string{"CustomerReady", "Enrolled", "InstanceAllocated", "Maintenance", "MaintenancePool", "ProvisionAvailable", "ProvisionFailed"}}
	inUse         = want{"in_use", "customer-in-use", []string{"CustomerReady", "InstanceAllocated"}}
	failed        = want{"failed", "provision-failed", []string{"ProvisionFailed"}}
	gone          = want{"unknown", "no-infrastructure", []string{"Enrolled"}}
)

// world is everything that the scenario turns on.
type world struct {
	*muster
	ironic *realIronic
	slurm  *realSlurm
	nodes  map[string]string // name → uuid
}

func TestFactsOfRealPeersBecomeExplainedStatuses(t *testing.T) {
	t.Parallel()
	needPeers(t)
	w := &world{ironic: startIronic(t), slurm: startSlurm(t), nodes: map[string]string{}}
	w.muster = newMuster(t, build(t), w.siteFile(t))
	// The steps are one story: each goes on from the one before.
	t.Run("a node's life", w.life)
	t.Run("SLURM's REST server dies", func(t *testing.T) { w.outage(t, "slurmrestd") })
	t.Run("SLURM's controller dies", func(t *testing.T) { w.outage(t, "slurmctld") })
	t.Run("Ironic dies", w.ironicDies)
	t.Run("muster is killed in the middle of sweeps", w.killed)
	t.Run("explain", w.explained)
}

func (w *world) siteFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.cue")
	text := fmt.Sprintf(`name: "ams1"
engagement_mode:      "fully_managed"
inventory:            "ironic"
trait_based:          true
placement_enabled:    false
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	ironic: {url: %q, interval: "1s", timeout: "15s"}
	slurm: {url: %q, token: %q, interval: "1s", timeout: "15s"}
}
`, customerTrait, enrolProject, slurmProject, w.ironic.url, w.slurm.url, "file:"+w.slurm.token)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// life walks one node from its creation to its deletion.
func (w *world) life(t *testing.T) {
	ctx := t.Context()
	w.create(t, "n0001")
	id := w.nodes["n0001"]
	steps := []struct {
		name string
		do   func() error
		want want
	}{
		{"created", func() error { return nil }, notEnrolled},
		{"managed", func() error { return w.ironic.Manage(ctx, id) }, notEnrolled},
		{"provided", func() error { return w.ironic.Provide(ctx, id) }, unleased},
		{"leased to SLURM", func() error { return w.ironic.Set(ctx, id, "/lessee", slurmProject) }, validating},
		{"deployed for us", func() error { return w.ironic.Deploy(ctx, id, instance(1), job) }, validating},
		{"drained", func() error { return w.drain(ctx, "n0001") }, unschedulable},
		{"resumed", func() error { return w.resume(ctx, "n0001") }, validating},
		{"put in maintenance", func() error { return w.ironic.Hold(ctx, id, "a hand on it") }, maintained},
		{"taken out of maintenance", func() error { return w.ironic.Unhold(ctx, id) }, validating},
		{"undeployed", func() error { return w.ironic.Undeploy(ctx, id) }, validating},
		{"leased back", func() error { return w.ironic.Set(ctx, id, "/lessee", enrolProject) }, unleased},
		{"handed to customers", func() error { return w.ironic.SetTraits(ctx, id, customerTrait) }, available},
		{"deployed by a customer", func() error { return w.ironic.Deploy(ctx, id, instance(2), "") }, inUse},
		{"given back", func() error { return w.ironic.Undeploy(ctx, id) }, available},
		{"cleaning fails", func() error { return w.ironic.FailCleaning(ctx, id) }, failed},
		{"deleted", func() error { return w.ironic.DeleteNode(ctx, id) }, gone},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			w.expect(t, "n0001", step.want)
			w.expectHistory(t, "n0001", step.want)
		})
	}
	if d := w.device(t, "n0001"); d.InfrastructureRef != nil {
		t.Errorf("the deleted node still is the device's: %s", *d.InfrastructureRef)
	}
}

// outage shows what stands and what goes on while SLURM cannot be read.
func (w *world) outage(t *testing.T, daemon string) {
	ctx := t.Context()
	w.prepare(t)
	before := w.lastEvent(t)

	w.slurm.daemon(t, "kill", daemon)
	t.Cleanup(func() { w.restore(t, daemon) })
	w.until(t, "the silence to be told", func() error {
		d, err := w.find("n0002")
		if err == nil && !slices.ContainsFunc(d.Stale, func(s struct{ Type, Reason string }) bool {
			return s.Type == "SlurmSchedulable" && s.Reason == "SchedulerUnreachable"
		}) {
			err = fmt.Errorf("stale: %v", d.Stale)
		}
		return err
	})
	w.expect(t, "n0002", validating)
	w.expect(t, "n0003", unschedulable)
	w.expect(t, "n0005", available)
	if d := w.device(t, "n0003"); d.StatusFresh {
		t.Error("n0003 rests on what SLURM said, and is shown as fresh")
	}
	if d := w.device(t, "n0005"); !d.StatusFresh {
		t.Error("n0005 rests on Ironic alone, and is shown as stale")
	}
	if last := w.lastEvent(t); last != before {
		t.Errorf("silence wrote history: event %d after %d", last, before)
	}

	if err := w.ironic.Hold(ctx, w.nodes["n0002"], "a hand on it"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0002", maintained)
	w.expect(t, "n0003", unschedulable) // still: nobody said that it may work again

	if err := w.ironic.Set(ctx, w.nodes["n0004"], "/lessee", enrolProject); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0004", unleased)
	if err := w.ironic.SetTraits(ctx, w.nodes["n0004"], customerTrait); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0004", available) // it follows Ironic: nothing of SLURM decides about it

	if err := w.ironic.SetTraits(ctx, w.nodes["n0005"]); err != nil {
		t.Fatal(err)
	}
	if err := w.ironic.Set(ctx, w.nodes["n0005"], "/lessee", slurmProject); err != nil {
		t.Fatal(err)
	}
	w.until(t, "n0005 to stop being available", func() error { return w.hasStatus("n0005", "quarantine") })
}

// restore ends an outage and shows that the devices come back by themselves.
func (w *world) restore(t *testing.T, daemon string) {
	t.Helper()
	w.slurm.daemon(t, "start", daemon)
	if err := w.ironic.Unhold(context.Background(), w.nodes["n0002"]); err != nil {
		t.Error(err)
	}
	w.expect(t, "n0002", validating)
	w.expect(t, "n0005", validating)
}

func (w *world) ironicDies(t *testing.T) {
	w.prepare(t)
	before := w.lastEvent(t)
	w.ironic.kill(t)
	w.until(t, "the silence to be told", func() error {
		d, err := w.find("n0005")
		if err == nil && (d.StatusFresh || len(d.Stale) == 0) {
			err = fmt.Errorf("status_fresh is %v, stale: %v", d.StatusFresh, d.Stale)
		}
		return err
	})
	w.expect(t, "n0002", validating)
	w.expect(t, "n0003", unschedulable)
	w.expect(t, "n0005", available)
	if last := w.lastEvent(t); last != before {
		t.Errorf("silence wrote history: event %d after %d", last, before)
	}
	// What is fresh still counts: SLURM alone takes a node out of validation.
	if err := w.drain(t.Context(), "n0002"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0002", unschedulable)

	w.ironic.start(t)
	if err := w.resume(t.Context(), "n0002"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0002", validating)
	w.until(t, "n0005 to be fresh again", func() error {
		d, err := w.find("n0005")
		if err == nil && !d.StatusFresh {
			err = fmt.Errorf("stale: %v", d.Stale)
		}
		return err
	})
}

// killed ends muster at five moments of its sweeps while the world moves on.
func (w *world) killed(t *testing.T) {
	ctx := t.Context()
	w.prepare(t)
	events := w.events(t, "n0005")
	for i := range 5 {
		if i%2 == 0 {
			if err := w.ironic.Hold(ctx, w.nodes["n0005"], "round"); err != nil {
				t.Fatal(err)
			}
		} else if err := w.ironic.Unhold(ctx, w.nodes["n0005"]); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(i) * 170 * time.Millisecond) // another moment of the sweep each time
		w.kill(t)
		w.start(t)
		if i%2 == 0 {
			w.expect(t, "n0005", maintained)
		} else {
			w.expect(t, "n0005", available)
		}
		w.expect(t, "n0002", validating)
		w.expect(t, "n0003", unschedulable)
	}
	// Nothing lost, nothing doubled: one row of history a change.
	after := w.events(t, "n0005")
	operational := func(list []event) (n int) {
		for _, e := range list {
			if e.Kind == "operational" {
				n++
			}
		}
		return n
	}
	if got := operational(after) - operational(events); got != 5 {
		t.Errorf("%d rows of history for 5 changes", got)
	}
	if err := w.ironic.Unhold(ctx, w.nodes["n0005"]); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0005", available)
}

func (w *world) explained(t *testing.T) {
	w.prepare(t)
	out := w.cli(t, "explain", "device", "n0003")
	for _, part := range []string{"quarantine", "validation-unschedulable", "policies/status/operational.cue:", "provision-failed", "SlurmSchedulable", "Drain"} {
		if !strings.Contains(out, part) {
			t.Errorf("the trace lacks %q:\n%s", part, out)
		}
	}
	t.Logf("muster explain device n0003\n%s", out)
}

// prepare brings four nodes to where an outage finds them: n0002 validates,
// n0003 is drained, n0004 is leased to SLURM, n0005 is the customers'.
func (w *world) prepare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"n0002", "n0003", "n0004", "n0005"} {
		if w.nodes[name] == "" {
			w.create(t, name)
			if err := w.ironic.Manage(ctx, w.nodes[name]); err != nil {
				t.Fatal(err)
			}
			if err := w.ironic.Provide(ctx, w.nodes[name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, ours := range map[string]bool{"n0002": true, "n0003": true, "n0004": true, "n0005": false} {
		lessee, traits := slurmProject, []string{}
		if !ours {
			lessee, traits = enrolProject, []string{customerTrait}
		}
		if err := w.ironic.Set(ctx, w.nodes[name], "/lessee", lessee); err != nil {
			t.Fatal(err)
		}
		if err := w.ironic.SetTraits(ctx, w.nodes[name], traits...); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.drain(ctx, "n0003"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "n0002", validating)
	w.expect(t, "n0003", unschedulable)
	w.expect(t, "n0004", validating)
	w.expect(t, "n0005", available)
}

func (w *world) create(t *testing.T, name string) {
	t.Helper()
	id, err := w.ironic.CreateNode(t.Context(), ironictest.Node{Name: name, Lessee: enrolProject, ResourceClass: "gb200"})
	if err != nil {
		t.Fatal(err)
	}
	w.nodes[name] = id
}

func (w *world) drain(ctx context.Context, node string) error {
	_, err := w.slurm.Drain(ctx, node, job, "end to end")
	return err
}

func (w *world) resume(ctx context.Context, node string) error {
	_, err := w.slurm.Resume(ctx, node, job)
	return err
}

func instance(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
