package jobs_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

func TestACancelBeforeTheStartStartsNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	by := devices.Caller{Name: "bob"}
	got, err := w.svc.Cancel(w.ctx(), j.ID, "wrong rack", by, nil)
	must(t, err)
	if got.Status != fleet.JobCancelled || got.CancelRequestedBy != "bob" || got.CancelReason != "wrong rack" {
		t.Fatalf("%+v", got)
	}
	w.wantFree(a, true)
	w.wantFree(b, true)
	to := &temporal{}
	if w.dispatch(to); len(to.started) != 0 || len(to.cancelled) != 0 {
		t.Fatalf("%+v", to)
	}
	if begun := w.begin(j, a); len(begun.Devices) != 0 { // started all the same
		t.Fatalf("%+v", begun)
	}
	_, err = w.svc.Cancel(w.ctx(), j.ID, "", by, nil)
	coded(t, err, jobs.CodeJobTerminal)
	_, err = w.svc.Cancel(w.ctx(), 999, "", by, nil)
	coded(t, err, jobs.CodeJobNotFound)
	w.submit(exclusive, a, b)
}

func TestACancelledJobHoldsItsDevicesUntilItsLastChildHasEnded(t *testing.T) {
	w := newWorld(t)
	tray, spare := w.device("tray"), w.device("spare")
	s := w.submission(swap, tray)
	s.Parameters = object(t, map[string]any{"replacement_host_name": "spare"})
	done, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	j, to := done.Job, &temporal{}
	w.dispatch(to)
	w.begin(j, tray)
	child := workflowID(j, tray) + "/child"
	must(t, w.svc.Child(w.ctx(), workflowID(j, tray), child, 0))
	for range 2 {
		got, err := w.svc.Cancel(w.ctx(), j.ID, "stop", s.By, nil)
		must(t, err)
		if got.Status != fleet.JobCancellationRequested {
			t.Fatalf("%+v", got)
		}
	}
	w.dispatch(to)
	if want := []string{workflowID(j, tray)}; !slices.Equal(to.cancelled, want) {
		t.Fatalf("cancelled %v, want %v", to.cancelled, want)
	}
	w.finish(j, tray, fleet.DeviceCancelled, "") // the parent says so at once
	w.wantJob(j.ID, fleet.JobCancelled)
	w.refused(w.submission(exclusive, tray), jobs.CodeWorkflowConflict)
	w.wantFree(spare, false)
	must(t, w.svc.Close(w.ctx(), child, jobs.Ending{}))
	w.wantFree(tray, false)
	must(t, w.svc.Close(w.ctx(), workflowID(j, tray), jobs.Ending{Status: fleet.DeviceCancelled}))
	w.wantFree(tray, true)
	w.wantFree(spare, true)
}

func TestAParentThatTemporalEndedLeavesItsChildrenTheLock(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	to := &temporal{}
	w.dispatch(to)
	w.begin(j, a)
	child := workflowID(j, a) + "/child"
	must(t, w.svc.Child(w.ctx(), workflowID(j, a), child, 0))
	must(t, w.svc.Close(w.ctx(), workflowID(j, a), jobs.Ending{Status: fleet.DeviceTerminated, Message: "ended by hand"}))
	w.wantJob(j.ID, fleet.JobTerminated)
	w.wantFree(a, false)
	children, err := store.OpenChildren(w.ctx(), w.db, workflowID(j, a))
	must(t, err)
	if len(children) != 1 || children[0].WorkflowID != child {
		t.Fatalf("%+v", children)
	}
	must(t, store.WantChildCancelled(w.ctx(), w.db, child))
	w.dispatch(to)
	if !slices.Equal(to.cancelled, []string{child}) {
		t.Fatalf("%v", to.cancelled)
	}
	must(t, w.svc.Close(w.ctx(), child, jobs.Ending{}))
	w.wantFree(a, true)
}

func TestStartAndCancelComeInOneOrder(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	j := w.submit(exclusive, a)
	answer := make(chan error, 1)
	to := &temporal{meanwhile: func(fleet.Execution) {
		go func() { _, err := w.svc.Cancel(w.ctx(), j.ID, "", devices.Caller{Name: "bob"}, nil); answer <- err }()
		w.until("select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%executions%'")
	}}
	w.dispatch(to)
	must(t, <-answer)
	w.wantJob(j.ID, fleet.JobCancellationRequested) // it started first, so it is told
	w.dispatch(to)
	if len(to.started) != 1 || len(to.cancelled) != 1 {
		t.Fatalf("%+v", to)
	}
	if begun := w.begin(j, a); len(begun.Devices) != 0 {
		t.Fatalf("work began after its cancel: %+v", begun)
	}
	w.wantJob(j.ID, fleet.JobCancelled)
	w.wantFree(a, true)
}

func TestADispatcherThatDiesAfterTheStartIsNoLoss(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	j := w.submit(exclusive, a, b)
	w.begin(j, a) // Temporal runs it, and nobody could say that it was sent
	got, err := w.svc.Cancel(w.ctx(), j.ID, "", devices.Caller{Name: "bob"}, nil)
	must(t, err)
	if got.Status != fleet.JobCancellationRequested {
		t.Fatalf("%+v", got)
	}
	w.wantDevice(j.ID, b, fleet.DeviceCancelled, "")
	w.wantFree(b, true)
	w.wantDevice(j.ID, a, fleet.DeviceRunning, "")
	to := &temporal{}
	w.dispatch(to)
	if !slices.Equal(to.cancelled, []string{workflowID(j, a)}) || len(to.started) != 0 {
		t.Fatalf("%+v", to)
	}
}
