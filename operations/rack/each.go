package rack

import (
	"errors"
	"regexp"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/workflows/act"
)

// result is what an action did with one component.
type result struct {
	attempts int
	note     string
	state    string // of its power, "" if it was not seen
	later    bool   // its history is long: it goes on in a new run
}

// doing is one component under an action.
type doing struct {
	*stand
	part   report.Part
	action *rule.Action
}

// each does an action with every component, at most max_parallel of them in flight.
// One that fails does not keep the others from their end.
func (s *step) each(ctx workflow.Context, i int, a *rule.Action, do func(workflow.Context, *doing) (result, error)) (*trouble, error) {
	flight := len(s.Parts)
	if s.Step.MaxParallel > 0 {
		flight = min(flight, s.Step.MaxParallel)
	}
	next, later := 0, false
	var broken error                                    // rows are gone
	apart, stop := workflow.NewDisconnectedContext(ctx) // what is in flight is waited for after a cancel too
	defer stop()
	all := workflow.NewWaitGroup(apart)
	for range flight {
		all.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer all.Done()
			for next < len(s.Parts) && ctx.Err() == nil && broken == nil && !later {
				one := &doing{&s.Place.Parts[next], s.Parts[next], a}
				next++
				if one.Ended {
					continue
				}
				wait, err := s.one(ctx, i, one, do)
				if err != nil {
					broken = err
				}
				later = later || wait || s.full(ctx)
			}
		})
	}
	all.Wait(apart)
	var why *trouble
	open := false
	for j := range s.Place.Parts {
		one := &s.Place.Parts[j]
		open = open || !one.Ended
		if one.Why != nil {
			s.failed = append(s.failed, s.Parts[j].Device)
			if why == nil {
				why = &trouble{one.Why.Code, s.Parts[j].Name + ": " + one.Why.Message}
			}
		}
	}
	switch {
	case broken != nil:
		return nil, broken
	case ctx.Err() != nil:
		return nil, temporal.NewCanceledError()
	case open:
		s.failed = nil
		return nil, s.anew(ctx)
	}
	return why, nil
}

// one does an action with one component, and reports it. later: it has not ended.
func (s *step) one(ctx workflow.Context, i int, d *doing, do func(workflow.Context, *doing) (result, error)) (later bool, err error) {
	e := entryOf(&s.Step, i, d.action)
	e.Device, e.Status = d.part.Device, report.Running
	c := report.Component{Device: d.part.Device, Status: report.Running, Phase: s.label(d.action.Name)}
	if err := s.tell(ctx, e, c); err != nil {
		return false, err
	}
	r, failure := do(ctx, d)
	if r.later && failure == nil {
		return true, nil
	}
	d.Ended = true
	e.Attempts, e.Message, e.Status = r.attempts, r.note, report.Succeeded
	c = report.Component{Device: d.part.Device, Status: report.Running, LastState: r.state}
	switch {
	case temporal.IsCanceledError(failure):
		e.Status, e.Message = report.Cancelled, "cancelled; whether it took effect is not known"
	case failure != nil:
		d.Why = troubleOf(failure)
		e.Status, e.Code, e.Message = report.Failed, d.Why.Code, d.Why.Message
		if tried := triesOf(failure); tried > 0 {
			e.Attempts = tried
		}
		c.Status, c.Phase, c.Code, c.Message = report.Failed, s.label(d.action.Name), d.Why.Code, d.Why.Message
		apart, stop := workflow.NewDisconnectedContext(ctx)
		defer stop()
		c.LastState = states(apart, s.Queue, []report.Part{d.part})[0]
	}
	return false, s.tell(ctx, e, c)
}

// troubleOf gives an error of an activity its code.
func troubleOf(err error) *trouble {
	var coded *temporal.ApplicationError
	var ours *failure
	switch {
	case errors.As(err, &ours):
		return &ours.trouble
	case temporal.IsTimeoutError(err):
		return &trouble{codes.ComponentResultUnknown, clip("no worker came to its end, whether it took effect is not known: " + err.Error())}
	case errors.As(err, &coded) && isCode(coded.Type()):
		return &trouble{codes.Failure(coded.Type()), clip(coded.Message())}
	}
	return &trouble{codes.InternalError, clip(err.Error())}
}

// codeForm tells a failure code from the names that Temporal gives to Go's errors.
var codeForm = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

func isCode(name string) bool { return codeForm.MatchString(name) }

// failure is one that the workflow itself came to.
type failure struct{ trouble }

func (f *failure) Error() string { return f.Message }

func failed(code codes.Failure, message string) error { return &failure{trouble{code, clip(message)}} }

// triesOf gives how often an activity that failed was tried, 0 if that is not told.
func triesOf(err error) int {
	var coded *temporal.ApplicationError
	var tried int
	if errors.As(err, &coded) && coded.HasDetails() && coded.Details(&tried) == nil {
		return tried
	}
	return 0
}

// halves are the operations that are an off and an on, each led to by itself.
var halves = map[string][2]string{
	"restart": {"power_off", "power_on"}, "force_restart": {"force_power_off", "force_power_on"}, "cold_reset": {"force_power_off", "power_on"},
}

// power carries out a PowerControl with one component.
func (s *step) power(ctx workflow.Context, d *doing) (result, error) {
	operation := d.action.Parameters.Operation
	if operation == "" {
		operation = s.Operation
	}
	if operation == "warm_reset" {
		return s.reset(ctx, d)
	}
	two, both := halves[operation]
	if !both {
		return s.command(ctx, d, component.Switch{Operation: operation})
	}
	off, err := s.command(ctx, d, component.Switch{Operation: two[0], Seen: true})
	if err != nil {
		return off, err
	}
	on, err := s.command(ctx, d, component.Switch{Operation: two[1], Seen: true})
	on.attempts += off.attempts
	return on, err
}

// command leads a component to a state.
func (s *step) command(ctx workflow.Context, d *doing, w component.Switch) (result, error) {
	var out commandOut
	w.Override = s.Override
	in := commandIn{Part: d.part, Switch: w}
	if err := workflow.ExecuteActivity(s.options(ctx, d.action, w.Operation+" "+d.part.Name), actSwitch, in).Get(ctx, &out); err != nil {
		return result{}, err
	}
	r := result{attempts: out.Attempt, state: out.State}
	switch want := w.Leads(); {
	case out.Sent == "":
		r.note = "it was " + want + " already"
	case out.State != want:
		r.note = out.Sent + " was accepted; its power is still " + orUnknown(out.State)
	default:
		r.note = out.Sent
	}
	return r, nil
}

func orUnknown(state string) string {
	if state == "" {
		return "not known"
	}
	return state
}

// status carries out a GetPowerStatus with one component.
func (s *step) status(ctx workflow.Context, d *doing) (result, error) {
	var out commandOut
	err := workflow.ExecuteActivity(s.options(ctx, d.action, "look at "+d.part.Name), actState, d.part).Get(ctx, &out)
	return result{attempts: out.Attempt, note: out.State, state: out.State}, err
}

// decommissionWithin is what one try to ask for a decommissioning may take; there
// is no second.
const decommissionWithin = 5 * time.Minute

// decommission carries out a DecommissionControl with one component.
func (s *step) decommission(ctx workflow.Context, d *doing) (result, error) {
	with := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: s.Queue, StartToCloseTimeout: decommissionWithin, HeartbeatTimeout: act.HeartbeatTimeout, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "decommission " + d.part.Name,
	})
	err := workflow.ExecuteActivity(with, actDecommission, decommissionIn{Part: d.part, Task: s.Task}).Get(ctx, nil)
	return result{attempts: 1}, err
}
