package component

import (
	"context"
	"errors"
	"strings"
	"time"

	goph "github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// Ironic is a site's Ironic, as far as the power of nodes goes.
type Ironic interface {
	node.Getter
	SetPower(ctx context.Context, ref string, target goph.TargetPowerState, patience time.Duration, may func(*facts.Ironic) error) (*sources.Record, error)
}

// nodes manages compute trays: those that Ironic manages through Ironic, the others
// through their BMCs.
type nodes struct{ bmcs }

// State reads a tray's power from its BMC; where the site has none of those, from
// Ironic.
func (n *nodes) State(ctx context.Context, p Part) (State, error) {
	if p.Node == "" || p.BMC != "" && n.hasBMCs(ctx) {
		return n.bmcs.State(ctx, p)
	}
	client, release, err := n.open(ctx)
	if err != nil {
		return State{}, err
	}
	defer release()
	at := n.Clock()
	f, err := node.Read(ctx, client, p.Node)
	if err != nil {
		return State{}, err
	}
	return State{Power: powerOf(f), At: at}, nil
}

func (n *nodes) hasBMCs(ctx context.Context) bool {
	_, release, err := n.BMC(ctx)
	if err == nil {
		release()
	}
	return err == nil
}

// powerOf gives a node's power in the words of BMCs, "" while it changes.
func powerOf(f *facts.Ironic) string {
	switch {
	case f.TargetPowerState.Known && f.TargetPowerState.Value != "":
		return ""
	case f.PowerState.Value == "power on":
		return On
	case f.PowerState.Value == "power off":
		return Off
	}
	return ""
}

func (n *nodes) open(ctx context.Context) (Ironic, func(), error) {
	client, release, err := n.Ironic(ctx)
	switch {
	case err == nil:
		return client, release, nil
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	}
	return nil, nil, act.Final(codes.IronicUnavailable, "%v", err)
}

// ours reports that a node is in maintenance by muster: then Ironic leaves its
// power alone.
func ours(f *facts.Ironic) bool {
	return f.Maintenance == facts.True && strings.HasPrefix(f.MaintenanceReason.Value, "muster:")
}

// Switch brings a tray into a state.
func (n *nodes) Switch(ctx context.Context, p Part, s Switch) (Switched, error) {
	if p.Node == "" {
		return n.bmcs.Switch(ctx, p, s)
	}
	client, release, err := n.open(ctx)
	if err != nil {
		return Switched{}, err
	}
	defer release()
	f, err := node.Read(ctx, client, p.Node)
	if err != nil {
		return Switched{}, err
	}
	if powerOf(f) == s.Leads() && !ours(f) {
		return Switched{State: s.Leads()}, nil
	}
	var may func(*facts.Ironic) error // asked again by what waits for Ironic's lock
	if s.Leads() == Off {
		may = func(f *facts.Ironic) error { return n.mayLose(ctx, f, s.Override) }
		if err := may(f); err != nil {
			return Switched{}, err
		}
	}
	if ours(f) {
		return n.bmcs.Switch(ctx, p, s)
	}
	if s.Operation == "power_off" {
		if err := n.flashing(ctx, &p); err != nil {
			return Switched{}, err
		}
	}
	target := map[string]goph.TargetPowerState{
		"power_on": goph.PowerOn, "force_power_on": goph.PowerOn, "power_off": goph.SoftPowerOff, "force_power_off": goph.PowerOff,
	}[s.Operation]
	most := effectWithin
	if s.Leads() == Off { // one by force waits for a soft one that is under way
		most = longest
	}
	inner, cancel, within := inTime(ctx, most)
	defer cancel()
	done := Switched{Sent: string(target)}
	r, err := client.SetPower(inner, p.Node, target, within, may)
	switch {
	case err == nil:
		done.State = powerOf(r.Ironic)
		return done, nil
	case act.Code(err) != "": // whoever may not
		return Switched{}, err
	}
	if s.patient() && n.underway(ctx, client, p.Node) {
		return done, nil
	}
	return done, node.Failed(ctx, err)
}

// mayLose refuses to take a tray's power where Ironic is at work on it, or where
// somebody else's instance came to it since the operation was admitted.
func (n *nodes) mayLose(ctx context.Context, f *facts.Ironic, override bool) error {
	if !f.ProvisionState.Stable() {
		return act.Retry(codes.IronicStateUnexpected, "Ironic is at work on the node, it is in %q: its power stays", f.ProvisionState)
	}
	if override || f.InstanceBound == facts.False {
		return nil
	}
	site, err := n.Site(ctx)
	if err != nil {
		return act.Retry(codes.IronicUnavailable, "whose the instance is could not be told: %v", err)
	}
	switch whose, err := node.Occupied(f, &site.Spec); {
	case err != nil:
		return err
	case whose == node.Foreign:
		return act.Final(codes.InstanceNotOurs, "the instance %s came to the node since the operation was admitted, and it is a customer's: its power stays, only an override takes it", f.InstanceUUID.Value)
	}
	return nil
}

// StartUpdate starts an update of a tray whose node nobody came to meanwhile: new
// firmware comes with a restart.
func (n *nodes) StartUpdate(ctx context.Context, p Part, i Image) (Update, error) {
	if p.Node != "" {
		client, release, err := n.open(ctx)
		if err != nil {
			return Update{}, err
		}
		defer release()
		f, err := node.Read(ctx, client, p.Node)
		if err == nil {
			err = n.mayLose(ctx, f, i.Override)
		}
		if err != nil {
			return Update{}, err
		}
	}
	return n.bmcs.StartUpdate(ctx, p, i)
}

// underway reports that Ironic took a power-off and is not through with it.
func (n *nodes) underway(ctx context.Context, client Ironic, ref string) bool {
	f, err := node.Read(ctx, client, ref)
	return err == nil && f.TargetPowerState.Known && strings.HasSuffix(f.TargetPowerState.Value, string(goph.PowerOff))
}

// Marker reads what changes with each reset; Ironic has no such thing.
func (n *nodes) Marker(ctx context.Context, p Part) (string, error) {
	if p.Node != "" && (p.BMC == "" || !n.hasBMCs(ctx)) {
		return "", nil
	}
	return n.bmcs.Marker(ctx, p)
}

// Reset restarts a tray, once.
func (n *nodes) Reset(ctx context.Context, p Part, override bool) (Switched, error) {
	if p.Node == "" {
		return n.bmcs.Reset(ctx, p, override)
	}
	client, release, err := n.open(ctx)
	if err != nil {
		return Switched{}, err
	}
	defer release()
	f, err := node.Read(ctx, client, p.Node)
	if err != nil {
		return Switched{}, err
	}
	if err := n.mayLose(ctx, f, override); err != nil {
		return Switched{}, err
	}
	switch {
	case ours(f):
		return n.bmcs.Reset(ctx, p, override)
	case powerOf(f) == Off:
		return Switched{}, act.Final(codes.PowerRefused, "%s is off: a warm reset is for what runs", p.Name)
	}
	if err := n.flashing(ctx, &p); err != nil {
		return Switched{}, err
	}
	inner, cancel, within := inTime(ctx, longest) // Ironic waits ten minutes for a system
	defer cancel()
	done := Switched{Sent: string(goph.SoftRebooting)}
	r, err := client.SetPower(inner, p.Node, goph.SoftRebooting, within, func(f *facts.Ironic) error { return n.mayLose(ctx, f, override) })
	switch kind := sources.KindOf(err); {
	case err == nil:
		done.State = powerOf(r.Ironic)
		return done, nil
	case act.Code(err) != "" || errors.Is(err, ironic.ErrUnsent):
		return Switched{}, node.Failed(ctx, err)
	case errors.Is(err, ironic.ErrGaveUp):
		return done, act.Final(codes.PowerNoEffect, "%v", err)
	case kind == sources.KindTransient: // it may have been accepted
		return done, act.Final(codes.ResetResultUnknown, "%v", err)
	}
	return done, node.Failed(ctx, err)
}
