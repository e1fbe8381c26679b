package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Reset asks for a change of a machine's power.
type Reset struct {
	// Types are the kinds of reset that will do, the best first: which they are is
	// policy. The first that the BMC declares is sent, none other.
	Types []string
	// Want is the state that the machine is to be in: PowerOn or PowerOff. It is
	// not sent where the machine is in it already. "" asks for a reset that ends
	// where it began, told by the machine's marker.
	Want   string
	Within time.Duration // for the effect to show, default 5 min
	Pause  time.Duration // between two looks, default 2 s
}

// ResetResult is what became of a reset.
type ResetResult struct {
	Sent     string // the kind that was sent; "" where the machine was in the state already
	Before   Power
	After    Power // seen after the write
	Verified bool  // After shows the effect
}

// Reset changes a machine's power, once, and looks for the effect. It may end
// with ErrNoEffect, ErrUnknownOutcome, ErrNotAllowed or ErrNoHost. A reset
// without Want of a machine without a marker is done when the BMC accepts it;
// Verified tells.
func (c *Client) Reset(ctx context.Context, target Target, r Reset) (ResetResult, error) {
	op := "reset " + target.Name
	if r.Within <= 0 {
		r.Within = 5 * time.Minute
	}
	if r.Pause <= 0 {
		r.Pause = 2 * time.Second
	}
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return ResetResult{}, fault
	}
	defer b.close()
	uri, system, err := b.settled(ctx, r)
	if err != nil {
		return ResetResult{}, c.classified(op, system, err)
	}
	result := ResetResult{Before: powerNow(system)}
	if b.target.Class == facts.DeviceClassPowershelf {
		if result.Before, err = b.power(ctx); err != nil {
			return result, c.classified(op, nil, err)
		}
	}
	if r.Want != "" && result.Before.State == r.Want {
		result.After, result.Verified = result.Before, true
		return result, nil
	}
	kind, action, err := b.choose(ctx, system.doc, r.Types)
	if err != nil {
		return result, c.classified(op, nil, err)
	}
	began := c.clock()
	outcome := b.send(ctx, c.config.Timeout, func(api *gofish.APIClient) error { return b.postReset(api, uri, action, kind) })
	result.Sent = kind
	return c.settle(ctx, op, b, r, result, began, outcome)
}

// settled reads the machine, and waits while it passes from one state to
// another: what is sent meanwhile may be accepted and lost.
func (b *bmc) settled(ctx context.Context, r Reset) (uri string, system *answer, err error) {
	_, waitErr := b.client.until(ctx, r.Within, r.Pause, func(ctx context.Context) (bool, error) {
		uri, system, err = b.subject(ctx)
		if err != nil {
			return true, err
		}
		return !transitioning(powerNow(system).State), nil
	})
	if err == nil && system == nil {
		err = waitErr
	}
	return uri, system, err
}

// subject reads what is reset: the machine's System, or the chassis of a shelf.
func (b *bmc) subject(ctx context.Context) (uri string, a *answer, err error) {
	if b.target.Class != facts.DeviceClassPowershelf {
		return b.machine(ctx)
	}
	s := &scan{bmc: b, f: &facts.BMC{}}
	if err := b.root(ctx); err != nil {
		return "", nil, err
	}
	if err := s.chassisList(ctx); err != nil {
		return "", nil, err
	}
	for _, uri := range s.shelfChassis() {
		if a, err = b.get(ctx, uri); err != nil {
			return "", nil, err
		}
		if b.resetAction(a.doc).text("target") != "" || len(s.chassis) == 1 {
			return uri, a, nil
		}
	}
	return "", nil, fmt.Errorf("%w: none of its chassis has a reset", ErrNotAllowed)
}

func (b *bmc) resetAction(d document) document {
	if b.target.Class == facts.DeviceClassPowershelf {
		return d.object("Actions").object("#Chassis.Reset")
	}
	return d.object("Actions").object("#ComputerSystem.Reset")
}

// choose gives the first of the wanted kinds that the BMC declares for its
// System, inline or in the action's information.
func (b *bmc) choose(ctx context.Context, system document, wanted []string) (kind string, action document, err error) {
	action = b.resetAction(system)
	if action.text("target") == "" {
		return "", nil, fmt.Errorf("%w: it has no reset", ErrNotAllowed)
	}
	declared, err := b.declared(ctx, action)
	if err != nil {
		return "", nil, err
	}
	for _, one := range wanted {
		if slices.Contains(declared, one) {
			return one, action, nil
		}
	}
	return "", nil, fmt.Errorf("%w: of the resets %s it declares none (it has %s)", ErrNotAllowed, strings.Join(wanted, ", "), strings.Join(declared, ", "))
}

// declared gives the ResetTypes that an action declares, inline or in its
// information.
func (b *bmc) declared(ctx context.Context, action document) ([]string, error) {
	declared := action.texts("ResetType@Redfish.AllowableValues")
	info := action.text("@Redfish.ActionInfo")
	if len(declared) > 0 || info == "" {
		return declared, nil
	}
	a, err := b.get(ctx, info)
	if err != nil {
		return nil, err
	}
	for _, p := range a.doc.objects("Parameters") {
		if p.text("Name") == "ResetType" {
			declared = append(declared, p.texts("AllowableValues")...)
		}
	}
	return declared, nil
}

// send logs in, does one write and logs out. What fails before the write is
// never lost.
func (b *bmc) send(ctx context.Context, limit time.Duration, write func(*gofish.APIClient) error) sent {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	api, end, err := b.session(ctx)
	if err != nil {
		return sent{err: err}
	}
	defer end()
	return written(write(api))
}

// postReset sends a reset through gofish. Its System is built from the fields
// that this needs: read by itself it is lost with one field of an odd type, and
// its ETag would make the BMC refuse an action because of an unrelated change.
func (b *bmc) postReset(api *gofish.APIClient, uri string, action document, kind string) error {
	target, err := b.path(action.text("target"))
	if err != nil {
		return err
	}
	if b.target.Class == facts.DeviceClassPowershelf {
		var chassis schemas.Chassis
		if err := built(&chassis, uri, "#Chassis.Reset", target); err != nil {
			return err
		}
		chassis.SetClient(api)
		_, err = chassis.Reset(schemas.ResetType(kind))
		return err
	}
	var system schemas.ComputerSystem
	if err := built(&system, uri, "#ComputerSystem.Reset", target); err != nil {
		return err
	}
	system.SetClient(api)
	_, err = system.Reset(schemas.ResetType(kind))
	return err
}

// built fills one of gofish's resources with no more than one action.
func built(resource json.Unmarshaler, uri, action, target string) error {
	raw, err := json.Marshal(map[string]any{
		"@odata.id": uri, "Id": id(uri), "Actions": map[string]any{action: map[string]any{"target": target}},
	})
	if err != nil {
		return err
	}
	return resource.UnmarshalJSON(raw)
}

// settle looks for the effect of a reset that was sent.
func (c *Client) settle(ctx context.Context, op string, b *bmc, r Reset, result ResetResult, began time.Time, outcome sent) (ResetResult, error) {
	var refused *Refused
	answered := errors.As(outcome.err, &refused)
	if outcome.err != nil && !outcome.lost && (!answered || refused.Class != ClassAlready) {
		result.Sent = ""
		return result, c.classified(op, nil, outcome.err)
	}
	if outcome.err == nil && r.Want == "" && result.Before.Marker == "" {
		return result, nil
	}
	if outcome.lost && r.Want == "" && result.Before.Marker == "" { // nothing will tell
		return result, unknown(op, outcome.err)
	}
	within := r.Within
	if answered && !outcome.lost { // it says that the machine is there already: one look tells
		within = min(within, 4*r.Pause)
	}
	if done, _ := c.until(ctx, within, r.Pause, func(ctx context.Context) (bool, error) {
		p, err := b.power(ctx)
		if err != nil {
			return false, err
		}
		result.After = p
		if !p.At.After(began) {
			return false, nil
		}
		if r.Want != "" {
			return p.State == r.Want, nil
		}
		return result.Before.Marker != "" && p.Marker != "" && p.Marker != result.Before.Marker, nil
	}); done {
		result.Verified = true
		return result, nil
	}
	switch {
	case outcome.lost || ctx.Err() != nil:
		return result, unknown(op, outcome.err)
	case outcome.err != nil:
		result.Sent = ""
		return result, c.classified(op, nil, outcome.err)
	}
	return result, &sources.Error{
		Kind: sources.KindConflict, Op: op, Err: ErrNoEffect,
		Message: fmt.Sprintf("%s: %s was sent, and after %s the power is %s", ErrNoEffect, result.Sent, r.Within.Round(100*time.Millisecond), cmp.Or(result.After.State, "not told")),
	}
}

func unknown(op string, err error) *sources.Error {
	return &sources.Error{Kind: sources.KindTransient, Op: op, Message: ErrUnknownOutcome.Error(), Err: errors.Join(ErrUnknownOutcome, err)}
}

// classified gives an error of an act its meaning.
func (c *Client) classified(op string, a *answer, err error) *sources.Error {
	if errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrNoHost) || errors.Is(err, ErrNoUpdateMethod) || errors.Is(err, errForeign) {
		return refusedf(op, err, "%s", err)
	}
	return c.failure(op, a, err)
}
