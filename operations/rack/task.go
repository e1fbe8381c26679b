package rack

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/workflows"
	"github.com/musterhq/muster/workflows/act"
)

// Names of the workflows.
const (
	TaskWorkflow = fleet.TaskWorkflow
	StepWorkflow = "rack_step"
)

// longestBudget is the longest figure that is watched.
const longestBudget = 10 * 365 * 24 * time.Hour

// taskWorkflow carries a task out: nothing happens before its rows say that it
// runs, and they end with it, whatever becomes of it.
func taskWorkflow(prefix string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		apart, stop := workflow.NewDisconnectedContext(ctx) // rows are written although the work is cancelled
		defer stop()
		var b report.Begun
		if err := act.Write(apart, actBegin, &b); err != nil || !b.Runs {
			return err
		}
		t := newTask(&b, workflows.SiteQueue(prefix, b.Site))
		defer t.watchBudget(apart)()
		ending := t.ending(t.stages(ctx)) // every child has ended
		if err := t.settle(apart, ending); err != nil {
			return err
		}
		if err := act.Write(apart, actFinish, nil, ending); err != nil {
			return err
		}
		if ending.Status == fleet.JobCancelled {
			return act.Write(apart, actClose, nil, workflow.GetInfo(apart).WorkflowExecution.ID, ending)
		}
		return nil
	}
}

// task is a task under way.
type task struct {
	*report.Begun
	queue string // of the site
	plan  []stage
	parts []*standing // by name
	ran   bool        // some step had a component
	why   *trouble    // of the first step that failed
}

// standing is how far a component of the task is.
type standing struct {
	report.Part
	begun, failed bool
	left          int // steps of its type that have not succeeded
}

// stage is one stage: its steps by their index in the rule.
type stage struct {
	number int
	steps  []int
}

func newTask(b *report.Begun, queue string) *task {
	t := &task{Begun: b, queue: queue}
	order := func(x, y report.Part) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Device, y.Device))
	}
	slices.SortFunc(b.Parts, order)
	slices.SortFunc(b.Beside, order)
	for _, p := range b.Parts {
		one := &standing{Part: p}
		for i := range b.Rule.Steps {
			if b.Rule.Steps[i].ComponentType == p.Type {
				one.left++
			}
		}
		t.parts = append(t.parts, one)
	}
	steps := make([]int, len(b.Rule.Steps))
	for i := range steps {
		steps[i] = i
	}
	slices.SortStableFunc(steps, func(x, y int) int { return cmp.Compare(b.Rule.Steps[x].Stage, b.Rule.Steps[y].Stage) })
	for _, i := range steps {
		number := b.Rule.Steps[i].Stage
		if len(t.plan) == 0 || t.plan[len(t.plan)-1].number != number {
			t.plan = append(t.plan, stage{number: number})
		}
		last := &t.plan[len(t.plan)-1]
		last.steps = append(last.steps, i)
	}
	return t
}

// watchBudget tells when the task takes longer than its worst case, and ends
// nothing by it.
func (t *task) watchBudget(ctx workflow.Context) (stop func()) {
	watching, cancel := workflow.WithCancel(ctx)
	if t.Worst <= 0 || t.Worst > longestBudget {
		return cancel
	}
	workflow.Go(watching, func(ctx workflow.Context) {
		if workflow.Sleep(ctx, t.Worst) == nil {
			_ = act.Write(ctx, actOverBudget, nil, t.Task) // it is tried until the task ends
		}
	})
	return cancel
}

// stages takes the stages in their order, until one fails.
func (t *task) stages(ctx workflow.Context) error {
	for _, s := range t.plan {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.stage(ctx, &s); err != nil {
			return err
		}
		if t.why != nil {
			return nil
		}
	}
	return ctx.Err()
}

// stage runs the steps of a stage beside each other and waits for all of them.
func (t *task) stage(ctx workflow.Context, s *stage) error {
	type child struct {
		id   string
		step *rule.Step
		in   *stepIn
		end  workflow.ChildWorkflowFuture
	}
	var children []child
	for _, i := range s.steps {
		if ctx.Err() != nil { // what was not begun is not begun
			break
		}
		step := &t.Rule.Steps[i]
		in := t.stepIn(step)
		if len(in.Parts) == 0 {
			if err := t.skip(ctx, step); err != nil {
				return err
			}
			continue
		}
		t.ran = true
		id := fmt.Sprintf("task/%d/stage/%d/%s", t.Task, s.number, step.ComponentType)
		if err := write(ctx, actChild, id); err != nil {
			return err
		}
		with := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: id, WaitForCancellation: true, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, StaticSummary: fmt.Sprintf("stage %d: %s", s.number, step.ComponentType),
		})
		children = append(children, child{id, step, in, workflow.ExecuteChildWorkflow(with, StepWorkflow, in)})
		t.each(in, func(p *standing) { p.begun = true })
	}
	for i := range children {
		c := &children[i]
		var out stepOut
		err := c.end.Get(ctx, &out) // a cancel is waited out
		if err := write(ctx, actClose, c.id, report.Ending{}); err != nil {
			return err
		}
		if err := t.ended(ctx, c.in, &out, err); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// each gives the components of a step.
func (t *task) each(in *stepIn, f func(*standing)) {
	for _, p := range t.parts {
		if p.Type == in.Step.ComponentType {
			f(p)
		}
	}
}

// ended takes what became of a step.
func (t *task) ended(ctx workflow.Context, in *stepIn, out *stepOut, err error) error {
	switch alone := ctx.Err() == nil; { // nobody cancelled the task
	case alone && (temporal.IsCanceledError(err) || err == nil && !out.Done && out.Why == nil):
		out.Why = &trouble{Code: codes.ComponentResultUnknown, Message: "the step was cancelled by itself in Temporal: what it had begun may have taken effect"}
	case err != nil && !temporal.IsCanceledError(err):
		out = &stepOut{Why: &trouble{Code: codes.ComponentResultUnknown, Message: clip(fmt.Sprintf("the step's workflow did not come to its end: %v", err))}}
	}
	if out.Why != nil && t.why == nil {
		t.why = &trouble{out.Why.Code, fmt.Sprintf("stage %d, %s: %s", in.Step.Stage, in.Step.ComponentType, out.Why.Message)}
	}
	var r []report.Component
	t.each(in, func(p *standing) {
		switch {
		case slices.Contains(out.Failed, p.Device):
			p.failed = true // its row was written by the step
		case out.Done && !slices.Contains(out.Open, p.Device):
			if p.left--; p.left == 0 {
				r = append(r, report.Component{Device: p.Device, Status: report.Succeeded, Phase: "done"})
			}
		}
	})
	if len(r) == 0 {
		return nil
	}
	return record(ctx, report.Record{Task: t.Task, Components: r})
}

// skip tells that the task has no component of a step's type.
func (t *task) skip(ctx workflow.Context, s *rule.Step) error {
	var all []report.Entry
	for i, a := range s.Actions() {
		e := entryOf(s, i, &a)
		e.Status, e.Message = report.Skipped, "the rack has no such component in this task"
		all = append(all, e)
	}
	return record(ctx, report.Record{Task: t.Task, Entries: all})
}

// ending says how the task ends whose stages gave err.
func (t *task) ending(err error) report.Ending {
	switch {
	case temporal.IsCanceledError(err):
		return report.Ending{Status: fleet.JobCancelled, Message: "cancelled while it ran"}
	case err != nil:
		return report.Ending{Status: fleet.JobFailed, Code: codes.InternalError, Message: clip(err.Error())}
	case !t.ran:
		return report.Ending{Status: fleet.JobFailed, Code: codes.ComponentNotReached, Message: "no step of the rule is for a component of this task: nothing was done"}
	case t.why == nil:
		return report.Ending{Status: fleet.JobSucceeded}
	}
	e := report.Ending{Status: fleet.JobFailed, Code: t.why.Code, Message: clip(t.why.Message)}
	if slices.ContainsFunc(t.parts, func(p *standing) bool { return p.begun && p.left == 0 }) {
		e.Status = fleet.JobPartiallyFailed
	}
	return e
}

// settle says of each component that has not ended by itself in which state the
// task leaves it.
func (t *task) settle(ctx workflow.Context, e report.Ending) error {
	var ask []report.Part
	var all []report.Component
	for _, p := range t.parts {
		if p.failed || p.begun && p.left == 0 {
			continue
		}
		ask = append(ask, p.Part)
		c := report.Component{Device: p.Device}
		if p.begun {
			c.Status, c.Message = report.Cancelled, clip("the task ended before its later steps: "+e.Message)
		}
		all = append(all, c)
	}
	if e.Status == fleet.JobSucceeded || len(all) == 0 {
		return nil
	}
	left := states(ctx, t.queue, ask)
	for i := range all {
		all[i].LastState = left[i]
	}
	return record(ctx, report.Record{Task: t.Task, Components: all})
}
