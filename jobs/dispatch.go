package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// Sender hands executions to Temporal.
type Sender interface {
	// Start starts an execution by its workflow id. One that was started already
	// counts as started.
	Start(ctx context.Context, e fleet.Execution) error
	// Cancel asks for the cancel of an execution. One that is not there counts as
	// cancelled: what became of it is found out otherwise.
	Cancel(ctx context.Context, e fleet.Execution) error
}

// Dispatch hands the execution that is due longest to Temporal, a start before a
// cancel, and holds its row meanwhile. found is false where there is nothing to
// do now. A sender that fails is no error here: the execution keeps why, and is
// due again later. Any number may dispatch at once.
func (s *Service) Dispatch(ctx context.Context, to Sender) (found bool, err error) {
	err = s.db.Tx(ctx, func(tx pgx.Tx) error {
		found = false
		e, err := store.ClaimUnsent(ctx, tx)
		send := to.Start
		if err == nil && e == nil {
			e, err = store.ClaimCancel(ctx, tx)
			send = to.Cancel
		}
		if err != nil || e == nil {
			return err
		}
		found = true
		sending, cancel := context.WithTimeout(ctx, s.options.SendTimeout)
		defer cancel()
		if err := send(sending, *e); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return store.MarkTrouble(ctx, tx, e.WorkflowID, err.Error(), backOff(e.Tries))
		}
		return store.MarkSent(ctx, tx, e)
	})
	if err != nil {
		return false, fmt.Errorf("dispatch: %w", err)
	}
	return found, nil
}

// backOff is how long what could not be sent waits: 1, 2, 4 … 60 seconds.
func backOff(tries int) time.Duration {
	return min(time.Second<<min(tries, 6), time.Minute)
}

// Expire fails what was not handed to Temporal in time, of up to most jobs and as
// many tasks, and tells of how many it did.
func (s *Service) Expire(ctx context.Context, most int) (n int, err error) {
	late, err := store.LateJobs(ctx, s.db, most)
	if err != nil {
		return 0, err
	}
	for _, id := range late {
		err := s.db.Tx(ctx, func(tx pgx.Tx) error {
			w := &work{}
			var err error
			if w.job, err = store.LockJob(ctx, tx, id); err != nil {
				return err
			}
			e := Ending{Status: fleet.DeviceFailed, Code: codes.DispatchExpired, Message: "the work was not handed to Temporal in time; nothing was done"}
			if err := w.recall(ctx, tx, e, func(x *fleet.Execution) bool {
				return !x.DispatchBy.IsZero() && !s.db.Now().Before(x.DispatchBy)
			}); err != nil {
				return err
			}
			return s.settle(ctx, tx, w)
		})
		if err != nil {
			return n, fmt.Errorf("expire job %d: %w", id, err)
		}
		n++
	}
	if s.tasks == nil {
		return n, nil
	}
	more, err := s.tasks.Expire(ctx, most)
	return n + more, err
}

// Missing notes that a reachable Temporal knows nothing of an execution that it
// had. When it has said so for long enough, what of its devices has not ended
// fails and is free: it is never started again. lost tells so.
func (s *Service) Missing(ctx context.Context, workflowID string) (lost bool, err error) {
	since, err := store.MarkMissing(ctx, s.db, workflowID)
	if err != nil || since < s.options.LostAfter {
		return false, err
	}
	return true, s.Close(ctx, workflowID, Ending{Status: fleet.DeviceFailed, Code: codes.WorkflowHistoryLost, Message: "Temporal knows nothing of this work any more: what it did is not known"})
}

// Found takes Missing back.
func (s *Service) Found(ctx context.Context, workflowID string) error {
	return store.MarkFound(ctx, s.db, workflowID)
}
