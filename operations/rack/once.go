package rack

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/workflows/act"
)

// once runs an activity whose effect must not be repeated: one attempt at a time.
// One that failed with nothing sent is tried again as the step says. lost: nothing
// tells whether it took effect, and it was not tried again.
func (s *step) once(ctx workflow.Context, d *doing, unknown codes.Failure, name string, in, out any) (lost bool, err error) {
	r := &s.Step.Retry
	with := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: s.Queue, StartToCloseTimeout: s.within(d.action), HeartbeatTimeout: act.HeartbeatTimeout, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: name + " " + d.part.Name,
	})
	pause := float64(r.InitialInterval)
	for {
		d.Tries++
		err := workflow.ExecuteActivity(with, name, in).Get(ctx, out)
		switch {
		case err == nil || temporal.IsCanceledError(err):
			return false, err
		case temporal.IsTimeoutError(err) || act.Code(err) == unknown:
			return true, err
		case act.Code(err) == codes.FirmwareBusy: // what was so before has to be read anew
			return false, err
		case act.IsFinal(err) || d.Tries >= r.MaxAttempts:
			return false, err
		}
		if err := workflow.Sleep(ctx, time.Duration(min(pause, float64(r.MaxInterval)))); err != nil {
			return false, err
		}
		pause = min(pause*r.BackoffCoefficient, float64(r.MaxInterval))
	}
}

// reset carries out a warm reset with one component: a lost answer is judged by the
// marker that was read before, and nothing is sent again.
func (s *step) reset(ctx workflow.Context, d *doing) (result, error) {
	var before, after string
	with := s.options(ctx, d.action, "marker of "+d.part.Name)
	if err := workflow.ExecuteActivity(with, actMarker, d.part).Get(ctx, &before); err != nil {
		return result{}, err
	}
	var out commandOut
	lost, err := s.once(ctx, d, codes.ResetResultUnknown, actReset, commandIn{Part: d.part, Switch: component.Switch{Operation: "warm_reset", Override: s.Override}}, &out)
	r := result{attempts: d.Tries, note: out.Sent, state: out.State}
	if !lost {
		return r, err
	}
	unknown := failed(codes.ResetResultUnknown, "the answer to the reset was lost and it was not sent again: "+err.Error())
	if before == "" {
		return r, unknown
	}
	if err := workflow.ExecuteActivity(with, actMarker, d.part).Get(ctx, &after); err != nil {
		if temporal.IsCanceledError(err) {
			return r, err
		}
		return r, unknown
	}
	if after == "" || after == before {
		return r, unknown
	}
	r.note = "the answer was lost; the machine's marker changed, so it was reset"
	return r, nil
}

// firmware carries out a FirmwareControl with one component: it starts the update,
// unless the versions are there, and waits for its end.
func (s *step) firmware(ctx workflow.Context, d *doing) (result, error) {
	if s.Image == nil || len(s.Image.Versions) == 0 {
		return result{}, failed(codes.FirmwareUpdateRefused, "the request names no firmware for "+s.Step.ComponentType)
	}
	if d.Since.IsZero() {
		d.Since = workflow.Now(ctx)
	}
	if d.Update == nil {
		later, err := s.startUpdate(ctx, d)
		if later || err != nil {
			return result{attempts: d.Tries, later: later}, err
		}
		d.Since = workflow.Now(ctx)
	}
	if d.Update.There {
		return result{attempts: d.Tries, note: "the versions are there"}, nil
	}
	return s.awaitUpdate(ctx, d)
}

// imageIn gives an activity a component and its image.
func (s *step) imageIn(d *doing) imageIn { return imageIn{Part: d.part, Image: *s.Image} }

// startUpdate starts a component's update when no other one is under way there.
func (s *step) startUpdate(ctx workflow.Context, d *doing) (later bool, err error) {
	in := s.imageIn(d)
	with := s.options(ctx, d.action, "versions of "+d.part.Name)
	for {
		in.Before = component.Before{}
		if err := workflow.ExecuteActivity(with, actBeforeUpdate, in).Get(ctx, &in.Before); err != nil {
			return false, err
		}
		if in.Before.There {
			d.Update = &component.Update{There: true}
			return false, nil
		}
		var begun component.Update
		if len(in.Before.Tasks) == 0 {
			lost, err := s.once(ctx, d, codes.FirmwareStartUnknown, actStartUpdate, in, &begun)
			if lost {
				err = workflow.ExecuteActivity(with, actFindUpdate, in).Get(ctx, &begun)
				if err != nil && !temporal.IsCanceledError(err) && act.Code(err) != codes.FirmwareStartUnknown {
					err = failed(codes.FirmwareStartUnknown, "the answer to the start of the update was lost, and nothing could be read since: "+err.Error())
				}
			}
			if err == nil {
				d.Update = &begun
			}
			if err == nil || act.Code(err) != codes.FirmwareBusy {
				return false, err
			}
		}
		if workflow.Now(ctx).Sub(d.Since) >= time.Duration(d.action.Parameters.PollTimeout) {
			return false, failed(codes.FirmwareBusy, fmt.Sprintf("another update was under way for %s: %v", d.action.Parameters.PollTimeout, in.Before.Tasks))
		}
		if s.full(ctx) {
			return true, nil
		}
		d.Tries = 0
		if err := workflow.Sleep(ctx, time.Duration(d.action.Parameters.PollInterval)); err != nil {
			return false, err
		}
	}
}

// awaitUpdate looks at an update until it has ended.
func (s *step) awaitUpdate(ctx workflow.Context, d *doing) (result, error) {
	in := s.imageIn(d)
	in.Update = *d.Update
	p := &d.action.Parameters
	deadline := d.Since.Add(time.Duration(p.PollTimeout))
	r := result{attempts: d.Tries}
	gone := 0 // looks in a row
	for {
		asked := workflow.Now(ctx)
		var seen updateSight
		with := workflow.WithActivityOptions(ctx, lookOptions(s.Queue, "update of "+d.part.Name))
		if err := workflow.ExecuteActivity(with, actLookAtUpdate, in).Get(ctx, &seen); err != nil {
			return r, err
		}
		if gone++; !seen.Gone {
			gone = 0
		}
		switch {
		case seen.Done:
			r.note = seen.Text
			return r, nil
		case gone >= goneLooks && s.restarts:
			r.note = "the BMC has no task of it; the versions are read when the step is over"
			return r, nil
		case seen.Failed:
			return r, failed(codes.FirmwareUpdateFailed, fmt.Sprintf("%s: %s", orUnknown(seen.State), seen.Text))
		case seen.Stays:
			return r, failed(seen.Code, seen.Why)
		case !asked.Before(deadline):
			return r, failed(codes.FirmwareUpdateTimeout, fmt.Sprintf("after %s it is %s: %s%s", p.PollTimeout, orUnknown(seen.State), seen.Text, seen.Why))
		}
		if s.full(ctx) {
			r.later = true
			return r, nil
		}
		if err := workflow.Sleep(ctx, min(time.Duration(p.PollInterval), deadline.Sub(workflow.Now(ctx)))); err != nil {
			return r, err
		}
	}
}

// goneLooks is after how many looks in a row a BMC that has no task of an update is
// through with it, as far as it tells: where the step goes on to restart the
// component, what was written comes alive then.
const goneLooks = 3

const (
	readBackWithin = 10 * time.Minute // of the versions, after the last phase
	readBackPause  = 30 * time.Second
)

// updating gives the last update of a step, nil if it has none.
func updating(actions []rule.Action) *rule.Action {
	var last *rule.Action
	for i := range actions {
		if actions[i].Name == rule.FirmwareControl {
			last = &actions[i]
		}
	}
	return last
}

// versions reads back what a step with an update asked for, after its last phase.
func (s *step) versions(ctx workflow.Context, actions []rule.Action) (*trouble, error) {
	update := updating(actions)
	if update == nil || s.Image == nil {
		return nil, nil
	}
	p := &update.Parameters
	began := workflow.Now(ctx)
	within, pause := min(time.Duration(p.PollTimeout), readBackWithin), min(max(time.Duration(p.PollInterval), time.Second), readBackPause)
	for {
		asked := workflow.Now(ctx)
		left := s.pending(s.Parts)
		var seen []sight
		in := lookIn{Parts: left, Most: s.Step.MaxParallel, Image: s.Image}
		with := workflow.WithActivityOptions(ctx, in.options(s.Queue, "read the versions back"))
		if err := workflow.ExecuteActivity(with, actReadBack, in).Get(ctx, &seen); err != nil {
			return nil, err
		}
		for _, one := range seen {
			if one.Power == same {
				s.Place.Seen = append(s.Place.Seen, one.Device)
			}
		}
		if left = s.pending(s.Parts); len(left) == 0 {
			return nil, nil
		}
		if asked.Sub(began) >= within {
			return s.mismatch(ctx, left, seen)
		}
		if err := workflow.Sleep(ctx, min(pause, began.Add(within).Sub(workflow.Now(ctx)))); err != nil {
			return nil, err
		}
	}
}

// mismatch fails the components whose versions are others than were asked for.
func (s *step) mismatch(ctx workflow.Context, left []report.Part, seen []sight) (*trouble, error) {
	why := &trouble{codes.FirmwareVersionMismatch, "other versions are read than were asked for: " + told(left, seen)}
	var all []report.Component
	powers := states(ctx, s.Queue, left)
	for i, p := range left {
		s.failed = append(s.failed, p.Device)
		all = append(all, report.Component{
			Device: p.Device, Status: report.Failed, Phase: s.label("versions read back"), Code: why.Code, Message: told([]report.Part{p}, seen), LastState: powers[i],
		})
	}
	return why, record(ctx, report.Record{Task: s.Task, Components: all})
}
