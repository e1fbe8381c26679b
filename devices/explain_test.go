package devices_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
)

func hclogNull() hclog.Logger { return hclog.NewNullLogger() }

func TestAnExplanationTellsTheWholeOfIt(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle)), id))
	w.wantStatus(id, "validation", "validation")
	w.pass(10 * time.Minute)
	must(t, w.svc.FailSweep(w.ctx(), w.site.ID, "slurm", owner, w.epoch, "SchedulerUnreachable"))
	w.finish("ironic")
	e, err := w.svc.Explain(w.ctx(), id)
	must(t, err)
	if e.Status.Outcome != "validation" || e.Status.Rung != "validation" || !strings.HasPrefix(e.Status.Pos, "policies/status/operational.cue:") {
		t.Fatalf("%s by %s at %s", e.Status.Outcome, e.Status.Rung, e.Status.Pos)
	}
	if !e.Derived || e.Frozen || e.Standing.StatusFresh {
		t.Fatalf("derived %v, frozen %v, fresh %v", e.Derived, e.Frozen, e.Standing.StatusFresh)
	}
	for _, c := range e.Conditions {
		switch c.Type {
		case "SlurmSchedulable":
			if c.Overlay != "SchedulerUnreachable" || c.Row == nil || c.Row.Status != "True" || c.Emission.Rung != "schedulable" {
				t.Errorf("%+v", c)
			}
		case "NvLinkGpusInRepairPartition":
			if c.Row != nil || c.Absent != "False" || c.Overlay != "" {
				t.Errorf("%+v", c)
			}
		case "Enrolled":
			if !c.Decisive || c.Overlay != "" || !c.Observed.Equal(w.clock()) {
				t.Errorf("%+v", c)
			}
		}
	}
	in := map[string]bool{}
	for _, s := range e.Scopes {
		in[s.Writer] = s.In
	}
	if !in["openstack"] || !in["slurm"] || in["health-status"] {
		t.Errorf("scopes: %v", in)
	}
	if len(e.Sources) != 2 || e.Sources[1].Source != "slurm" || !e.Sources[1].Age.Stale {
		t.Errorf("sources: %+v", e.Sources)
	}
}
