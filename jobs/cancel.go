package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Cancel asks for the cancel of a job and gives it as it is then. What Temporal
// does not have yet is cancelled at once and never starts; of the rest the
// workflows that have no parent are told, and they tell their children. Asking
// again changes nothing. An Error: CodeJobNotFound, also for a job of a site that
// may not be seen (visible nil: every site), CodeJobTerminal.
func (s *Service) Cancel(ctx context.Context, id int64, reason string, by devices.Caller, visible []string) (fleet.Job, error) {
	var job fleet.Job
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		rows, err := store.ListJobs(ctx, tx, store.JobFilter{IDs: []int64{id}, SiteNames: visible, Limit: 1})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return &Error{CodeJobNotFound, fmt.Sprintf("there is no job %d", id)}
		}
		w := &work{}
		if w.job, err = store.LockJob(ctx, tx, id); err != nil {
			return err
		}
		job = w.job
		switch {
		case w.job.Status.Ended():
			return &Error{CodeJobTerminal, fmt.Sprintf("job %d has ended: it is %s", id, w.job.Status)}
		case !w.job.CancelRequestedAt.IsZero():
			return nil
		}
		if err := s.cancel(ctx, tx, w, strings.TrimSpace(reason), by); err != nil {
			return err
		}
		rows, err = store.ListJobs(ctx, tx, store.JobFilter{IDs: []int64{id}, Limit: 1})
		if err == nil && len(rows) == 1 {
			job = rows[0].Job
		}
		return err
	})
	return job, refusedOr(err, fmt.Sprintf("cancel job %d", id))
}

func (s *Service) cancel(ctx context.Context, tx pgx.Tx, w *work, reason string, by devices.Caller) error {
	id := w.job.ID
	if err := store.PutCancelRequest(ctx, tx, id, by.Name, reason); err != nil {
		return err
	}
	w.job.CancelRequestedAt, w.changed = s.clock(), true
	e := Ending{Status: fleet.DeviceCancelled, Message: "cancelled by " + by.Name + " before its work began"}
	if err := w.recall(ctx, tx, e, func(*fleet.Execution) bool { return true }); err != nil {
		return err
	}
	if err := store.WantCancelled(ctx, tx, id); err != nil {
		return err
	}
	if err := store.Notify(ctx, tx, store.ExecutionsChannel, id); err != nil {
		return err
	}
	if err := s.settle(ctx, tx, w); err != nil {
		return err
	}
	return store.Audit(ctx, tx, store.AuditEntry{
		Principal: by.Name, Remote: by.Remote, Action: "job.cancel", Target: fleet.JobHolder(id), Detail: map[string]any{"workflow": w.job.Workflow, "reason": reason},
	})
}

// recall ends what was not handed to Temporal and is chosen: under the lock of
// each execution's row, so that it never starts. One whose devices run was
// started all the same, by a dispatcher that died before it could say so.
func (w *work) recall(ctx context.Context, tx pgx.Tx, e Ending, chosen func(*fleet.Execution) bool) error {
	all, err := store.LockExecutions(ctx, tx, w.job.ID)
	if err != nil {
		return err
	}
	running, err := store.RunningJobDevices(ctx, tx, w.job.ID, nil)
	if err != nil {
		return err
	}
	runs := make(map[int64]bool, len(running))
	for i := range running {
		runs[running[i].DeviceID] = true
	}
	var ids []int64
	var started []string
	batch := false
	for i := range all {
		x := &all[i]
		switch {
		case x.State != fleet.ExecutionUnsent || !chosen(x):
		case runs[x.DeviceID] || x.DeviceID == 0 && len(runs) > 0:
			started = append(started, x.WorkflowID)
		default:
			w.close(x.WorkflowID)
			ids = append(ids, x.DeviceID)
			batch = batch || x.DeviceID == 0
		}
	}
	if err := store.MarkStarted(ctx, tx, started); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	if batch {
		ids = nil
	}
	return w.end(ctx, tx, ids, e, true)
}
