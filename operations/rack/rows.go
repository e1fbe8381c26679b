package rack

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows"
	"github.com/musterhq/muster/workflows/act"
)

// Rows is what is kept of a running task. Every call may be made again.
type Rows interface {
	// Begin makes the task's rows running before any effect, and plans its report.
	// Begun.Runs is false where nothing is to be done, as after a cancel.
	Begin(ctx context.Context, workflowID string) (report.Begun, error)
	// Record writes entries and components; terminal ones stay.
	Record(ctx context.Context, r report.Record) error
	OverBudget(ctx context.Context, task int64) error
	// Finish ends the task's rows when nothing of it runs any more. Those of a task
	// that was not cancelled free its devices and close its execution.
	Finish(ctx context.Context, workflowID string, e report.Ending) error
	// Close notes that an execution, of a task or of a child, has ended with
	// everything that it started.
	Close(ctx context.Context, workflowID string, e report.Ending) error
	// Child records a child before it starts.
	Child(ctx context.Context, parent, child string) error
}

// Names of the activities that write rows.
const (
	actBegin      = "task_begin"
	actRecord     = "task_record"
	actOverBudget = "task_over_budget"
	actFinish     = "task_finish"
	actClose      = "task_close"
	actChild      = "task_child"
)

// Registry is a worker, as far as work is given to it.
type Registry interface {
	worker.WorkflowRegistry
	worker.ActivityRegistry
}

type rows struct{ Rows }

// RegisterMain gives a worker of workflows the task, its steps and the activities
// that write their rows. The prefix is that of every queue.
func RegisterMain(w Registry, prefix string, r Rows) {
	registerWorkflows(w, prefix)
	k := rows{r}
	for _, one := range []struct {
		name string
		do   any
	}{{actBegin, k.begin}, {actRecord, k.record}, {actOverBudget, k.overBudget}, {actFinish, k.finish}, {actClose, k.close}, {actChild, k.child}} {
		w.RegisterActivityWithOptions(one.do, activity.RegisterOptions{Name: one.name})
	}
}

// Work is what the workers of a replica take for tasks.
func Work(r Rows) workflows.Work {
	return workflows.Work{
		Main: func(w worker.Registry, prefix string) { RegisterMain(w, prefix, r) },
		Site: RegisterSite,
	}
}

// registerWorkflows gives a worker, or a replayer, the workflows.
func registerWorkflows(w worker.WorkflowRegistry, prefix string) {
	w.RegisterWorkflowWithOptions(taskWorkflow(prefix), workflow.RegisterOptions{Name: TaskWorkflow})
	w.RegisterWorkflowWithOptions(stepWorkflow, workflow.RegisterOptions{Name: StepWorkflow})
}

func (k rows) begin(ctx context.Context) (report.Begun, error) {
	b, err := k.Begin(ctx, activity.GetInfo(ctx).WorkflowExecution.ID)
	return b, written(err)
}

func (k rows) record(ctx context.Context, r report.Record) error { return written(k.Record(ctx, r)) }

func (k rows) overBudget(ctx context.Context, task int64) error {
	return written(k.OverBudget(ctx, task))
}

func (k rows) finish(ctx context.Context, e report.Ending) error {
	return written(k.Finish(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, e))
}

func (k rows) close(ctx context.Context, id string, e report.Ending) error {
	return written(k.Close(ctx, id, e))
}

func (k rows) child(ctx context.Context, child string) error {
	return written(k.Child(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, child))
}

// written lets what can never succeed end: the rows are gone.
func written(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return temporal.NewNonRetryableApplicationError(err.Error(), "", nil)
	}
	return err
}

// write runs an activity that writes rows, although the work may be cancelled. The
// context is the running coroutine's own.
func write(ctx workflow.Context, name string, in ...any) error {
	apart, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	return act.Write(apart, name, nil, in...)
}

// record writes what a report says now.
func record(ctx workflow.Context, r report.Record) error { return write(ctx, actRecord, r) }
