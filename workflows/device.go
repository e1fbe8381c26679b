package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
)

// unit is the work on one device of one job, in a workflow.
type unit struct {
	begun
	queue string // of its site
}

// step is one activity at the unit's site.
type step struct {
	phase   string // as people see it
	percent int    // of the whole, when it begins
	name    string // of the activity

	// lost is what the device fails with when workers die over it again and again.
	lost codes.Failure
	// within bounds one try, default 5 min.
	within time.Duration
	// tries bounds how often it is tried, default 8; those that a worker did not
	// survive count. -1: no bound, for what only waits and ends by itself.
	tries int32
}

// do runs a step. A cancel of the workflow is waited out: the step has ended when
// do returns.
func (u *unit) do(ctx workflow.Context, s step, in, out any) error {
	if err := u.tell(ctx, s.phase, s.percent); err != nil {
		return err
	}
	retries := temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 8}
	if s.tries != 0 {
		retries.MaximumAttempts = max(s.tries, 0)
	}
	within := 5 * time.Minute
	if s.within > 0 {
		within = s.within
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: u.queue, StartToCloseTimeout: within, HeartbeatTimeout: heartbeatTimeout, WaitForCancellation: true, RetryPolicy: &retries, Summary: s.phase,
	})
	err := workflow.ExecuteActivity(ctx, s.name, in).Get(ctx, out)
	if temporal.IsTimeoutError(err) {
		return &lostError{code: s.lost, phase: s.phase, err: err}
	}
	return err
}

func (u *unit) tell(ctx workflow.Context, phase string, percent int) error {
	return write(ctx, actProgress, nil, progress{Job: u.Job, Device: u.Device, Phase: phase, Percent: percent})
}

// write runs an activity that writes rows, for as long as it takes: nothing goes
// on before it is written.
func write(ctx workflow.Context, name string, out any, in ...any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, HeartbeatTimeout: heartbeatTimeout, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
	return workflow.ExecuteActivity(ctx, name, in...).Get(ctx, out)
}

// deviceWorkflow frames what is to be done with a device: nothing happens before
// its row says that it runs, and its row ends with it, whatever becomes of it.
func deviceWorkflow(prefix string, do func(workflow.Context, *unit) error) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		apart, stop := workflow.NewDisconnectedContext(ctx) // rows are written although the work is cancelled
		defer stop()
		u := &unit{}
		if err := write(apart, actBegin, &u.begun); err != nil || !u.Runs {
			return err
		}
		u.queue = siteQueue(prefix, u.Site)
		done, settle := workflow.NewFuture(apart)
		workflow.Go(ctx, func(ctx workflow.Context) { settle.SetError(do(ctx, u)) })
		cancelled := false
		workflow.NewSelector(apart).
			AddFuture(done, func(workflow.Future) {}).
			AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { cancelled = true }).
			Select(apart)
		if cancelled { // told at once; the device stays locked
			e := jobs.Ending{Status: fleet.DeviceCancelled, Message: "cancelled while its work ran"}
			if err := write(apart, actFinish, nil, u.Device, ending(e)); err != nil {
				return err
			}
		}
		e := endingOf(done.Get(apart, nil)) // every activity has ended
		if !cancelled {
			if err := write(apart, actFinish, nil, u.Device, ending(e)); err != nil {
				return err
			}
		}
		if cancelled || e.Status == fleet.DeviceCancelled {
			return write(apart, actClose, nil, ending{Status: fleet.DeviceCancelled})
		}
		return nil
	}
}
