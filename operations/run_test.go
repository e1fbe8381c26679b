package operations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/store"
)

// temporal remembers what it was told.
type temporal struct{ started, cancelled []string }

func (t *temporal) Start(_ context.Context, e fleet.Execution) error {
	t.started = append(t.started, e.WorkflowID+" "+string(e.Kind))
	return nil
}

func (t *temporal) Cancel(_ context.Context, e fleet.Execution) error {
	t.cancelled = append(t.cancelled, e.WorkflowID)
	return nil
}

func (w *world) dispatch(to *temporal) {
	w.t.Helper()
	for range 1000 {
		found, err := w.jobs.Dispatch(w.ctx(), to)
		must(w.t, err)
		if !found {
			return
		}
	}
}

func (w *world) entries(t fleet.Task) map[fleet.EntryStatus]int {
	w.t.Helper()
	rows, err := store.TaskEntries(w.ctx(), w.db, t.ID)
	must(w.t, err)
	counts := map[fleet.EntryStatus]int{}
	for _, e := range rows {
		counts[e.Status]++
	}
	return counts
}

func TestAReportTellsWhatRanAndWhatNeverStarted(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	r := power("power_off", rack)
	r.Components = named("compute", "nvswitch")
	task := w.submit(r)
	if b := w.begin(task); !b.Runs || b.Site != "lab" || b.Worst <= 0 {
		t.Fatalf("%+v", b)
	}
	w.begin(task) // a second try of the first activity plans nothing twice
	before := w.entries(task)
	if before[fleet.EntryPlanned] == 0 || before[fleet.EntrySkipped] == 0 {
		t.Fatalf("the plan is %v", before)
	}
	w.want(task.ID, fleet.TaskRunning, "")
	note := func(device string, status fleet.EntryStatus, code codes.Failure) {
		t.Helper()
		must(t, w.svc.Note(w.ctx(), task.ID, operations.Entry{Stage: 1, ComponentType: "compute", Phase: operations.PhaseMain, Action: "PowerControl", Device: of[device], Status: status, Attempts: 2, Code: code}))
	}
	component := func(device string, c operations.ComponentState) {
		t.Helper()
		must(t, w.svc.Component(w.ctx(), task.ID, of[device], c))
	}
	for _, device := range []string{"c1", "c2"} {
		note(device, fleet.EntryRunning, "")
		component(device, operations.ComponentState{Status: fleet.DeviceRunning, Phase: "main"})
	}
	note("c1", fleet.EntrySucceeded, "")
	note("c1", fleet.EntryRunning, "") // late: what has ended stays
	component("c1", operations.ComponentState{Status: fleet.DeviceSucceeded, LastState: "Off"})
	counted := prometheus.NewRegistry()
	must(t, w.svc.Instrument(counted))
	for range 2 { // told twice, counted once
		must(t, w.svc.OverBudget(w.ctx(), task.ID))
	}
	if err := testutil.GatherAndCompare(counted, strings.NewReader(`# HELP muster_tasks_over_budget_total Operations on racks that took longer than the worst case of their rule, by operation.
# TYPE muster_tasks_over_budget_total counter
muster_tasks_over_budget_total{operation="power_off"} 1
`)); err != nil {
		t.Error(err)
	}
	w.finish(task, jobs.Ending{Status: fleet.DeviceFailed, Code: codes.InternalError, Message: "stage 1 failed"})
	w.want(task.ID, fleet.TaskPartiallyFailed, string(codes.InternalError))
	after := w.entries(task)
	if after[fleet.EntrySucceeded] != 1 || after[fleet.EntryFailed] != 1 || after[fleet.EntryPlanned] != before[fleet.EntryPlanned]-2 || after[fleet.EntrySkipped] != before[fleet.EntrySkipped] {
		t.Errorf("%v became %v", before, after)
	}
	rows, err := store.TaskComponents(w.ctx(), w.db, task.ID)
	must(t, err)
	is := map[int64]store.TaskComponentRow{}
	for _, row := range rows {
		is[row.DeviceID] = row
	}
	if is[of["c1"]].Status != fleet.DeviceSucceeded || is[of["c1"]].LastState != "Off" || is[of["c2"]].Status != fleet.DeviceFailed || is[of["c3"]].Status != fleet.DeviceWaiting {
		t.Errorf("%+v", rows)
	}
	w.wantLocked(task)
	if row := w.task(task.ID); row.OverBudgetAt.IsZero() || row.StartedAt.IsZero() || row.FinishedAt.IsZero() {
		t.Errorf("%+v", row.Task)
	}
}

func TestACancelledTaskHoldsItsDevicesUntilAllHasEnded(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r")
	to := &temporal{}
	task := w.submit(power("power_off", rack))
	w.dispatch(to)
	if !slices.Equal(to.started, []string{task.Holder() + " task"}) {
		t.Fatalf("started %v", to.started)
	}
	w.begin(task)
	child := task.Holder() + "/stage/1/compute"
	must(t, w.svc.Child(w.ctx(), task.Holder(), child))
	must(t, w.svc.Cancel(w.ctx(), task.ID, "wrong rack", ann, nil))
	must(t, w.svc.Cancel(w.ctx(), task.ID, "again", ann, nil))
	w.want(task.ID, fleet.TaskCancellationRequested, "")
	w.dispatch(to)
	if !slices.Equal(to.cancelled, []string{task.Holder()}) {
		t.Fatalf("cancelled %v", to.cancelled)
	}
	w.finish(task, jobs.Ending{Status: fleet.DeviceCancelled, Message: "cancelled"})
	if len(w.locked(task)) == 0 {
		t.Fatal("the devices are free while a child runs")
	}
	// The converger speaks of tasks and jobs alike through the service of jobs.
	must(t, w.jobs.Close(w.ctx(), child, jobs.Ending{Status: fleet.DeviceCancelled}))
	must(t, w.jobs.Close(w.ctx(), task.Holder(), jobs.Ending{Status: fleet.DeviceCancelled}))
	w.wantLocked(task)
	w.want(task.ID, fleet.TaskCancelled, "")
	coded(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, nil), operations.CodeTaskTerminal)
	coded(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, []string{"elsewhere"}), operations.CodeTaskNotFound)
}

// What a running task says comes in the words of its history.
func TestARunningTaskWritesItsRows(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	rows := w.svc.Rows()
	r := power("power_off", rack)
	r.Components, r.Exclude = named("compute"), named("r-c3")
	task := w.submit(r)
	b, err := rows.Begin(w.ctx(), task.Holder())
	must(t, err)
	if !b.Runs || len(b.Parts) != 2 || b.Parts[0].Name != "r-c1" || len(b.Beside) != 5 { // p1, p2, n1, n2 and s1, but not c3
		t.Fatalf("%+v", b)
	}
	child := task.Holder() + "/stage/1/compute"
	must(t, rows.Child(w.ctx(), task.Holder(), child))
	write := func(e report.Entry, c ...report.Component) {
		t.Helper()
		e.Stage, e.ComponentType, e.Phase, e.Action = 1, "compute", report.Main, "PowerControl"
		must(t, rows.Record(w.ctx(), report.Record{Task: task.ID, Entries: []report.Entry{e}, Components: c}))
	}
	write(report.Entry{Device: of["c1"], Status: report.Running}, report.Component{Device: of["c1"], Status: report.Running, Phase: "PowerControl"})
	// It is cancelled: told at once, and what comes afterwards is still written.
	must(t, rows.Finish(w.ctx(), task.Holder(), report.Ending{Status: fleet.JobCancelled, Message: "cancelled"}))
	w.want(task.ID, fleet.TaskCancelled, "")
	write(report.Entry{Device: of["c1"], Status: report.Succeeded, Attempts: 2}, report.Component{Device: of["c1"], LastState: "Off"})
	write(report.Entry{Device: of["c2"], Status: report.Running})
	must(t, rows.Close(w.ctx(), child, report.Ending{}))
	if len(w.locked(task)) == 0 {
		t.Error("the devices are free before the end")
	}
	must(t, rows.Close(w.ctx(), task.Holder(), report.Ending{Status: fleet.JobCancelled}))
	w.wantLocked(task)
	must(t, rows.Record(w.ctx(), report.Record{Task: task.ID, Components: []report.Component{{Device: of["c1"], Status: report.Failed, LastState: "On"}}}))
	all, err := store.TaskComponents(w.ctx(), w.db, task.ID)
	must(t, err)
	for _, c := range all {
		if c.DeviceID == of["c1"] && (c.Status != fleet.DeviceCancelled || c.LastState != "On") {
			t.Errorf("%+v", c)
		}
	}
	if got := w.entries(task); got[fleet.EntrySucceeded] != 1 || got[fleet.EntryCancelled] != 1 {
		t.Errorf("the entries are %v", got)
	}
	again := w.submit(r)
	_, err = rows.Begin(w.ctx(), again.Holder())
	must(t, err)
	must(t, rows.Finish(w.ctx(), again.Holder(), report.Ending{Status: fleet.JobPartiallyFailed, Code: codes.InternalError, Message: "stage 1"}))
	w.want(again.ID, fleet.TaskPartiallyFailed, string(codes.InternalError))
	w.wantLocked(again)
}

func TestWhatTemporalDoesNotHaveIsRecalled(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	to := &temporal{}
	task := w.submit(power("power_off", rack))
	must(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, nil))
	w.want(task.ID, fleet.TaskCancelled, "")
	w.wantLocked(task)
	late := w.submit(power("power_off", rack))
	w.exec("update executions set dispatch_by = now() - interval '1 second' where workflow_id = $1", late.Holder())
	if n, err := w.jobs.Expire(w.ctx(), 10); err != nil || n != 1 {
		t.Errorf("%d expired, %v", n, err)
	}
	w.want(late.ID, fleet.TaskFailed, string(codes.DispatchExpired))
	w.wantLocked(late)
	gone := w.submit(power("restart", rack))
	w.dispatch(to)
	if !slices.Equal(to.started, []string{gone.Holder() + " task"}) {
		t.Errorf("started %v", to.started)
	}
	w.exec("update devices set inventory_only = true where id = $1", of["c1"])
	if b := w.begin(gone); b.Runs {
		t.Error("it runs on a device that left")
	}
	w.want(gone.ID, fleet.TaskFailed, string(codes.DeviceInventoryOnly))
	w.wantLocked(gone)
	if _, err := w.svc.Begin(w.ctx(), "task/999"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a task that is none: %v", err)
	}
}

// Between admission and start a rack may change: what nobody judged is not cut.
func TestATaskDoesNotBeginOnAnotherRackThanWasJudged(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]string{
		"a device came":    "update devices set rack_id = (select rack_id from devices where id = $1) where name = 'spare-c1'",
		"a component left": "update devices set rack_id = (select rack_id from devices where name = 'spare-c2') where id = $1",
	} {
		rack, of := w.rack(strings.ReplaceAll(name, " ", "-"))
		if name == "a device came" {
			w.rack("spare")
		}
		task := w.submit(power("power_off", rack))
		w.exec(change, of["c1"])
		if b := w.begin(task); b.Runs {
			t.Errorf("%s: it runs", name)
		}
		w.want(task.ID, fleet.TaskFailed, string(codes.RackChanged))
		w.wantLocked(task)
	}
}

func TestFailuresOfTasksTripBreakersWhichHoldTasksBack(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	task := w.submit(power("power_off", rack))
	w.begin(task)
	for _, name := range []string{"c1", "c2", "c3"} {
		must(t, w.svc.Component(w.ctx(), task.ID, of[name], operations.ComponentState{Status: fleet.DeviceFailed, Code: codes.InternalError}))
	}
	w.finish(task, jobs.Ending{Status: fleet.DeviceFailed})
	w.want(task.ID, fleet.TaskFailed, string(codes.InternalError))
	w.refused(power("power_off", rack), jobs.CodeBreakerOpen)
	held := w.submit(power("power_on", rack)) // another operation
	w.exec("insert into breakers (name, policy, workflow, rack_id, tripped_at) values ('b', 'b', 'operation_power_on', $1, now())", rack)
	to := &temporal{}
	w.dispatch(to)
	if row := w.task(held.ID); len(to.started) != 0 || row.Barred != "b" || row.Unsent != 1 {
		t.Errorf("started %v, barred by %q", to.started, row.Barred)
	}
}

func TestWhatEndedStaysInTheDatabase(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r")
	task := w.submit(power("power_off", rack))
	w.begin(task)
	w.finish(task, succeeded())
	w.exec("update task_components set status = 'failed', finished_at = now()")
	w.exec("update task_components set last_state = 'On'")
	w.exec("update task_entries set status = 'skipped'")
	for _, sql := range []string{
		"update tasks set status = 'running'", "delete from tasks", "update task_components set status = 'running'", "delete from task_components",
		"update task_entries set status = 'running'", "delete from task_entries",
	} {
		if _, err := w.db.Exec(w.ctx(), sql); err == nil {
			t.Errorf("%s was let through", sql)
		}
	}
}
