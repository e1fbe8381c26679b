package rack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/workflows/act"
)

// Names of the activities that touch a site.
const (
	actLook         = "component_look"
	actSwitch       = "component_switch"
	actState        = "component_state"
	actMarker       = "component_marker"
	actReset        = "component_reset"
	actBeforeUpdate = "component_before_update"
	actStartUpdate  = "component_start_update"
	actFindUpdate   = "component_find_update"
	actLookAtUpdate = "component_look_at_update"
	actReadBack     = "component_read_back"
	actDecommission = "component_decommission"
)

// Finder gives a component as it is now.
type Finder func(ctx context.Context, p report.Part) (component.Part, error)

// RegisterSite gives the worker of a site what touches the components there.
func RegisterSite(w worker.ActivityRegistry, s *act.Site) {
	Register(w, component.Managers(component.At(s)), func(ctx context.Context, p report.Part) (component.Part, error) {
		found, err := component.Find(ctx, s, p.Device, p.Type)
		if err == nil {
			err = found.InNetBox(ctx, s)
		}
		return found, err
	})
}

// Register gives a worker the activities on components that find gives, by their
// managers.
func Register(w worker.ActivityRegistry, managers map[string]component.Manager, find Finder) {
	k := &keeper{managers, find}
	for _, one := range []struct {
		name string
		do   any
	}{
		{actLook, k.look}, {actSwitch, k.command}, {actState, k.state}, {actMarker, k.marker}, {actReset, k.reset}, {actBeforeUpdate, k.beforeUpdate},
		{actStartUpdate, k.startUpdate}, {actFindUpdate, k.findUpdate}, {actLookAtUpdate, k.lookAtUpdate}, {actReadBack, k.readBack}, {actDecommission, k.decommission},
	} {
		w.RegisterActivityWithOptions(one.do, activity.RegisterOptions{Name: one.name})
	}
}

// keeper is the activities on the components of one site.
type keeper struct {
	managers map[string]component.Manager
	find     Finder
}

// with finds a component and its manager's capability.
func with[C any](ctx context.Context, k *keeper, p report.Part, of func(component.Manager) C) (c C, found component.Part, err error) {
	c = of(k.managers[p.Type])
	if any(c) == nil {
		return c, found, act.Final(codes.InternalError, "no manager of %s can do this: %s", p.Type, p.Name)
	}
	found, err = k.find(ctx, p)
	return c, found, err
}

func power(m component.Manager) component.Power               { return m.Power }
func reachability(m component.Manager) component.Reachability { return m.Reachability }
func firmware(m component.Manager) component.Firmware         { return m.Firmware }
func decommission(m component.Manager) component.Decommission { return m.Decommission }

// tried tells with a failure how often it was tried.
func tried(ctx context.Context, err error) error {
	var coded *temporal.ApplicationError
	if err == nil || !errors.As(err, &coded) {
		return err
	}
	return temporal.NewApplicationErrorWithOptions(coded.Message(), coded.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: coded.NonRetryable(), Details: []any{int(activity.GetInfo(ctx).Attempt)},
	})
}

// commandIn is a command for one component.
type commandIn struct {
	Part   report.Part      `json:"part"`
	Switch component.Switch `json:"switch"`
}

// commandOut is what became of it.
type commandOut struct {
	Attempt int    `json:"attempt"`
	Sent    string `json:"sent,omitempty"`
	State   string `json:"state,omitempty"`
}

func outOf(ctx context.Context, r component.Switched) commandOut {
	return commandOut{int(activity.GetInfo(ctx).Attempt), r.Sent, r.State}
}

func (k *keeper) command(ctx context.Context, in commandIn) (commandOut, error) {
	m, p, err := with(ctx, k, in.Part, power)
	if err != nil {
		return commandOut{}, tried(ctx, err)
	}
	if in.Switch.Leads() == "" {
		return commandOut{}, act.Final(codes.InternalError, "%s leads to no state", in.Switch.Operation)
	}
	r, err := m.Switch(ctx, p, in.Switch)
	return outOf(ctx, r), tried(ctx, err)
}

func (k *keeper) reset(ctx context.Context, in commandIn) (commandOut, error) {
	m, p, err := with(ctx, k, in.Part, power)
	if err != nil {
		return commandOut{}, err
	}
	r, err := m.Reset(ctx, p, in.Switch.Override)
	return outOf(ctx, r), err
}

func (k *keeper) marker(ctx context.Context, in report.Part) (string, error) {
	m, p, err := with(ctx, k, in, power)
	if err != nil {
		return "", err
	}
	text, err := m.Marker(ctx, p)
	return text, tried(ctx, err)
}

func (k *keeper) state(ctx context.Context, in report.Part) (commandOut, error) {
	m, p, err := with(ctx, k, in, power)
	if err != nil {
		return commandOut{}, tried(ctx, err)
	}
	now, err := m.State(ctx, p)
	if err == nil && now.Power == "" {
		err = act.Retry(codes.ComponentNotReached, "%s does not tell its power", p.Name)
	}
	return commandOut{Attempt: int(activity.GetInfo(ctx).Attempt), State: now.Power}, tried(ctx, err)
}

// decommissionIn asks for the decommissioning of one component.
type decommissionIn struct {
	Part report.Part `json:"part"`
	Task int64       `json:"task"`
}

func (k *keeper) decommission(ctx context.Context, in decommissionIn) error {
	m, p, err := with(ctx, k, in.Part, decommission)
	if err != nil {
		return err
	}
	return m.Decommission(ctx, p, fmt.Sprintf("muster task %d", in.Task))
}

// imageIn is an update of one component.
type imageIn struct {
	Part   report.Part      `json:"part"`
	Image  component.Image  `json:"image"`
	Before component.Before `json:"before,omitzero"`
	Update component.Update `json:"update,omitzero"`
}

func (k *keeper) beforeUpdate(ctx context.Context, in imageIn) (component.Before, error) {
	m, p, err := with(ctx, k, in.Part, firmware)
	if err != nil {
		return component.Before{}, tried(ctx, err)
	}
	b, err := m.BeforeUpdate(ctx, p, in.Image)
	return b, tried(ctx, err)
}

func (k *keeper) startUpdate(ctx context.Context, in imageIn) (component.Update, error) {
	m, p, err := with(ctx, k, in.Part, firmware)
	if err != nil {
		return component.Update{}, err
	}
	return m.StartUpdate(ctx, p, in.Image)
}

func (k *keeper) findUpdate(ctx context.Context, in imageIn) (component.Update, error) {
	m, p, err := with(ctx, k, in.Part, firmware)
	if err != nil {
		return component.Update{}, err
	}
	return m.FindUpdate(ctx, p, in.Image, in.Before)
}

// updateSight is one look at an update, or why there was none.
type updateSight struct {
	component.Progress
	Why   string        `json:"why,omitempty"`
	Code  codes.Failure `json:"code,omitempty"`
	Stays bool          `json:"stays,omitempty"` // looking again mends nothing
}

func (k *keeper) lookAtUpdate(ctx context.Context, in imageIn) (updateSight, error) {
	m, p, err := with(ctx, k, in.Part, firmware)
	var seen component.Progress
	if err == nil {
		looking, cancel := context.WithTimeout(ctx, oneLook)
		defer cancel()
		seen, err = m.LookAtUpdate(looking, p, in.Image, in.Update)
	}
	switch {
	case ctx.Err() != nil:
		return updateSight{}, ctx.Err()
	case err != nil:
		return updateSight{Why: whyOf(err), Code: act.Code(err), Stays: act.IsFinal(err)}, nil
	}
	return updateSight{Progress: seen}, nil
}

const (
	lookWithin     = 5 * time.Minute  // of a look at all components, one try
	lastLookWithin = 5 * time.Minute  // of the last look, with all its tries
	oneLook        = 45 * time.Second // at one component
	looksAtOnce    = 32
)

// lookIn is what is looked at.
type lookIn struct {
	Parts           []report.Part    `json:"parts"`
	Most            int              `json:"most,omitempty"` // at once; 0: looksAtOnce
	Decommissioning bool             `json:"decommissioning,omitempty"`
	Image           *component.Image `json:"image,omitempty"`
	Last            bool             `json:"last,omitempty"` // of a task that did not succeed
}

// most is how many components are asked at once.
func (in *lookIn) most() int {
	if in.Most > 0 {
		return min(looksAtOnce, in.Most)
	}
	return looksAtOnce
}

// sight is what was seen of one component: the word that was asked for, or why
// there is none.
type sight struct {
	Device int64  `json:"device"`
	Power  string `json:"power,omitempty"`
	Why    string `json:"why,omitempty"`
}

// same is the word for versions that are as asked for.
const same = "same"

func (v *sight) told() string {
	switch {
	case v.Power != "":
		return v.Power
	case v.Why != "":
		return "unknown (" + v.Why + ")"
	}
	return "unknown"
}

// look reads the power of components, or how far their decommissioning is.
func (k *keeper) look(ctx context.Context, in lookIn) ([]sight, error) {
	return k.all(ctx, in, func(ctx context.Context, p report.Part) (string, error) {
		if in.Decommissioning {
			m, found, err := with(ctx, k, p, decommission)
			if err != nil {
				return "", err
			}
			return m.Decommissioning(ctx, found)
		}
		m, found, err := with(ctx, k, p, reachability)
		if err != nil {
			return "", err
		}
		now, err := m.State(ctx, found)
		return now.Power, err
	})
}

// readBack compares the versions of components with those that were asked for.
func (k *keeper) readBack(ctx context.Context, in lookIn) ([]sight, error) {
	return k.all(ctx, in, func(ctx context.Context, p report.Part) (string, error) {
		m, found, err := with(ctx, k, p, firmware)
		if err != nil {
			return "", err
		}
		text, err := m.Differs(ctx, found, *in.Image)
		if err == nil && text == "" {
			text = same
		}
		return text, err
	})
}

// all asks components beside each other. One that gives no answer is told, and is
// no failure of the look.
func (k *keeper) all(ctx context.Context, in lookIn, ask func(context.Context, report.Part) (string, error)) ([]sight, error) {
	seen := make([]sight, len(in.Parts))
	free := make(chan struct{}, in.most())
	var group sync.WaitGroup
	for i, p := range in.Parts {
		group.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			seen[i].Device = p.Device
			if ctx.Err() != nil {
				return
			}
			looking, cancel := context.WithTimeout(ctx, oneLook)
			defer cancel()
			word, err := ask(looking, p)
			if err != nil {
				seen[i].Why = whyOf(err)
				return
			}
			seen[i].Power = word
		})
	}
	group.Wait()
	return seen, ctx.Err()
}

func whyOf(err error) string {
	var coded *temporal.ApplicationError
	if errors.As(err, &coded) {
		return clip(coded.Message())
	}
	return clip(err.Error())
}
