package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

func TestCapsCountDevicesNotJobs(t *testing.T) {
	for name, c := range map[string]struct {
		cap      engine.BlastCap
		first    int // devices of a job that holds them already
		second   int
		admitted bool
	}{
		"as many as there may be":         {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Devices: 5}, 2, 3, true},
		"one more":                        {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Devices: 5}, 2, 4, false},
		"one job alone":                   {engine.BlastCap{Scope: engine.Scope{Per: []string{"fleet"}}, Devices: 5}, 0, 6, false},
		"a share of the site":             {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Share: 0.25}, 2, 3, true},
		"more than a share":               {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Share: 0.25}, 2, 4, false},
		"a share of less than one device": {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Share: 0.01}, 0, 1, true},
		"the stricter of both":            {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Share: 0.5, Devices: 3}, 2, 2, false},
		"another workflow's":              {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}, Workflows: []string{"unimage_node"}}, Devices: 1}, 2, 4, true},
		"another class's":                 {engine.BlastCap{Scope: engine.Scope{Per: []string{"site"}}, Devices: 1, Classes: []string{"switch"}}, 2, 4, true},
		"for a workflow":                  {engine.BlastCap{Scope: engine.Scope{Per: []string{"workflow"}}, Devices: 5}, 2, 4, false},
		"for a class at a site":           {engine.BlastCap{Scope: engine.Scope{Per: []string{"site", "class"}}, Devices: 5}, 2, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.cap.Name = "cap"
			w.svc.Limit([]engine.BlastCap{c.cap}, nil)
			ids := w.devices(20)
			if c.first > 0 {
				w.submit(taking, ids[:c.first]...)
			}
			s := w.submission(taking, ids[c.first:c.first+c.second]...)
			r, err := w.svc.Check(w.ctx(), s.Request)
			must(t, err)
			if r.Admitted() != c.admitted {
				t.Errorf("check: %+v", r.Refusals)
			}
			if c.admitted {
				w.submit(taking, ids[c.first:c.first+c.second]...)
				return
			}
			report := w.refused(s, jobs.CodeBlastCapExceeded)
			if m := report.Refusals[0].Message; !strings.Contains(m, "cap") || c.first > 0 && !strings.Contains(m, "job/1") {
				t.Errorf("%s", m)
			}
			w.submit(exclusive, ids[c.first:c.first+c.second]...) // it takes nobody's machine
		})
	}
}

func TestACapOfARackCountsInItAlone(t *testing.T) {
	w := newWorld(t)
	w.svc.Limit([]engine.BlastCap{{Scope: engine.Scope{Name: "rack", Per: []string{"rack"}}, Devices: 1}}, nil)
	w.exec("insert into racks (site_id, source_ref, name) values ($1, '1', 'r1'), ($1, '2', 'r2')", w.lab.ID)
	rack := func(name string) string { return "rack_id = (select id from racks where name = '" + name + "')" }
	a, b, c := w.device("a", rack("r1")), w.device("b", rack("r1")), w.device("c", rack("r2"))
	w.submit(taking, a)
	if r := w.refused(w.submission(taking, b, c), jobs.CodeBlastCapExceeded); r.Refusals[0].Path != "limits.blast_caps.rack@lab.r1" {
		t.Fatalf("%+v", r.Refusals)
	}
	w.submit(taking, c)
}

func TestABreakerStopsAdmissionAndWhatIsUnsent(t *testing.T) {
	w := newWorld(t)
	w.svc.Limit(nil, []engine.Breaker{{Scope: engine.Scope{Name: "failures", Per: []string{"site", "workflow"}}, FailureShare: 0.5, Window: time.Hour, MinRuns: 4}})
	ids := w.devices(12)
	j := w.submit(exclusive, ids[:6]...)
	waiting := w.submit(exclusive, ids[6:8]...)
	w.finish(j, ids[0], fleet.DeviceFailed, codes.IronicUnavailable)
	w.finish(j, ids[1], fleet.DeviceFailed, codes.IronicUnavailable)
	w.submit(exclusive, ids[10]) // too few runs to say anything
	w.finish(j, ids[2], fleet.DeviceSucceeded, "")
	w.finish(j, ids[3], fleet.DeviceTimedOut, "")
	breakers, err := store.Breakers(w.ctx(), w.db)
	must(t, err)
	const name = "failures@lab." + exclusive
	if len(breakers) != 1 || breakers[0].Name != name || breakers[0].TrippedAt.IsZero() || breakers[0].Failed != 3 || breakers[0].Runs != 4 || breakers[0].SiteID != w.lab.ID {
		t.Fatalf("%+v", breakers)
	}
	if r := w.refused(w.submission(exclusive, ids[11]), jobs.CodeBreakerOpen); !strings.Contains(r.Refusals[0].Message, name) || !strings.Contains(r.Refusals[0].Message, "3 of the last 4") {
		t.Fatalf("%+v", r.Refusals)
	}
	w.submit(shared, ids[11]) // another workflow
	to := &temporal{}
	if w.dispatch(to); len(to.started) != 1 || !strings.HasSuffix(to.started[0], "/device/"+itoa(ids[11])) {
		t.Fatalf("%v", to.started)
	}
	if row := w.job(waiting.ID); row.Barred != name || row.Unsent != 2 {
		t.Fatalf("%+v", row)
	}
	by := devices.Caller{Name: "ann"}
	coded(t, w.svc.ResetBreaker(w.ctx(), name, " ", by), jobs.CodeReasonMissing)
	coded(t, w.svc.ResetBreaker(w.ctx(), "none", "x", by), jobs.CodeBreakerNotFound)
	must(t, w.svc.ResetBreaker(w.ctx(), name, "Ironic is back", by))
	must(t, w.svc.ResetBreaker(w.ctx(), name, "again", by))
	w.dispatch(to)
	w.submit(exclusive, ids[9])
	w.finish(j, ids[4], fleet.DeviceFailed, codes.IronicUnavailable) // what was before the reset does not count
	w.submit(exclusive, ids[8])
	if n := value[int](w, "select count(*) from audit where action = 'breaker.reset' and detail ->> 'reason' = 'Ironic is back'"); n != 1 {
		t.Fatalf("%d audit rows", n)
	}
}

func TestACancelTripsNoBreaker(t *testing.T) {
	w := newWorld(t)
	w.svc.Limit(nil, []engine.Breaker{{Scope: engine.Scope{Name: "failures"}, FailureShare: 0.1, Window: time.Hour, MinRuns: 1}})
	ids := w.devices(5)
	j := w.submit(exclusive, ids...)
	_, err := w.svc.Cancel(w.ctx(), j.ID, "", devices.Caller{Name: "ann"}, nil)
	must(t, err)
	w.submit(exclusive, ids...)
}

func TestTheShippedCapsBoundWhatOneMistakeTakes(t *testing.T) {
	w := newWorld(t)
	b, err := shipped()
	must(t, err)
	w.svc.Limit(b.Limits().Caps, b.Limits().Breakers)
	ids := w.devices(100)
	w.submit(taking, ids[:18]...) // as many as unenrolment allows at a site
	r := w.refused(w.submission(taking, ids[20:40]...), jobs.CodeBlastCapExceeded)
	for _, refusal := range r.Refusals {
		if !strings.Contains(refusal.Policy, "policies/limits/") || refusal.Actual == "" || refusal.Expected == "" {
			t.Errorf("%+v", refusal)
		}
	}
	w.submit(exclusive, ids[40:]...)
}
