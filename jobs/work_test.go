package jobs_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

func TestAJobGoesThroughItsLife(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	if n := w.dispatch(&temporal{}); n != 2 {
		t.Fatalf("%d were handed over", n)
	}
	w.wantJob(j.ID, fleet.JobPending)
	if begun := w.begin(j, a); len(begun.Devices) != 1 || begun.Devices[0].DeviceID != a {
		t.Fatalf("%+v", begun)
	}
	w.wantJob(j.ID, fleet.JobRunning)
	must(t, w.svc.Progress(w.ctx(), j.ID, a, "inspecting", 40))
	rows, err := store.JobDevices(w.ctx(), w.db, j.ID, 0, 10)
	must(t, err)
	if rows[0].Phase != "inspecting" || rows[0].Progress != 40 || rows[0].StartedAt.IsZero() || rows[1].Status != fleet.DeviceWaiting {
		t.Fatalf("%+v", rows)
	}
	w.finish(j, a, fleet.DeviceSucceeded, "")
	w.wantFree(a, true)
	w.wantFree(b, false)
	w.wantJob(j.ID, fleet.JobRunning)
	if begun := w.begin(j, a); len(begun.Devices) != 0 {
		t.Fatalf("a finished device began again: %+v", begun)
	}
	w.begin(j, b)
	w.finish(j, b, fleet.DeviceFailed, codes.IronicUnavailable)
	w.wantJob(j.ID, fleet.JobPartiallyFailed)
	w.wantDevice(j.ID, b, fleet.DeviceFailed, codes.IronicUnavailable)
	w.wantFree(b, true)
	if row := w.job(j.ID); row.Live != 0 || row.Unsent != 0 || row.FinishedAt.IsZero() || row.StartedAt.IsZero() {
		t.Fatalf("%+v", row)
	}
}

func TestWhatEndedNeverChanges(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	w.begin(j, a)
	w.finish(j, a, fleet.DeviceSucceeded, "")
	picture := func() string {
		return value[string](w, "select jsonb_build_array((select to_jsonb(j) from jobs j), (select to_jsonb(d) from job_devices d), (select jsonb_agg(e) from executions e))::text")
	}
	before := picture()
	must(t, w.svc.Progress(w.ctx(), j.ID, a, "late", 10))
	w.finish(j, a, fleet.DeviceFailed, codes.InternalError)
	w.begin(j, a)
	must(t, w.svc.Close(w.ctx(), workflowID(j, a), jobs.Ending{Status: fleet.DeviceTerminated}))
	if after := picture(); after != before {
		t.Fatalf("was %s\nis %s", before, after)
	}
	for _, sql := range []string{
		"update job_devices set status = 'failed'", "update job_devices set phase = 'x'", "update jobs set status = 'running'", "update jobs set reason = 'x'",
		"delete from job_devices", "delete from jobs",
	} {
		if _, err := w.db.Exec(w.ctx(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func TestTheDatabaseKeepsJobAndDevicesInAgreement(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	for _, sql := range []string{
		fmt.Sprintf("update jobs set status = 'succeeded' where id = %d", j.ID),
		fmt.Sprintf("update job_devices set status = 'failed' where job_id = %d", j.ID),
		"insert into jobs (site_id, workflow, contention, disruptive, parameters, bundle_version, requested_by) select site_id, workflow, contention, disruptive, '{}', '', '' from jobs",
		"insert into device_locks (device_id, holder, mode, work, disruptive, held) select device_id, 'task/1', 'shared', 'x', false, false from job_devices",
		"insert into device_locks (device_id, holder, mode, work, disruptive, held) select device_id, 'task/1', 'exclusive', 'x', false, false from job_devices",
		"update job_devices set progress = 101",
		"update executions set state = 'closed'",
	} {
		_, err := w.db.Exec(w.ctx(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			t.Errorf("%s was allowed: %v", sql, err)
		}
	}
}

func TestAChildKeepsTheDeviceLocked(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	w.begin(j, a)
	child := workflowID(j, a) + "/child"
	for range 2 {
		must(t, w.svc.Child(w.ctx(), workflowID(j, a), child, 0))
	}
	w.finish(j, a, fleet.DeviceFailed, codes.InternalError)
	w.wantJob(j.ID, fleet.JobFailed)
	w.wantFree(a, false)
	must(t, w.svc.Close(w.ctx(), child, jobs.Ending{}))
	w.wantFree(a, true)
	if err := w.svc.Child(w.ctx(), "job/0/device/0", "x", 0); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a child of nobody: %v", err)
	}
}

func TestADeviceThatBecameInventoryOnlyDoesNotStart(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	w.exec("update devices set inventory_only = true where id = $1", a)
	if begun := w.begin(j, a); len(begun.Devices) != 0 {
		t.Fatalf("%+v", begun)
	}
	w.wantDevice(j.ID, a, fleet.DeviceFailed, codes.DeviceInventoryOnly)
	w.wantFree(a, true)
	w.wantJob(j.ID, fleet.JobRunning)
	w.begin(j, b)
	w.finish(j, b, fleet.DeviceSucceeded, "")
	w.wantJob(j.ID, fleet.JobPartiallyFailed)
}

func TestACohortBeginsAndEndsTogether(t *testing.T) {
	w := newWorld(t, func(o *jobs.Options) {
		o.Implemented = func(string) (jobs.Implementation, bool) { return jobs.Implementation{Batch: true}, true }
	})
	a, b, c := w.device("a"), w.device("b"), w.device("c")
	j := w.submit(shared, a, b, c)
	w.exec("update devices set inventory_only = true where id = $1", c)
	if begun := w.begin(j, 0); len(begun.Devices) != 2 {
		t.Fatalf("%+v", begun)
	}
	must(t, w.svc.Finish(w.ctx(), workflowID(j, 0), a, jobs.Ending{Status: fleet.DeviceSucceeded}))
	w.wantFree(a, true)
	w.wantFree(b, false)
	must(t, w.svc.Finish(w.ctx(), workflowID(j, 0), 0, jobs.Ending{Status: fleet.DeviceFailed, Code: codes.BMCUnreachable}))
	w.wantDevice(j.ID, a, fleet.DeviceSucceeded, "")
	w.wantDevice(j.ID, b, fleet.DeviceFailed, codes.BMCUnreachable)
	w.wantFree(b, true)
	w.wantJob(j.ID, fleet.JobPartiallyFailed)
}

func TestWithoutTemporalNothingEndsUntilItsTimeIsOver(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	to := &temporal{fail: errors.New("connection refused")}
	if n := w.dispatch(to); n != 1 {
		t.Fatalf("%d tries", n)
	}
	if row := w.job(j.ID); row.Status != fleet.JobPending || row.Unsent != 1 || row.Trouble != "connection refused" {
		t.Fatalf("%+v", row)
	}
	if n, err := w.svc.Expire(w.ctx(), 10); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	w.exec("update executions set dispatch_by = now() - interval '1 second', due_at = now()")
	to.fail = nil
	if w.dispatch(to); len(to.started) != 0 {
		t.Fatal("what is too late was started")
	}
	if n, err := w.svc.Expire(w.ctx(), 10); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	w.wantDevice(j.ID, a, fleet.DeviceFailed, codes.DispatchExpired)
	w.wantJob(j.ID, fleet.JobFailed)
	w.wantFree(a, true)
	if n, err := w.svc.Expire(w.ctx(), 10); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestHistoryIsLostOnlyWhenItIsMissingForLong(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	w.dispatch(&temporal{})
	w.begin(j, a)
	id := workflowID(j, a)
	missing := func(want bool) {
		t.Helper()
		if lost, err := w.svc.Missing(w.ctx(), id); err != nil || lost != want {
			t.Fatalf("lost %v, %v", lost, err)
		}
	}
	missing(false)
	missing(false)
	w.exec("update executions set missing_since = now() - interval '11 minutes'")
	must(t, w.svc.Found(w.ctx(), id))
	missing(false)
	w.exec("update executions set missing_since = now() - interval '11 minutes'")
	missing(true)
	w.wantDevice(j.ID, a, fleet.DeviceFailed, codes.WorkflowHistoryLost)
	w.wantFree(a, true)
	to := &temporal{}
	if w.dispatch(to); len(to.started) != 0 {
		t.Fatal("lost work was started again")
	}
}

func TestHundredsOfDevicesFinishAtOnce(t *testing.T) {
	w := newWorld(t)
	ids := w.devices(500)
	began := time.Now()
	j := w.submit(exclusive, ids...)
	t.Logf("submitted in %v", time.Since(began))
	began = time.Now()
	w.dispatch(&temporal{})
	t.Logf("handed over in %v", time.Since(began))
	began = time.Now()
	work := make(chan int64, len(ids))
	for _, id := range ids {
		work <- id
	}
	close(work)
	var wait sync.WaitGroup
	failed := make(chan error, 8*2)
	for range 8 {
		wait.Go(func() {
			for id := range work {
				_, err := w.svc.Begin(w.ctx(), workflowID(j, id))
				if err == nil {
					err = w.svc.Progress(w.ctx(), j.ID, id, "working", 50)
				}
				status := fleet.DeviceSucceeded
				if id%10 == 0 {
					status = fleet.DeviceFailed
				}
				if err == nil {
					err = w.svc.Finish(w.ctx(), workflowID(j, id), id, jobs.Ending{Status: status})
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("run in %v", time.Since(began))
	row := w.job(j.ID)
	if row.Status != fleet.JobPartiallyFailed || row.Devices[fleet.DeviceSucceeded] != 450 || row.Devices[fleet.DeviceFailed] != 50 {
		t.Fatalf("%s %v", row.Status, row.Devices)
	}
	if n := value[int](w, "select count(*) from device_locks"); n != 0 {
		t.Fatalf("%d locks are left", n)
	}
	w.wantNoDeadlock()
}

func (w *world) wantNoDeadlock() {
	w.t.Helper()
	if n := value[int](w, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		w.t.Fatalf("%d deadlocks", n)
	}
}

func TestAFailureHasACodeAndASuccessHasNone(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	w.finish(j, a, fleet.DeviceFailed, "")
	w.wantDevice(j.ID, a, fleet.DeviceFailed, codes.InternalError)
	w.finish(j, b, fleet.DeviceSucceeded, codes.IronicUnavailable)
	w.wantDevice(j.ID, b, fleet.DeviceSucceeded, "")
	if err := w.svc.Finish(w.ctx(), workflowID(j, a), a, jobs.Ending{Status: fleet.DeviceRunning}); err == nil {
		t.Fatal("running was taken for an end")
	}
	if err := w.svc.Finish(w.ctx(), workflowID(j, a), b, jobs.Ending{Status: fleet.DeviceFailed}); err == nil {
		t.Fatal("a workflow ended another's device")
	}
}
