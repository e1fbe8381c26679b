package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// submitDuring submits while another transaction that changed a device is about
// to commit.
func (w *world) submitDuring(s jobs.Submission, change string, args ...any) error {
	w.t.Helper()
	tx, err := w.db.Begin(w.ctx())
	must(w.t, err)
	_, err = tx.Exec(w.ctx(), change, args...)
	must(w.t, err)
	answer := make(chan error, 1)
	go func() { _, err := w.svc.Submit(w.ctx(), s); answer <- err }()
	w.until("select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	must(w.t, tx.Commit(w.ctx()))
	return <-answer
}

func TestADeviceThatMovesOrLeavesMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	for name, c := range map[string]struct {
		id     int64
		change string
		args   []any
		code   string
	}{
		"to another site":      {a, "update devices set site_id = $1 where id = $2", []any{w.iron.ID, a}, jobs.CodeMixedSite},
		"out of the inventory": {b, "update devices set retired_at = now() where id = $1", []any{b}, jobs.CodeDeviceNotFound},
	} {
		err, ok := w.submitDuring(w.submission(shared, c.id), c.change, c.args...).(*jobs.RefusedError)
		if !ok || !err.Has(c.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := value[int](w, "select count(*) from jobs"); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestASpareThatBecomesTakenMeanwhileIsRefused(t *testing.T) {
	w := newWorld(t)
	tray, spare := w.device("tray"), w.device("spare")
	s := w.submission(swap, tray)
	s.Parameters = object(t, map[string]any{"replacement_host_name": "spare"})
	err, ok := w.submitDuring(s, `with held as (select id from devices where id = $1 for no key update)
		insert into device_locks (device_id, holder, mode, work, disruptive, held) select id, 'task/7', 'shared', 'power_off', true, false from held`, spare).(*jobs.RefusedError)
	if !ok || !err.Has(jobs.CodeWorkflowConflict) || err.Report.Refusals[0].Holder != "task/7" {
		t.Fatalf("%v", err)
	}
}

func TestABreakerReachesAsFarAsItsScope(t *testing.T) {
	for name, c := range map[string]struct {
		per  []string
		held []string // of r1-gpu, r2-gpu, r1-cpu in enrollment, and r1-gpu in verify_connectivity
	}{
		"a rack":           {[]string{"rack"}, []string{"r1-gpu", "r1-cpu", "r1-gpu again"}},
		"a class":          {[]string{"class"}, []string{"r1-gpu", "r2-gpu", "r1-gpu again"}},
		"a workflow":       {[]string{"workflow"}, []string{"r1-gpu", "r2-gpu", "r1-cpu"}},
		"a class in racks": {[]string{"rack", "class"}, []string{"r1-gpu", "r1-gpu again"}},
		"the fleet":        {[]string{"fleet"}, []string{"r1-gpu", "r2-gpu", "r1-cpu", "r1-gpu again"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.svc.Limit(nil, []engine.Breaker{{Scope: engine.Scope{Name: "b", Per: c.per}, Window: time.Hour, MinRuns: 1, FailureShare: 1}})
			w.exec("insert into racks (site_id, source_ref, name) values ($1, '1', 'r1'), ($1, '2', 'r2')", w.lab.ID)
			in := func(rack, class string) []string {
				return []string{"rack_id = (select id from racks where name = '" + rack + "')", "device_class = '" + class + "'"}
			}
			bad := w.device("bad", in("r1", "gpu_compute")...)
			failing := w.submit(exclusive, bad)
			waiting := map[string]string{}
			for name, set := range map[string][]string{"r1-gpu": in("r1", "gpu_compute"), "r2-gpu": in("r2", "gpu_compute"), "r1-cpu": in("r1", "cpu_baremetal")} {
				id := w.device(name, set...)
				waiting[workflowID(w.submit(exclusive, id), id)] = name
			}
			again := w.device("r1-gpu again", in("r1", "gpu_compute")...)
			waiting[workflowID(w.submit(shared, again), again)] = "r1-gpu again"
			w.finish(failing, bad, fleet.DeviceFailed, codes.BMCUnreachable)
			to := &temporal{}
			w.dispatch(to)
			for _, id := range to.started {
				delete(waiting, id)
			}
			var held []string
			for _, name := range waiting {
				held = append(held, name)
			}
			slices.Sort(held)
			slices.Sort(c.held)
			if !slices.Equal(held, c.held) {
				t.Errorf("kept back are %v, want %v", held, c.held)
			}
			// Admission draws the same line.
			w.exec("delete from device_locks")
			for _, name := range []string{"r1-gpu", "r2-gpu", "r1-cpu"} {
				s := w.submission(exclusive)
				s.Devices = []jobs.Ref{{Name: name}}
				if _, err := w.svc.Submit(w.ctx(), s); (err != nil) != slices.Contains(c.held, name) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func TestOneConnectionIsEnough(t *testing.T) {
	w := newWorld(t)
	narrow, err := store.Open(w.ctx(), w.db.Config().ConnString(), store.Options{MaxConns: 1, AcquireTimeout: time.Minute})
	must(t, err)
	t.Cleanup(narrow.Close)
	b, err := shipped()
	must(t, err)
	log := hclog.NewNullLogger()
	svc := jobs.New(narrow, devices.New(narrow, held{b}, narrow.Now, log), held{b}, narrow.Now, log, jobs.Options{Implemented: implemented})
	ids := w.devices(8)
	var wait sync.WaitGroup
	failed := make(chan error, len(ids))
	for _, id := range ids {
		wait.Go(func() {
			failed <- func() error {
				s := w.submission(exclusive, id)
				s.IdempotencyKey = fmt.Sprint(id)
				done, err := svc.Submit(w.ctx(), s)
				if err != nil {
					return err
				}
				if _, err := svc.Dispatch(w.ctx(), &temporal{}); err != nil {
					return err
				}
				if _, err := svc.Begin(w.ctx(), workflowID(done.Job, id)); err != nil {
					return err
				}
				if err := svc.Finish(w.ctx(), workflowID(done.Job, id), id, jobs.Ending{Status: fleet.DeviceFailed}); err != nil {
					return err
				}
				_, err = svc.Cancel(w.ctx(), done.Job.ID, "", s.By, nil)
				if e, ok := err.(*jobs.Error); !ok || e.Code != jobs.CodeJobTerminal {
					return fmt.Errorf("cancel: %w", err)
				}
				return nil
			}()
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		must(t, err)
	}
}

func TestWaitingForARowHasAnEnd(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	hasty, err := store.Open(w.ctx(), w.db.Config().ConnString(), store.Options{MaxConns: 2, LockTimeout: 50 * time.Millisecond})
	must(t, err)
	t.Cleanup(hasty.Close)
	b, err := shipped()
	must(t, err)
	log := hclog.NewNullLogger()
	svc := jobs.New(hasty, devices.New(hasty, held{b}, hasty.Now, log), held{b}, hasty.Now, log, jobs.Options{Implemented: implemented})
	tx, err := w.db.Begin(w.ctx())
	must(t, err)
	_, err = tx.Exec(w.ctx(), "select from devices where id = $1 for update", a)
	must(t, err)
	_, err = svc.Submit(w.ctx(), w.submission(shared, a))
	coded(t, err, jobs.CodeBusy)
	if !strings.Contains(err.Error(), "try again") {
		t.Errorf("%v", err)
	}
	must(t, tx.Rollback(w.ctx()))
	_, err = svc.Submit(w.ctx(), w.submission(shared, a))
	must(t, err)
}
