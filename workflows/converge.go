package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

const (
	conversation = 5 * time.Second // of one question to Temporal
	convergePage = 200
	convergeMost = 100_000 // executions in one round
	// outlives is how long an activity of a workflow that Temporal ended may still
	// run: until then nobody else may have the device.
	outlives = 3 * act.HeartbeatTimeout
)

// converge makes rows agree with what Temporal says of what it was given. A
// Temporal that does not answer changes nothing.
func (r *Runner) converge(ctx context.Context) {
	r.every(ctx, r.options.Converge, "compare the rows with Temporal", func(ctx context.Context) error {
		after := ""
		for range convergeMost / convergePage {
			page, err := store.SentExecutions(ctx, r.options.DB, after, convergePage)
			if err != nil || len(page) == 0 {
				return err
			}
			for i := range page {
				if err := r.agree(ctx, &page[i]); err != nil {
					return fmt.Errorf("execution %s: %w", page[i].WorkflowID, err)
				}
			}
			after = page[len(page)-1].WorkflowID
		}
		return nil
	})
}

// agree brings the rows of one execution to what Temporal says of it.
func (r *Runner) agree(ctx context.Context, e *fleet.Execution) error {
	asking, cancel := context.WithTimeout(ctx, conversation)
	defer cancel()
	told, err := r.options.Temporal.DescribeWorkflow(asking, e.WorkflowID, "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		lost, err := r.options.Jobs.Missing(ctx, e.WorkflowID)
		if lost {
			r.note(e, "missing")
		}
		if errors.Is(err, store.ErrNotFound) { // it is closed by now
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	if !e.MissingSince.IsZero() {
		if err := r.options.Jobs.Found(ctx, e.WorkflowID); err != nil {
			return err
		}
	}
	info := told.RawResponse.GetWorkflowExecutionInfo()
	status := info.GetStatus()
	if status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING || status == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
		return nil
	}
	return r.ended(ctx, e, status, info.GetCloseTime().AsTime())
}

// ended ends an execution that Temporal says has ended, which its rows do not
// say. What it started is told to end and waited for first.
func (r *Runner) ended(ctx context.Context, e *fleet.Execution, status enums.WorkflowExecutionStatus, at time.Time) error {
	end := endingOfClosed(status)
	if e.Kind == fleet.ExecutionChild {
		return r.closed(ctx, e, end, status)
	}
	children, err := store.OpenChildren(ctx, r.options.DB, e.WorkflowID)
	if err != nil {
		return err
	}
	for i := range children {
		if err := store.WantChildCancelled(ctx, r.options.DB, children[i].WorkflowID); err != nil {
			return err
		}
	}
	if len(children) == 0 && r.options.DB.Now().Sub(at) > outlives {
		return r.closed(ctx, e, end, status)
	}
	if end.Status == fleet.DeviceFailed { // its rows end with its locks
		return nil
	}
	return r.options.Jobs.Finish(ctx, e.WorkflowID, 0, end)
}

func (r *Runner) closed(ctx context.Context, e *fleet.Execution, end jobs.Ending, status enums.WorkflowExecutionStatus) error {
	// It may have closed itself since the page was read.
	now, err := store.Execution(ctx, r.options.DB, e.WorkflowID)
	if err != nil || now.State == fleet.ExecutionClosed {
		return err
	}
	if err := r.options.Jobs.Close(ctx, e.WorkflowID, end); err != nil {
		return err
	}
	r.note(e, status.String())
	return nil
}

func (r *Runner) note(e *fleet.Execution, found string) {
	r.metrics.converged.WithLabelValues(found).Inc()
	r.log.Warn("work ended in Temporal without its rows knowing: they do now", "execution", e.WorkflowID, "temporal", found)
}

// endingOfClosed says how a device ends whose workflow Temporal says is closed.
func endingOfClosed(status enums.WorkflowExecutionStatus) jobs.Ending {
	e := jobs.Ending{Status: fleet.DeviceFailed, Code: codes.InternalError, Message: "its workflow ended in Temporal as " + status.String() + " and its rows were not written"}
	switch status {
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		e = jobs.Ending{Status: fleet.DeviceCancelled, Message: "its workflow was cancelled in Temporal"}
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		e = jobs.Ending{Status: fleet.DeviceTerminated, Message: "its workflow was terminated in Temporal: what it did last is not known"}
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		e = jobs.Ending{Status: fleet.DeviceTimedOut, Message: "its workflow ran out of time in Temporal: what it did last is not known"}
	}
	return e
}
