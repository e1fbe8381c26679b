package workflows

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

const (
	dispatchers  = 4    // that hand over at a time
	dispatchMost = 1000 // by each, before the next look
)

// sender hands executions to Temporal.
type sender struct {
	client  client.Client
	queue   string
	metrics *metrics
	failed  atomic.Bool // since it was last set back
}

var _ jobs.Sender = (*sender)(nil)

// Start starts a workflow under the execution's id, once for ever: one that ran
// to its end is not begun again.
func (s *sender) Start(ctx context.Context, e fleet.Execution) error {
	name := e.Workflow
	if e.Kind == fleet.ExecutionTask { // one workflow carries out every operation
		name = fleet.TaskWorkflow
	}
	_, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: e.WorkflowID, TaskQueue: s.queue,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, name)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		err = nil
	}
	return s.note("start", err)
}

// Cancel asks for the cancel of a workflow.
func (s *sender) Cancel(ctx context.Context, e fleet.Execution) error {
	err := s.client.CancelWorkflow(ctx, e.WorkflowID, "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) { // or it has ended
		err = nil
	}
	return s.note("cancel", err)
}

func (s *sender) note(act string, err error) error {
	result := "taken"
	if err != nil {
		result = "failed"
		s.failed.Store(true)
	}
	s.metrics.handed.WithLabelValues(act, result).Inc()
	return err
}

// dispatch hands over what is due, whenever the database says that there is
// something and every little while besides.
func (r *Runner) dispatch(ctx context.Context) {
	r.every(ctx, 0, "hand work to Temporal", func(ctx context.Context) error {
		resting, cancel := context.WithTimeout(ctx, r.options.Look)
		defer cancel()
		conn, err := r.options.DB.Acquire(resting)
		if err == nil {
			defer conn.Release()
			_, err = conn.Exec(resting, "listen "+store.ExecutionsChannel) // before the look: nothing comes unheard
		}
		if err == nil {
			err = r.handOver(ctx)
		}
		if err != nil || r.sender.failed.Swap(false) {
			<-resting.Done()
			return err
		}
		// A time-out here closes the connection; the pool replaces it.
		_, _ = conn.Conn().WaitForNotification(resting)
		return nil
	})
}

// handOver hands over what is due now. While Temporal takes nothing, little is
// tried: each try holds a row.
func (r *Runner) handOver(ctx context.Context) error {
	_, err := r.options.Jobs.Promote(ctx) // what others held may be free; where that fails, starts and cancels go on
	var group sync.WaitGroup
	errs := make([]error, dispatchers)
	for i := range errs {
		group.Go(func() {
			for range dispatchMost {
				found, err := r.options.Jobs.Dispatch(ctx, r.sender)
				if errs[i] = err; err != nil || !found || r.sender.failed.Load() {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(append(errs, err)...)
}

const (
	expireMost = 100   // jobs in one round
	forgetMost = 1_000 // keys in one round
)

// keepHouse ends what was not handed over in time, and forgets old keys.
func (r *Runner) keepHouse(ctx context.Context) {
	r.every(ctx, r.options.Keep, "end what is too late", func(ctx context.Context) error {
		n, err := r.options.Jobs.Expire(ctx, expireMost)
		if n > 0 {
			r.log.Warn("work was not handed to Temporal in time and has failed: see whether Temporal is there", "jobs", n)
		}
		_, forgetting := store.ForgetIdempotencyKeys(ctx, r.options.DB, forgetMost)
		return errors.Join(err, forgetting)
	})
}
