package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// Ending is how a device of a job ends.
type Ending struct {
	Status  fleet.JobDeviceStatus
	Code    codes.Failure // of one that failed; without a code it is codes.InternalError
	Message string
}

// stored is the ending as it is written.
func (e Ending) stored() store.Ending {
	switch {
	case e.Status == fleet.DeviceSucceeded:
		return store.Ending{Status: e.Status}
	case e.Status == fleet.DeviceFailed && e.Code == "":
		e.Code = codes.InternalError
	}
	return store.Ending{Status: e.Status, Code: string(e.Code), Message: e.Message}
}

// Begun tells a workflow's first activity what it works on.
type Begun struct {
	Job     fleet.Job
	Devices []fleet.JobDevice // that run; none: the workflow ends without an effect
}

// Begin makes the waiting devices of an execution running, before any effect:
// an empty row proves that nothing happened. Devices that became inventory-only
// are failed instead; after a cancel those that wait are cancelled. Calling it
// again gives what still runs. If nothing does, the execution is closed.
func (s *Service) Begin(ctx context.Context, workflowID string) (Begun, error) {
	var b Begun
	err := s.changing(ctx, workflowID, func(tx pgx.Tx, w *work) error {
		if w.execution.State == fleet.ExecutionClosed {
			b = Begun{Job: w.job}
			return nil
		}
		if !w.job.CancelRequestedAt.IsZero() {
			if err := w.end(ctx, tx, w.devices(), Ending{Status: fleet.DeviceCancelled, Message: "cancelled before its work began"}, true); err != nil {
				return err
			}
		} else if err := w.start(ctx, tx); err != nil {
			return err
		}
		running, err := store.RunningJobDevices(ctx, tx, w.job.ID, w.devices())
		if err != nil {
			return err
		}
		if len(running) == 0 {
			w.close(w.execution.WorkflowID)
		}
		b = Begun{Job: w.job, Devices: running}
		return nil
	})
	if err != nil {
		return Begun{}, refusedOr(err, "begin "+workflowID)
	}
	return b, nil
}

func (w *work) start(ctx context.Context, tx pgx.Tx) error {
	barred, err := store.UnworkableJobDevices(ctx, tx, w.job.ID, w.devices())
	if err != nil {
		return err
	}
	if len(barred) > 0 {
		e := Ending{Status: fleet.DeviceFailed, Code: codes.DeviceInventoryOnly, Message: "the device became inventory-only, or left the inventory, before its work began"}
		if err := w.end(ctx, tx, barred, e, true); err != nil {
			return err
		}
	}
	w.changed = true
	return store.StartJobDevices(ctx, tx, w.job.ID, w.devices())
}

// Progress writes how far a device of a job is, in percent. One that has ended
// keeps what it has, which is no error.
func (s *Service) Progress(ctx context.Context, jobID, deviceID int64, phase string, percent int) error {
	written, err := store.PutProgress(ctx, s.db, jobID, deviceID, phase, percent)
	if err != nil || !written {
		return err
	}
	return store.Notify(ctx, s.db, store.JobsChannel, jobID)
}

// Finish ends a device of an execution, 0 for all of them: rows that have ended
// already stay as they are, which is no error. A device that succeeded or failed
// is free at once, unless a child still works on it; one that was cancelled,
// terminated or timed out is so when its execution is closed.
func (s *Service) Finish(ctx context.Context, workflowID string, deviceID int64, e Ending) error {
	if !e.Status.Ended() {
		return fmt.Errorf("finish %s: %q is no end", workflowID, e.Status)
	}
	if other, err := s.ofTask(ctx, workflowID); err != nil || other {
		if err == nil {
			err = s.tasks.Finish(ctx, workflowID, e)
		}
		return refusedOr(err, "finish "+workflowID)
	}
	err := s.changing(ctx, workflowID, func(tx pgx.Tx, w *work) error {
		ids := w.devices()
		if deviceID != 0 {
			if len(ids) > 0 && !slices.Contains(ids, deviceID) {
				return fmt.Errorf("device %d is not its own", deviceID)
			}
			ids = []int64{deviceID}
		}
		if err := w.end(ctx, tx, ids, e, false); err != nil {
			return err
		}
		if w.execution.Kind == fleet.ExecutionChild || e.Status != fleet.DeviceSucceeded && e.Status != fleet.DeviceFailed {
			return nil
		}
		if w.execution.DeviceID == 0 {
			if open, err := store.OpenJobDevices(ctx, tx, w.job.ID); err != nil || open > 0 {
				return err
			}
		}
		w.close(w.execution.WorkflowID)
		return nil
	})
	return refusedOr(err, "finish "+workflowID)
}

// Child records a child before its parent starts it; deviceID 0: it works on
// what its parent works on. Recording it again changes nothing.
func (s *Service) Child(ctx context.Context, parent, child string, deviceID int64) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error { return store.InsertChild(ctx, tx, parent, child, deviceID) })
}

// Close notes that an execution has ended with everything it started: a parent's
// last activity after a cancel, a child's end, or what Temporal said of it. What
// of its devices has not ended yet ends so; a child's devices are its parent's to
// end, and e is not looked at. The devices are free when nothing works on them.
func (s *Service) Close(ctx context.Context, workflowID string, e Ending) error {
	if other, err := s.ofTask(ctx, workflowID); err != nil || other {
		if err == nil {
			err = s.tasks.Close(ctx, workflowID, e)
		}
		return refusedOr(err, "close "+workflowID)
	}
	err := s.changing(ctx, workflowID, func(tx pgx.Tx, w *work) error {
		if w.execution.State == fleet.ExecutionClosed {
			return nil
		}
		if w.execution.Kind != fleet.ExecutionChild {
			if !e.Status.Ended() {
				return fmt.Errorf("%q is no end", e.Status)
			}
			if err := w.end(ctx, tx, w.devices(), e, false); err != nil {
				return err
			}
		}
		w.close(w.execution.WorkflowID)
		return nil
	})
	return refusedOr(err, "close "+workflowID)
}

// work is one execution of a job under change, its job's row held.
type work struct {
	job       fleet.Job
	execution fleet.Execution
	ended     []int64  // devices that this change ended
	closing   []string // executions
	changed   bool     // the job's status may have
	failed    bool     // some of ended failed
}

// devices are the ids that the execution works on; nil: all of the job.
func (w *work) devices() []int64 {
	if w.execution.DeviceID == 0 {
		return nil
	}
	return []int64{w.execution.DeviceID}
}

func (w *work) close(workflowID string) { w.closing = append(w.closing, workflowID) }

// end ends those of the devices that have not; waiting: only what did not start.
func (w *work) end(ctx context.Context, tx pgx.Tx, ids []int64, e Ending, waiting bool) error {
	ended, err := store.EndJobDevices(ctx, tx, w.job.ID, ids, e.stored(), waiting)
	if err != nil {
		return err
	}
	w.ended = append(w.ended, ended...)
	w.changed = w.changed || len(ended) > 0
	w.failed = w.failed || len(ended) > 0 && (e.Status == fleet.DeviceFailed || e.Status == fleet.DeviceTimedOut)
	return nil
}

// changing runs f on one execution with its job's row held, and settles what
// follows from it.
func (s *Service) changing(ctx context.Context, workflowID string, f func(tx pgx.Tx, w *work) error) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error {
		job, err := store.LockJobOf(ctx, tx, workflowID)
		if err != nil {
			return err
		}
		e, err := store.Execution(ctx, tx, workflowID) // as it is with the job held
		if err != nil {
			return err
		}
		w := &work{job: job, execution: e}
		if err := f(tx, w); err != nil {
			return err
		}
		return s.settle(ctx, tx, w)
	})
}

// settle makes job, executions, locks and breakers agree with its devices.
func (s *Service) settle(ctx context.Context, tx pgx.Tx, w *work) error {
	if !w.changed && len(w.closing) == 0 {
		return nil
	}
	if len(w.closing) > 0 {
		if err := store.CloseExecutions(ctx, tx, w.closing); err != nil {
			return err
		}
	}
	if w.changed {
		counts, err := store.CountJobDevices(ctx, tx, w.job.ID)
		if err != nil {
			return err
		}
		is := fleet.AggregateJob(counts, !w.job.CancelRequestedAt.IsZero())
		if is != w.job.Status {
			if err := store.PutJobStatus(ctx, tx, w.job.ID, is); err != nil {
				return err
			}
		}
		w.job.Status = is
	}
	if err := w.free(ctx, tx); err != nil {
		return err
	}
	if w.failed {
		if err := s.trip(ctx, tx, failures{w.job.Workflow, w.job.Holder(), w.job.SiteID, w.ended}); err != nil {
			return err
		}
	}
	return store.Notify(ctx, tx, store.JobsChannel, w.job.ID)
}

// free ends the locks that nothing needs any more.
func (w *work) free(ctx context.Context, tx pgx.Tx) error {
	if len(w.closing) == 0 && len(w.ended) == 0 {
		return nil
	}
	ids := w.ended
	if len(w.closing) > 0 { // what ended before may be free now
		ids = w.devices()
	}
	if err := store.FreeLocks(ctx, tx, w.job.ID, ids); err != nil || !w.job.Status.Ended() {
		return err
	}
	return store.FreeHeld(ctx, tx, w.job.ID)
}
