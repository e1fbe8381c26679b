package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// Cancel asks for the cancel of a task and gives it as it is then. One that waits,
// or that Temporal does not have yet, is cancelled at once and never starts; of
// one that runs the workflow is told, and it ends when all that it started has.
// Asking again changes nothing. A jobs.Error: CodeTaskNotFound, also for a task of
// a site that may not be seen (visible nil: every site), CodeTaskTerminal.
func (s *Service) Cancel(ctx context.Context, id int64, reason string, by devices.Caller, visible []string) error {
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		rows, err := store.ListTasks(ctx, tx, store.TaskFilter{IDs: []int64{id}, SiteNames: visible, Limit: 1})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return refuse(CodeTaskNotFound, "there is no task %d", id)
		}
		t, err := store.LockTask(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case t.Status.Ended():
			return refuse(CodeTaskTerminal, "task %d has ended: it is %s", id, t.Status)
		case !t.CancelRequestedAt.IsZero():
			return nil
		}
		return s.cancel(ctx, tx, &t, strings.TrimSpace(reason), by)
	})
	return refusedOr(err, fmt.Sprintf("cancel task %d", id))
}

func (s *Service) cancel(ctx context.Context, tx pgx.Tx, t *fleet.Task, reason string, by devices.Caller) error {
	if err := store.PutTaskCancel(ctx, tx, t.ID, by.Name, reason); err != nil {
		return err
	}
	recalled, err := s.recall(ctx, tx, t, fleet.TaskCancelled, "", "cancelled by "+by.Name+" before its work began")
	if err != nil {
		return err
	}
	if !recalled {
		if err := store.PutTask(ctx, tx, t.ID, store.TaskChange{Status: fleet.TaskCancellationRequested}); err != nil {
			return err
		}
		if err := store.WantTaskCancelled(ctx, tx, t.ID); err != nil {
			return err
		}
		if err := store.Notify(ctx, tx, store.ExecutionsChannel, t.ID); err != nil {
			return err
		}
		if err := store.Notify(ctx, tx, store.TasksChannel, t.ID); err != nil {
			return err
		}
	}
	return store.Audit(ctx, tx, store.AuditEntry{
		Principal: by.Name, Remote: by.Remote, Action: "operation.cancel", Target: t.Holder(), Detail: map[string]any{"operation": t.Operation, "reason": reason},
	})
}

// recall ends a locked task that Temporal does not have: under the lock of its
// execution's row, so that it never starts. One that runs was started all the same,
// by a dispatcher that died before it could say so.
func (s *Service) recall(ctx context.Context, tx pgx.Tx, t *fleet.Task, as fleet.TaskStatus, code codes.Failure, message string) (bool, error) {
	if t.Status == fleet.TaskQueued {
		return true, s.end(ctx, tx, t, as, string(code), message)
	}
	all, err := store.LockTaskExecutions(ctx, tx, t.ID)
	if err != nil {
		return false, err
	}
	for i := range all {
		x := &all[i]
		if x.Kind != fleet.ExecutionTask || x.State != fleet.ExecutionUnsent {
			continue
		}
		if t.Status != fleet.TaskPending {
			return false, store.MarkStarted(ctx, tx, []string{x.WorkflowID})
		}
		if err := store.CloseExecutions(ctx, tx, []string{x.WorkflowID}); err != nil {
			return false, err
		}
		return true, s.end(ctx, tx, t, as, string(code), message)
	}
	return false, nil
}

const waitedOut = "others held devices of the rack for longer than it was to wait; nothing was done"

// Expire ends what was not handed to Temporal in time and what has waited long
// enough for others, up to most of each, and tells of how many.
func (s *Service) Expire(ctx context.Context, most int) (n int, err error) {
	var errs []error
	for _, late := range []struct {
		find    func(context.Context, store.Querier, int) ([]int64, error)
		as      fleet.TaskStatus
		code    codes.Failure
		message string
		queued  bool
	}{
		{store.LateTasks, fleet.TaskFailed, codes.DispatchExpired, "the work was not handed to Temporal in time; nothing was done", false},
		{store.LateQueued, fleet.TaskExpired, "", waitedOut, true},
	} {
		ids, err := late.find(ctx, s.db, most)
		if err != nil {
			errs = append(errs, err)
		}
		for _, id := range ids { // one that is held keeps no other from its end
			ended := false
			if err := s.db.Tx(ctx, func(tx pgx.Tx) error {
				t, err := store.LockTask(ctx, tx, id)
				if err != nil || t.Status.Ended() || late.queued != (t.Status == fleet.TaskQueued) {
					return err
				}
				ended, err = s.recall(ctx, tx, &t, late.as, late.code, late.message)
				return err
			}); err != nil {
				errs = append(errs, fmt.Errorf("expire task %d: %w", id, err))
			}
			if ended {
				n++
			}
		}
	}
	return n, errors.Join(errs...)
}
