package workflows

import (
	"context"
	"errors"
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

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

// journal notes what a workflow's activities were asked, in its order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// suite is a workflow's surroundings without a Temporal: rows that note what is
// written, and the activities that a test gives.
type suite struct {
	*testsuite.TestWorkflowEnvironment
	journal
}

func newSuite(t *testing.T, runs bool) *suite {
	t.Helper()
	t.Parallel()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	e := &suite{TestWorkflowEnvironment: s.NewTestWorkflowEnvironment()}
	e.SetTestTimeout(time.Minute)
	registerWorkflows(e, "p-")
	e.act(actBegin, func(context.Context) (begun, error) {
		e.note("begin")
		return begun{Runs: runs, Unit: act.Unit{Job: 7, Device: 9, Name: "c1", Site: "lab"}}, nil
	})
	e.act(act.ActProgress, func(_ context.Context, p act.Progress) error { e.note("at %d %s", p.Percent, p.Phase); return nil })
	e.act(actFinish, func(_ context.Context, device int64, end ending) error {
		e.note("finish %d %s %s", device, end.Status, end.Code)
		return nil
	})
	e.act(actClose, func(_ context.Context, end ending) error { e.note("close %s", end.Status); return nil })
	return e
}

func (s *suite) act(name string, f any) {
	s.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
}

// run runs a workflow and compares what its activities noted.
func (s *suite) run(t *testing.T, slug string, want ...string) {
	t.Helper()
	s.ExecuteWorkflow(slug)
	if !s.IsWorkflowCompleted() {
		t.Fatal("it has not ended")
	}
	if err := s.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.lines, want) {
		t.Errorf("it did\n%q\nwant\n%q", s.lines, want)
	}
}

const loggingIn = "at 10 log in to the BMC"

func TestHowADevicesWorkEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give  error
		tries int
		want  string
	}{
		"well":                      {nil, 1, "finish 9 succeeded "},
		"a code that stays":         {act.Final(codes.BMCCredentialRefused, "no"), 1, "finish 9 failed BMC_CREDENTIAL_REFUSED"},
		"a code that never mends":   {act.Retry(codes.BMCUnreachable, "silent"), 4, "finish 9 failed BMC_UNREACHABLE"},
		"an error without a code":   {errors.New("what?"), 4, "finish 9 failed INTERNAL_ERROR"},
		"a type that is no code":    {temporal.NewNonRetryableApplicationError("x", "PanicError", nil), 1, "finish 9 failed INTERNAL_ERROR"},
		"no answer of any worker":   {temporal.NewHeartbeatTimeoutError(), 4, "finish 9 failed BMC_UNREACHABLE"},
		"an activity was cancelled": {temporal.NewCanceledError(), 1, "finish 9 cancelled "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuite(t, true)
			tries := 0
			s.act("verify_bmc", func(context.Context, int64) error { tries++; return c.give })
			want := []string{"begin", loggingIn, c.want}
			if name == "an activity was cancelled" {
				want = append(want, "close cancelled")
			}
			s.run(t, "verify_connectivity", want...)
			if tries != c.tries {
				t.Errorf("tried %d times", tries)
			}
		})
	}
}

func TestNothingHappensToARowThatDoesNotRun(t *testing.T) {
	s := newSuite(t, false)
	s.act("verify_bmc", func(context.Context, int64) error { s.note("touched"); return nil })
	s.run(t, "verify_connectivity", "begin")
}

// A site's activities go to the queue of the site.
func TestAStepRunsAtItsSite(t *testing.T) {
	s := newSuite(t, true)
	s.act("verify_bmc", func(ctx context.Context, id int64) error {
		if queue := activity.GetInfo(ctx).TaskQueue; queue != "p-site/lab" || id != 9 {
			t.Errorf("device %d on %s", id, queue)
		}
		return nil
	})
	s.run(t, "verify_connectivity", "begin", loggingIn, "finish 9 succeeded ")
}

// A cancel ends the row before the activity under way has ended, and frees the
// device after it.
func TestACancelIsToldAtOnceAndWaitedOut(t *testing.T) {
	s := newSuite(t, true)
	s.RegisterWorkflowWithOptions(deviceWorkflow("", func(ctx workflow.Context, u *act.Unit) error {
		apart, stop := workflow.NewDisconnectedContext(ctx)
		defer stop()
		_ = workflow.Sleep(ctx, time.Hour)
		err := workflow.Sleep(apart, time.Minute) // what takes its time to end
		s.note("ended")
		return err
	}), workflow.RegisterOptions{Name: "slow"})
	s.RegisterDelayedCallback(s.CancelWorkflow, time.Second)
	s.run(t, "slow", "begin", "finish 9 cancelled ", "ended", "close "+string(fleet.DeviceCancelled))
}

// A cancel while a step is between two tries ends the tries.
func TestACancelEndsTheTries(t *testing.T) {
	s := newSuite(t, true)
	tries := 0
	s.act("verify_bmc", func(context.Context, int64) error { tries++; return act.Retry(codes.BMCUnreachable, "silent") })
	s.RegisterDelayedCallback(s.CancelWorkflow, 1500*time.Millisecond)
	s.run(t, "verify_connectivity", "begin", loggingIn, "finish 9 cancelled ", "close cancelled")
	if tries > 2 {
		t.Errorf("tried %d times", tries)
	}
}
