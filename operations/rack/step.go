package rack

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
)

// longHistory is how many events a run of a step may have before it goes on as a
// new one.
const longHistory = 4000

// trouble is why something failed.
type trouble struct {
	Code    codes.Failure `json:"code"`
	Message string        `json:"message"`
}

// stepIn is what a step works on.
type stepIn struct {
	Task      int64            `json:"task"`
	Queue     string           `json:"queue"` // of the site
	Operation string           `json:"operation"`
	Step      rule.Step        `json:"step"`
	Parts     []report.Part    `json:"parts"`
	Rack      []report.Part    `json:"rack,omitempty"` // what VerifyReachability looks at
	Image     *component.Image `json:"image,omitempty"`
	Override  bool             `json:"override,omitempty"`
	Place     place            `json:"place"`
	Bound     int              `json:"bound,omitempty"` // of a run's history; 0: longHistory
}

// place is where a step stands. A new run goes on from it.
type place struct {
	Action int       `json:"action"`
	Since  time.Time `json:"since,omitzero"` // when the action began
	Parts  []stand   `json:"parts,omitempty"`
	Seen   []int64   `json:"seen,omitempty"` // devices that a look has passed
}

// stand is how far an action is with a component.
type stand struct {
	Ended  bool              `json:"ended,omitempty"`
	Why    *trouble          `json:"why,omitempty"` // of one that failed
	Update *component.Update `json:"update,omitempty"`
	Since  time.Time         `json:"since,omitzero"` // of its own wait
	Tries  int               `json:"tries,omitempty"`
}

// stepOut is what became of a step.
type stepOut struct {
	Done   bool     `json:"done,omitempty"` // every action came to its end, with every component that did not fail
	Failed []int64  `json:"failed,omitempty"`
	Open   []int64  `json:"open,omitempty"` // neither failed nor came to their end
	Why    *trouble `json:"why,omitempty"`
}

// stepIn gives what a step of the rule works on.
func (t *task) stepIn(s *rule.Step) *stepIn {
	in := &stepIn{Task: t.Task, Queue: t.queue, Operation: t.Operation, Step: *s, Override: t.Override}
	for _, p := range t.Parts {
		if p.Type == s.ComponentType {
			in.Parts = append(in.Parts, p)
		}
	}
	for _, a := range s.Actions() {
		if a.Name == rule.VerifyReachability {
			in.Rack = append(append([]report.Part{}, t.Parts...), t.Beside...)
			break
		}
	}
	for i := range t.Firmware {
		if f := &t.Firmware[i]; f.ComponentType == s.ComponentType {
			in.Image = &component.Image{URI: f.URI, SHA256: f.SHA256, Versions: f.Versions, Override: t.Override}
		}
	}
	return in
}

// step is a step under way.
type step struct {
	*stepIn
	restarts bool // an action behind the one that is carried out restarts the components
	failed   []int64
	open     []int64
}

// stepWorkflow carries a step out. It ends well whatever becomes of its components:
// what became of them is its answer.
func stepWorkflow(ctx workflow.Context, in *stepIn) (*stepOut, error) {
	s := &step{stepIn: in}
	actions := in.Step.Actions()
	for in.Place.Action < len(actions) {
		if in.Place.Since.IsZero() {
			in.Place.Since = workflow.Now(ctx)
			if in.Place.Parts == nil {
				in.Place.Parts = make([]stand, len(in.Parts))
			}
		}
		s.restarts = slices.ContainsFunc(actions[in.Place.Action+1:], restart)
		why, err := s.action(ctx, in.Place.Action, &actions[in.Place.Action])
		switch {
		case temporal.IsCanceledError(err):
			return &stepOut{Failed: s.failed}, nil
		case workflow.IsContinueAsNewError(err):
			return nil, err
		case err != nil:
			return nil, err
		case why != nil:
			last := in.Place.Action == len(actions)-1 && len(s.failed) > 0 && updating(actions) == nil
			return &stepOut{Done: last, Failed: s.failed, Open: s.open, Why: why}, nil
		}
		in.Place = place{Action: in.Place.Action + 1}
	}
	why, err := s.versions(ctx, actions)
	switch {
	case temporal.IsCanceledError(err):
		return &stepOut{Failed: s.failed}, nil
	case err != nil:
		return nil, err
	}
	return &stepOut{Done: true, Failed: s.failed, Why: why}, nil
}

// restart tells whether an action lets components begin anew.
func restart(a rule.Action) bool {
	return a.Name == rule.PowerControl && slices.Contains([]string{"power_on", "force_power_on", "restart", "force_restart", "warm_reset", "cold_reset"}, a.Parameters.Operation)
}

// action carries out one action. An error is that of a cancel, of a new run, or of
// rows that are gone.
func (s *step) action(ctx workflow.Context, i int, a *rule.Action) (*trouble, error) {
	switch a.Name {
	case rule.Sleep:
		return s.whole(ctx, i, a, s.sleep)
	case rule.VerifyPowerStatus:
		return s.whole(ctx, i, a, s.verifyPower)
	case rule.VerifyReachability:
		return s.whole(ctx, i, a, s.verifyReach)
	case rule.WaitDecommissioned:
		return s.whole(ctx, i, a, s.waitDecommissioned)
	case rule.PowerControl:
		return s.each(ctx, i, a, s.power)
	case rule.FirmwareControl:
		return s.each(ctx, i, a, s.firmware)
	case rule.GetPowerStatus:
		return s.each(ctx, i, a, s.status)
	case rule.DecommissionControl:
		return s.each(ctx, i, a, s.decommission)
	}
	return &trouble{codes.InternalError, "this version does not know the action " + a.Name}, nil
}

// full reports that a run's history is long enough.
func (s *step) full(ctx workflow.Context) bool {
	bound := longHistory
	if s.Bound > 0 {
		bound = s.Bound
	}
	info := workflow.GetInfo(ctx)
	return info.GetCurrentHistoryLength() > bound || info.GetContinueAsNewSuggested()
}

// anew goes on from where the step stands, as a new run.
func (s *step) anew(ctx workflow.Context) error {
	return workflow.NewContinueAsNewError(ctx, StepWorkflow, s.stepIn)
}

// entryOf gives the line of the report of a step's i-th action.
func entryOf(s *rule.Step, i int, a *rule.Action) report.Entry {
	e := report.Entry{Stage: s.Stage, ComponentType: s.ComponentType, Action: a.Name, Phase: report.Main}
	switch {
	case i < len(s.Pre):
		e.Phase, e.Index = report.Pre, i
	case i > len(s.Pre):
		e.Phase, e.Index = report.Post, i-len(s.Pre)-1
	}
	return e
}

// tell writes an entry, and perhaps how its component stands.
func (s *step) tell(ctx workflow.Context, e report.Entry, c ...report.Component) error {
	return record(ctx, report.Record{Task: s.Task, Entries: []report.Entry{e}, Components: c})
}

// label is the step's phase as people see it.
func (s *step) label(what string) string { return fmt.Sprintf("stage %d: %s", s.Step.Stage, what) }

// within is how long one try of an action may take.
func (s *step) within(a *rule.Action) time.Duration {
	if a.Timeout > 0 {
		return time.Duration(a.Timeout)
	}
	return time.Duration(s.Step.Timeout)
}

// options are those of an activity that is tried as the step says.
func (s *step) options(ctx workflow.Context, a *rule.Action, what string) workflow.Context {
	r := &s.Step.Retry
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: s.Queue, StartToCloseTimeout: s.within(a), HeartbeatTimeout: act.HeartbeatTimeout, WaitForCancellation: true, Summary: what,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Duration(r.InitialInterval), BackoffCoefficient: r.BackoffCoefficient, MaximumInterval: time.Duration(r.MaxInterval),
			MaximumAttempts: int32(r.MaxAttempts), //nolint:gosec // the schema has at most 100
		},
	})
}

const longestMessage = 1024 // bytes

func clip(text string) string { return sources.CleanText(text, longestMessage) }
