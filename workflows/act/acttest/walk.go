package acttest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/workflows/act"
)

// Walk is a workflow on one device without what is around it, and without a
// Temporal: the activities are the test's.
type Walk struct {
	Env  *testsuite.TestWorkflowEnvironment
	Unit act.Unit // what it works on

	mu    sync.Mutex
	lines []string
}

// NewWalk makes the surroundings of a workflow on the device 9 of the job 7.
func NewWalk(parameters map[string]any) *Walk {
	var s testsuite.WorkflowTestSuite
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	w := &Walk{Env: s.NewTestWorkflowEnvironment(), Unit: act.Unit{Job: 7, Device: 9, Name: "c1", Site: "lab", Parameters: parameters}}
	w.Env.SetTestTimeout(time.Minute)
	w.Act(act.ActProgress, func(_ context.Context, p act.Progress) error { w.Note("at %d %s", p.Percent, p.Phase); return nil })
	return w
}

// Act gives the workflow an activity.
func (w *Walk) Act(name string, do any) {
	w.Env.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
}

// Note notes what an activity of the test was asked.
func (w *Walk) Note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// Lines gives what was noted.
func (w *Walk) Lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

// Run runs the workflow and compares what was noted, in its order. The error is
// the workflow's.
func (w *Walk) Run(t *testing.T, do act.Workflow, want ...string) error {
	t.Helper()
	err := w.Go(t, do)
	if lines := w.Lines(); !slices.Equal(lines, want) {
		t.Errorf("it did\n%q\nwant\n%q", lines, want)
	}
	return err
}

// Go runs the workflow. The error is the workflow's.
func (w *Walk) Go(t *testing.T, do act.Workflow) error {
	t.Helper()
	w.Env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error { return kept(do(ctx, &w.Unit)) }, workflow.RegisterOptions{Name: "walk"})
	w.Env.ExecuteWorkflow("walk")
	if !w.Env.IsWorkflowCompleted() {
		t.Fatal("it has not ended")
	}
	return w.Env.GetWorkflowError()
}

// Family gives the workflow the activities of a family at a site, which run for
// real.
func (w *Walk) Family(s *act.Site, f act.Family) {
	for name, do := range f.Activities(s) {
		w.Act(name, do)
	}
}

// kept carries the code of an error out of the workflow.
func kept(err error) error {
	if code := act.Code(err); code != "" {
		return temporal.NewNonRetryableApplicationError(err.Error(), string(code), nil)
	}
	return err
}
