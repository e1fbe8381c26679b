package operations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// The phases of a step, as entries name them.
const (
	PhasePre  = "pre"
	PhaseMain = "main"
	PhasePost = "post"
)

// Entry is one row of a task's report: an action of a step, with one component or
// of the whole phase.
type Entry struct {
	Stage         int
	ComponentType string
	Phase         string // pre, main, post
	Index         int    // of the action within the phase
	Action        string
	Device        int64 // 0: of the whole phase
	Status        fleet.EntryStatus
	Attempts      int
	Code          codes.Failure
	Message       string
}

// ComponentState is what is known of a component. Empty fields leave what was said
// before.
type ComponentState struct {
	Status    fleet.JobDeviceStatus
	Phase     string
	Code      codes.Failure
	Message   string
	LastState string // that was seen of it
}

// Note writes one row of a task's report; one that has ended stays as it is, which
// is no error.
func (s *Service) Note(ctx context.Context, task int64, e Entry) error {
	row := fleet.TaskEntry{
		TaskID: task, Stage: e.Stage, ComponentType: e.ComponentType, Phase: e.Phase, Index: e.Index, Action: e.Action, DeviceID: e.Device,
		Status: e.Status, Attempts: e.Attempts, Code: string(e.Code), Message: e.Message,
	}
	written, err := store.PutTaskEntry(ctx, s.db, &row)
	if err != nil || !written {
		return err
	}
	return store.Notify(ctx, s.db, store.TasksChannel, task)
}

// Component writes what is known of a component; one that has ended stays as it
// is but for its last state, which is no error.
func (s *Service) Component(ctx context.Context, task, device int64, c ComponentState) error {
	row := fleet.TaskComponent{TaskID: task, DeviceID: device, Status: c.Status, Phase: c.Phase, FailureCode: string(c.Code), FailureMessage: c.Message, LastState: c.LastState}
	written, err := store.PutTaskComponent(ctx, s.db, &row)
	if err != nil || !written {
		return err
	}
	return store.Notify(ctx, s.db, store.TasksChannel, task)
}

// OverBudget notes that a task takes longer than its rule lets one expect. Nothing
// ends by it.
func (s *Service) OverBudget(ctx context.Context, task int64) error {
	written, err := store.PutOverBudget(ctx, s.db, task)
	if err != nil || !written {
		return err
	}
	if s.overBudget != nil {
		t, err := store.ListTasks(ctx, s.db, store.TaskFilter{IDs: []int64{task}, Limit: 1})
		if err != nil {
			return err
		}
		for i := range t {
			s.overBudget.WithLabelValues(t[i].Operation).Inc()
		}
	}
	s.log.Warn("a task takes longer than its rule's worst case, see what holds it up", "task", task, "code", "TASK_OVER_BUDGET")
	return store.Notify(ctx, s.db, store.TasksChannel, task)
}

// Child records a child before its parent starts it. Recording it again changes
// nothing.
func (s *Service) Child(ctx context.Context, parent, child string) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error { return store.InsertChild(ctx, tx, parent, child, 0) })
}

// Finish ends a task. With one that succeeded or failed what of its components and
// entries runs ends so as well, and what never started stays so; its devices are
// free at once, unless a child still works. Of any other one the rows go on to be
// written, and the devices are held, until its execution is closed. One that has
// ended stays as it is, which is no error.
func (s *Service) Finish(ctx context.Context, workflowID string, e jobs.Ending) error {
	return s.finishAs(ctx, workflowID, e, "")
}

// finishAs is Finish with a status of the task that does not follow from the
// ending; "": it does.
func (s *Service) finishAs(ctx context.Context, workflowID string, e jobs.Ending, as fleet.TaskStatus) error {
	if !e.Status.Ended() {
		return fmt.Errorf("finish %s: %q is no end", workflowID, e.Status)
	}
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		t, x, err := taskOf(ctx, tx, workflowID)
		if err != nil {
			return err
		}
		itself := e.Status == fleet.DeviceSucceeded || e.Status == fleet.DeviceFailed
		if !t.Status.Ended() {
			if err := s.finish(ctx, tx, &t, e, as, itself); err != nil {
				return err
			}
		}
		if x.Kind == fleet.ExecutionTask && itself {
			if err := store.CloseExecutions(ctx, tx, []string{workflowID}); err != nil {
				return err
			}
		}
		return s.free(ctx, tx, t.ID)
	})
	return refusedOr(err, "finish "+workflowID)
}

// Close notes that an execution has ended with everything it started. A task that
// has not ended yet ends so; of a child e is not looked at. The devices are free
// when nothing works for the task.
func (s *Service) Close(ctx context.Context, workflowID string, e jobs.Ending) error {
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		t, x, err := taskOf(ctx, tx, workflowID)
		if err != nil || x.State == fleet.ExecutionClosed {
			return err
		}
		if x.Kind == fleet.ExecutionTask {
			if !e.Status.Ended() {
				return fmt.Errorf("%q is no end", e.Status)
			}
			if err := s.finish(ctx, tx, &t, e, "", true); err != nil {
				return err
			}
		}
		if err := store.CloseExecutions(ctx, tx, []string{workflowID}); err != nil {
			return err
		}
		return s.free(ctx, tx, t.ID)
	})
	return refusedOr(err, "close "+workflowID)
}

// taskOf reads an execution with its task's row held.
func taskOf(ctx context.Context, tx pgx.Tx, workflowID string) (fleet.Task, fleet.Execution, error) {
	t, err := store.LockTaskOf(ctx, tx, workflowID)
	if err != nil {
		return t, fleet.Execution{}, err
	}
	e, err := store.Execution(ctx, tx, workflowID) // as it is with the task held
	return t, e, err
}

// finish ends what of a locked task has not ended: the task itself, and with rows
// what of its components and entries runs.
func (s *Service) finish(ctx context.Context, tx pgx.Tx, t *fleet.Task, e jobs.Ending, as fleet.TaskStatus, withRows bool) error {
	if e.Status == fleet.DeviceFailed && e.Code == "" {
		e.Code = codes.InternalError
	}
	if e.Status == fleet.DeviceSucceeded {
		e.Code, e.Message = "", ""
	}
	if withRows {
		if err := store.EndTaskRows(ctx, tx, t.ID, store.Ending{Status: e.Status, Code: string(e.Code), Message: e.Message}); err != nil {
			return err
		}
	}
	if t.Status.Ended() {
		return nil
	}
	rows, err := store.TaskComponents(ctx, tx, t.ID)
	if err != nil {
		return err
	}
	status, failed, some := fleet.TaskStatus(e.Status), []int64(nil), false
	for i := range rows {
		switch rows[i].Status {
		case fleet.DeviceSucceeded:
			some = true
		case fleet.DeviceFailed, fleet.DeviceTimedOut:
			failed = append(failed, rows[i].DeviceID)
		}
	}
	switch {
	case as != "":
		status = as
	case status == fleet.TaskFailed && some:
		status = fleet.TaskPartiallyFailed
	}
	if err := s.end(ctx, tx, t, status, string(e.Code), e.Message); err != nil || len(failed) == 0 {
		return err
	}
	return s.jobs.Trip(ctx, tx, fleet.OperationWork(t.Operation), t.Holder(), t.SiteID, failed)
}

// end writes the end of a locked task, and frees what nothing works on any more.
func (s *Service) end(ctx context.Context, tx pgx.Tx, t *fleet.Task, as fleet.TaskStatus, code, message string) error {
	if err := store.PutTask(ctx, tx, t.ID, store.TaskChange{Status: as, FailureCode: code, FailureMessage: message}); err != nil {
		return err
	}
	t.Status = as
	return s.free(ctx, tx, t.ID)
}

// free ends the locks of a task that has ended, and lets those who wait for them
// look again.
func (s *Service) free(ctx context.Context, tx pgx.Tx, id int64) error {
	freed, err := store.FreeTask(ctx, tx, id)
	if err != nil {
		return err
	}
	if freed {
		if err := store.Notify(ctx, tx, store.ExecutionsChannel, id); err != nil {
			return err
		}
	}
	return store.Notify(ctx, tx, store.TasksChannel, id)
}
