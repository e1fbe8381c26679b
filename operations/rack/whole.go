package rack

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/workflows/act"
)

// done is what became of an action of a step as a whole.
type done struct {
	why     *trouble
	devices []int64 // that failed by it
	looks   int
	note    string
	states  []report.Component // last states that were seen
}

// whole carries out an action of the step as a whole, and reports it.
func (s *step) whole(ctx workflow.Context, i int, a *rule.Action, do func(workflow.Context, *rule.Action) (done, error)) (*trouble, error) {
	e := entryOf(&s.Step, i, a)
	e.Status = report.Running
	if err := s.tell(ctx, e); err != nil {
		return nil, err
	}
	d, err := do(ctx, a)
	if workflow.IsContinueAsNewError(err) {
		if writing := s.tell(ctx, e, d.states...); writing != nil {
			return nil, writing
		}
		return nil, err
	}
	e.Attempts, e.Message = d.looks, d.note
	components := d.states
	switch {
	case temporal.IsCanceledError(err):
		e.Status, e.Message = report.Cancelled, "cancelled"
	case err != nil:
		return nil, err
	case d.why != nil:
		e.Status, e.Code, e.Message = report.Failed, d.why.Code, d.why.Message
		s.failed = append(s.failed, d.devices...)
		for j := range components {
			if slices.Contains(d.devices, components[j].Device) {
				components[j].Status, components[j].Phase = report.Failed, s.label(a.Name)
				components[j].Code, components[j].Message = d.why.Code, d.why.Message
			}
		}
	default:
		e.Status = report.Succeeded
	}
	if err := s.tell(ctx, e, components...); err != nil {
		return nil, err
	}
	return d.why, err
}

// sleep is a durable timer.
func (s *step) sleep(ctx workflow.Context, a *rule.Action) (done, error) {
	left := s.Place.Since.Add(time.Duration(a.Parameters.Duration)).Sub(workflow.Now(ctx))
	return done{}, workflow.Sleep(ctx, left)
}

// repeat looks again and again until look says that it is enough or that it never
// will be, and gives late what was seen of a question asked at or after the
// deadline. Its pauses are timers.
func (s *step) repeat(ctx workflow.Context, a *rule.Action, look func(asked time.Time) (enough bool, err error), late func() *trouble) (looks int, why *trouble, err error) {
	deadline := s.Place.Since.Add(time.Duration(a.Timeout))
	for {
		asked := workflow.Now(ctx)
		enough, err := look(asked)
		looks++
		switch {
		case ctx.Err() != nil:
			return looks, nil, temporal.NewCanceledError()
		case err != nil || enough:
			return looks, nil, err
		case !asked.Before(deadline):
			return looks, late(), nil
		}
		if s.full(ctx) {
			return looks, nil, s.anew(ctx)
		}
		pause := min(time.Duration(a.PollInterval), deadline.Sub(workflow.Now(ctx)))
		if err := workflow.Sleep(ctx, pause); err != nil {
			return looks, nil, err
		}
	}
}

// pending gives those that no look has passed yet.
func (s *step) pending(parts []report.Part) []report.Part {
	var left []report.Part
	for _, p := range parts {
		if !slices.Contains(s.Place.Seen, p.Device) {
			left = append(left, p)
		}
	}
	return left
}

// verifyPower looks until every component of the step was seen as it should be.
// Only what was asked for counts; what is not told is not there yet.
func (s *step) verifyPower(ctx workflow.Context, a *rule.Action) (done, error) {
	want := map[string]string{"on": component.On, "off": component.Off}[a.Parameters.ExpectedStatus]
	var d done
	var last []sight
	var err error
	d.looks, d.why, err = s.repeat(ctx, a, func(time.Time) (bool, error) {
		left := s.pending(s.Parts)
		seen, err := lookAt(ctx, s.Queue, lookIn{Parts: left, Most: s.Step.MaxParallel})
		if err != nil {
			return false, err
		}
		last = seen
		for _, one := range seen {
			if one.Power == want && slices.ContainsFunc(left, func(p report.Part) bool { return p.Device == one.Device }) {
				s.Place.Seen = append(s.Place.Seen, one.Device)
				d.states = append(d.states, report.Component{Device: one.Device, Status: report.Running, LastState: one.told()})
			}
		}
		return len(s.pending(s.Parts)) == 0, nil
	}, func() *trouble {
		left := s.pending(s.Parts)
		for _, p := range left {
			d.devices = append(d.devices, p.Device)
			c := report.Component{Device: p.Device, Status: report.Running, LastState: notRead}
			if i := slices.IndexFunc(last, func(v sight) bool { return v.Device == p.Device }); i >= 0 {
				c.LastState = last[i].told()
			}
			d.states = append(d.states, c)
		}
		return &trouble{codes.PowerStateNotReached, fmt.Sprintf("after %s %s not %s: %s", a.Timeout, are(len(left)), a.Parameters.ExpectedStatus, told(left, last))}
	})
	return d, err
}

// verifyReach looks until of each type one component of the rack answers with its
// power, or all do. Types that the rack has not are passed over.
func (s *step) verifyReach(ctx workflow.Context, a *rule.Action) (done, error) {
	var d done
	var asked []report.Part
	var types, absent []string
	for _, kind := range a.Parameters.ComponentTypes {
		there := false
		for _, p := range s.Rack {
			if p.Type == kind {
				asked, there = append(asked, p), true
			}
		}
		if there {
			types = append(types, kind)
		} else {
			absent = append(absent, kind)
		}
	}
	if len(absent) > 0 {
		d.note = "the rack has no " + strings.Join(absent, ", no ")
	}
	if len(types) == 0 {
		d.why = &trouble{codes.ComponentNotReached, "the rack has none of the types that are to answer: " + strings.Join(absent, ", ")}
		return d, nil
	}
	var last []sight
	var err error
	d.looks, d.why, err = s.repeat(ctx, a, func(time.Time) (bool, error) {
		seen, err := lookAt(ctx, s.Queue, lookIn{Parts: s.unreached(types, asked, a.Parameters.RequireAll)})
		if err != nil {
			return false, err
		}
		last = seen
		for _, one := range seen {
			if one.Power != "" {
				s.Place.Seen = append(s.Place.Seen, one.Device)
			}
		}
		return len(s.unreached(types, asked, a.Parameters.RequireAll)) == 0, nil
	}, func() *trouble {
		left := s.unreached(types, asked, a.Parameters.RequireAll)
		return &trouble{codes.ComponentNotReached, fmt.Sprintf("after %s %s not reached: %s", a.Timeout, are(len(left)), told(left, last))}
	})
	return d, err
}

// unreached gives the components that are still to answer.
func (s *step) unreached(types []string, asked []report.Part, all bool) []report.Part {
	var left []report.Part
	for _, kind := range types {
		var silent []report.Part
		answered := false
		for _, p := range asked {
			if p.Type != kind {
				continue
			}
			if slices.Contains(s.Place.Seen, p.Device) {
				answered = true
			} else {
				silent = append(silent, p)
			}
		}
		if all || !answered {
			left = append(left, silent...)
		}
	}
	return left
}

// callsFail is how long the states of a decommissioning may be unreadable.
const callsFail = 5 * time.Minute

// waitDecommissioned looks until every component of the step is decommissioned. An
// answer that is missing, empty or of no decommissioning ends it.
func (s *step) waitDecommissioned(ctx workflow.Context, a *rule.Action) (done, error) {
	var d done
	var last []sight
	var fatal *trouble
	fail := func(p report.Part, format string, args ...any) {
		d.devices = append(d.devices, p.Device)
		d.states = append(d.states, report.Component{Device: p.Device, Status: report.Running})
		if fatal == nil {
			fatal = &trouble{codes.DecommissionRefused, p.Name + ": " + fmt.Sprintf(format, args...)}
		}
	}
	var why *trouble
	var err error
	d.looks, why, err = s.repeat(ctx, a, func(asked time.Time) (bool, error) {
		left := s.pending(s.Parts)
		seen, err := lookAt(ctx, s.Queue, lookIn{Parts: left, Most: s.Step.MaxParallel, Decommissioning: true})
		if err != nil {
			return false, err
		}
		last = seen
		for _, p := range left {
			i := slices.IndexFunc(seen, func(v sight) bool { return v.Device == p.Device })
			at := slices.IndexFunc(s.Parts, func(o report.Part) bool { return o.Device == p.Device })
			switch {
			case i < 0:
				fail(p, "no state was told")
			case seen[i].Why != "" && s.Place.Parts[at].Since.IsZero():
				s.Place.Parts[at].Since = asked
			case seen[i].Why != "":
				if asked.Sub(s.Place.Parts[at].Since) >= callsFail {
					fail(p, "its state could not be read for %s: %s", callsFail, seen[i].Why)
				}
			default:
				s.Place.Parts[at].Since = time.Time{}
				s.decommissioned(p, seen[i].Power, fail)
			}
		}
		return fatal != nil || len(s.pending(s.Parts)) == 0, nil
	}, func() *trouble {
		left := s.pending(s.Parts)
		for _, p := range left {
			d.devices = append(d.devices, p.Device)
			d.states = append(d.states, report.Component{Device: p.Device, Status: report.Running})
		}
		return &trouble{codes.DecommissionTimeout, fmt.Sprintf("after %s %s not decommissioned: %s", a.Timeout, are(len(left)), told(left, last))}
	})
	if d.why = fatal; fatal == nil {
		d.why = why
	}
	for _, p := range s.pending(s.Parts) {
		if fatal != nil && !slices.Contains(d.devices, p.Device) {
			s.open = append(s.open, p.Device)
		}
	}
	return d, err
}

// decommissioned judges one state of a decommissioning.
func (s *step) decommissioned(p report.Part, state string, fail func(report.Part, string, ...any)) {
	switch {
	case state == "Decommissioned" || state == "Decommissioning/Decommissioned":
		s.Place.Seen = append(s.Place.Seen, p.Device)
	case state == "Ready" || strings.HasPrefix(state, "Maintenance(") || strings.HasPrefix(state, "Decommissioning/"):
	default:
		fail(p, "its state is %q, which is none of a decommissioning", state)
	}
}

func are(n int) string {
	if n == 1 {
		return "1 component is"
	}
	return fmt.Sprintf("%d components are", n)
}

// told lists what was seen of components last.
func told(parts []report.Part, last []sight) string {
	var all []string
	for _, p := range parts {
		text := p.Name + " not read"
		if i := slices.IndexFunc(last, func(v sight) bool { return v.Device == p.Device }); i >= 0 {
			text = p.Name + " " + last[i].told()
		}
		all = append(all, text)
	}
	return clip(strings.Join(all, "; "))
}

// lookAt looks at components once, as long as it takes until a worker has.
func lookAt(ctx workflow.Context, queue string, in lookIn) ([]sight, error) {
	options := in.options(queue, "look")
	if in.Last {
		options.ScheduleToCloseTimeout = lastLookWithin
	}
	var seen []sight
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), actLook, in).Get(ctx, &seen)
	return seen, err
}

const notRead = "not read"

// states reads the powers of components once, or says why there is none: it is the
// last that a report says of them.
func states(ctx workflow.Context, queue string, parts []report.Part) []string {
	all := make([]string, len(parts))
	seen, err := lookAt(ctx, queue, lookIn{Parts: parts, Last: true})
	for i := range all {
		if all[i] = notRead; err == nil && i < len(seen) {
			all[i] = seen[i].told()
		}
	}
	return all
}

// options are those of one look at all of its components: as long as they take one
// behind the other, as many at once as may be.
func (in *lookIn) options(queue, what string) workflow.ActivityOptions {
	o := lookOptions(queue, what)
	rounds := (len(in.Parts) + in.most() - 1) / in.most()
	o.StartToCloseTimeout = max(lookWithin, time.Duration(rounds)*oneLook+time.Minute)
	return o
}

// lookOptions are those of an activity that only looks.
func lookOptions(queue, what string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: queue, StartToCloseTimeout: lookWithin, HeartbeatTimeout: act.HeartbeatTimeout, WaitForCancellation: true, Summary: what,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	}
}
