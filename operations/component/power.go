package component

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// State is what a component's power was seen to be.
type State struct {
	Power string // On, Off, another word of its BMC, or "" for unknown
	At    time.Time
}

// The states that an operation asks for.
const (
	On  = redfish.PowerOn
	Off = redfish.PowerOff
)

// Switch is a command that leads to a state.
type Switch struct {
	Operation string // power_on, force_power_on, power_off or force_power_off
	// Seen: it is done only when the state is seen. A power_off without it is done
	// when it was accepted: a system that is asked to shut down takes its time, and
	// what looks after it waits.
	Seen bool
	// Override: it was allowed to take the power of a customer's machine.
	Override bool
}

// Leads gives the state that an operation leads to, "" if it is none that does.
func (s Switch) Leads() string {
	switch s.Operation {
	case "power_on", "force_power_on":
		return On
	case "power_off", "force_power_off":
		return Off
	}
	return ""
}

func (s Switch) patient() bool { return s.Operation == "power_off" && !s.Seen }

// Switched is what became of a Switch.
type Switched struct {
	Sent  string // what was sent, "" where the component was in the state already
	State string // that was seen last
}

// Power switches components.
type Power interface {
	Reachability
	// Switch brings a component into a state. It may be called again at any time.
	Switch(ctx context.Context, p Part, s Switch) (Switched, error)
	// Marker reads what changes with each reset of a component, "" where it has
	// none.
	Marker(ctx context.Context, p Part) (string, error)
	// Reset restarts a component without taking its power, once. It fails with
	// RESET_RESULT_UNKNOWN where nothing tells whether it happened; with any other
	// code that may be tried again nothing was sent. With override it was allowed on a
	// customer's machine.
	Reset(ctx context.Context, p Part, override bool) (Switched, error)
}

// Reachability tells whether components answer, and with what.
type Reachability interface {
	State(ctx context.Context, p Part) (State, error)
}

// BMC is a site's BMCs, as far as components are managed through them.
type BMC interface {
	Power(ctx context.Context, target redfish.Target) (redfish.Power, error)
	Reset(ctx context.Context, target redfish.Target, r redfish.Reset) (redfish.ResetResult, error)
	Updater
}

const (
	// effectWithin is how long a component may take to come on or, told so, off.
	effectWithin = 2 * time.Minute
	// resetWithin is how long a reset may take to show in a marker.
	resetWithin = 5 * time.Minute
	longest     = time.Hour // of an act whose activity has no deadline
	lookPause   = 2 * time.Second
)

// bmcs manages components through their BMCs.
type bmcs struct{ *Systems }

func (b *bmcs) pause() time.Duration { return min(b.Poll, lookPause) }

// State reads a component's power.
func (b *bmcs) State(ctx context.Context, p Part) (State, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return State{}, err
	}
	defer release()
	now, err := client.Power(ctx, p.target())
	if err != nil {
		return State{}, failed(ctx, err, codes.BMCUnreachable)
	}
	return State{Power: now.State, At: now.At}, nil
}

// types gives the kinds of reset for an operation.
func (b *bmcs) types(ctx context.Context, p *Part, operation string) ([]string, error) {
	types, err := b.Resets(ctx, operation, p.Type)
	if err == nil && len(types) == 0 {
		err = act.Final(codes.PowerRefused, "policies/operations gives no resets for %s of %s: add them to resets.%s", operation, p.Type, operation)
	}
	return types, err
}

// flashing refuses to take the power of a component whose BMC writes firmware: that
// may never start again. By force it is taken all the same. A BMC that does not
// tell its tasks is taken to have none.
func (b *bmcs) flashing(ctx context.Context, p *Part) error {
	if p.BMC == "" {
		return nil
	}
	client, release, err := b.BMC(ctx)
	if err != nil {
		return nil // the site has no BMCs
	}
	defer release()
	running, err := client.Updates(ctx, p.target())
	if err != nil || len(running) == 0 {
		return nil
	}
	return act.Retry(codes.FirmwareBusy, "an update of %s is under way (%s, %s): its power stays until that has ended, only by force it is taken", p.Name, running[0].URI, running[0].State)
}

// Switch brings a component into a state.
func (b *bmcs) Switch(ctx context.Context, p Part, s Switch) (Switched, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Switched{}, err
	}
	defer release()
	types, err := b.types(ctx, &p, s.Operation)
	if err != nil {
		return Switched{}, err
	}
	most := effectWithin
	if s.Operation == "power_off" {
		most = longest
		if err := b.flashing(ctx, &p); err != nil {
			return Switched{}, err
		}
	}
	inner, cancel, within := inTime(ctx, most)
	defer cancel()
	r, err := client.Reset(inner, p.target(), redfish.Reset{Types: types, Want: s.Leads(), Within: within, Pause: b.pause()})
	done := Switched{Sent: r.Sent, State: r.After.State}
	if s.patient() && errors.Is(err, redfish.ErrNoEffect) {
		return done, nil
	}
	return done, failed(ctx, err, codes.PowerRefused)
}

// Marker reads what changes with each reset.
func (b *bmcs) Marker(ctx context.Context, p Part) (string, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return "", err
	}
	defer release()
	now, err := client.Power(ctx, p.target())
	return now.Marker, failed(ctx, err, codes.BMCUnreachable)
}

// Reset restarts a component, once.
func (b *bmcs) Reset(ctx context.Context, p Part, _ bool) (Switched, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Switched{}, err
	}
	defer release()
	types, err := b.types(ctx, &p, "warm_reset")
	if err != nil {
		return Switched{}, err
	}
	if err := b.running(ctx, client, &p); err != nil {
		return Switched{}, err
	}
	if err := b.flashing(ctx, &p); err != nil {
		return Switched{}, err
	}
	inner, cancel, within := inTime(ctx, resetWithin)
	defer cancel()
	r, err := client.Reset(inner, p.target(), redfish.Reset{Types: types, Within: within, Pause: b.pause()})
	done := Switched{Sent: r.Sent, State: r.After.State}
	switch {
	case errors.Is(err, redfish.ErrUnknownOutcome):
		return done, act.Final(codes.ResetResultUnknown, "%v", err)
	case errors.Is(err, redfish.ErrNoEffect): // it may still come: not once more
		return done, act.Final(codes.PowerNoEffect, "%v", err)
	}
	return done, failed(ctx, err, codes.PowerRefused)
}

// running refuses a warm reset of what is not on.
func (b *bmcs) running(ctx context.Context, client BMC, p *Part) error {
	now, err := client.Power(ctx, p.target())
	switch {
	case err != nil:
		return failed(ctx, err, codes.BMCUnreachable)
	case now.State == Off:
		return act.Final(codes.PowerRefused, "%s is off: a warm reset is for what runs", p.Name)
	}
	return nil
}
