package act

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
)

// Workflow is what is done with one device. It is deterministic.
type Workflow func(ctx workflow.Context, u *Unit) error

// Family is a package's workflows, by the slug of the catalogue, and their
// activities, by name.
type Family struct {
	Workflows  map[string]Workflow
	Activities func(*Site) map[string]any
}

// Unit is the work on one device of one job, in a workflow. It stays in the
// history.
type Unit struct {
	Job    int64  `json:"job,omitempty"`
	Device int64  `json:"device,omitempty"`
	Name   string `json:"name,omitempty"` // of the device
	Site   string `json:"site,omitempty"`
	// Parameters are the job's, and over them what was stamped of the device.
	Parameters map[string]any `json:"parameters,omitempty"`

	Queue string `json:"-"` // of the site
}

// Flag gives a parameter that is a bool; false if it is none.
func (u *Unit) Flag(name string) bool {
	is, _ := u.Parameters[name].(bool)
	return is
}

// Text gives a parameter that is a text; "" if it is none or null.
func (u *Unit) Text(name string) string {
	text, _ := u.Parameters[name].(string)
	return text
}

// Step is one activity at the unit's site.
type Step struct {
	Phase   string // as people see it; "" leaves them with the one before
	Percent int    // of the whole, when it begins
	Name    string // of the activity

	// Lost is what the device fails with when workers die over it again and again.
	Lost codes.Failure
	// Within bounds one try, default 5 min.
	Within time.Duration
	// Tries bounds how often it is tried, default 8; those that a worker did not
	// survive count. -1: no bound, for what only waits and ends by itself.
	Tries int32
}

// HeartbeatTimeout is how long an activity may be silent: then its worker is
// dead, and another one goes on.
const HeartbeatTimeout = 10 * time.Second

// Do runs a step. A cancel of the workflow is waited out: the step has ended when
// Do returns.
func (u *Unit) Do(ctx workflow.Context, s Step, in, out any) error {
	if s.Phase != "" {
		if err := u.Tell(ctx, s.Phase, s.Percent); err != nil {
			return err
		}
	}
	retries := temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 8}
	if s.Tries != 0 {
		retries.MaximumAttempts = max(s.Tries, 0)
	}
	within := 5 * time.Minute
	if s.Within > 0 {
		within = s.Within
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: u.Queue, StartToCloseTimeout: within, HeartbeatTimeout: HeartbeatTimeout, WaitForCancellation: true, RetryPolicy: &retries, Summary: s.Phase,
	})
	err := workflow.ExecuteActivity(ctx, s.Name, in).Get(ctx, out)
	if temporal.IsTimeoutError(err) {
		return &LostError{Code: s.Lost, phase: s.Phase, err: err}
	}
	return err
}

// Tell says how far the work is.
func (u *Unit) Tell(ctx workflow.Context, phase string, percent int) error {
	return Write(ctx, ActProgress, nil, Progress{Job: u.Job, Device: u.Device, Phase: phase, Percent: percent})
}

// ActProgress is the name of the activity that takes a Progress.
const ActProgress = "progress"

// Progress is how far a device's work is.
type Progress struct {
	Job     int64  `json:"job"`
	Device  int64  `json:"device"`
	Phase   string `json:"phase"`
	Percent int    `json:"percent"`
}

// Write runs an activity that writes rows, for as long as it takes: nothing goes
// on before it is written.
func Write(ctx workflow.Context, name string, out any, in ...any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, HeartbeatTimeout: HeartbeatTimeout, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
	return workflow.ExecuteActivity(ctx, name, in...).Get(ctx, out)
}

// Target names a device of a job, for the activities that need no more.
type Target struct {
	Job    int64 `json:"job"`
	Device int64 `json:"device"`
}

// Target gives the unit's device.
func (u *Unit) Target() Target { return Target{u.Job, u.Device} }
