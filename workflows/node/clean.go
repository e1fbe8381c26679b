package node

import (
	"context"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
)

const (
	actCleanPrepare = "ironic_clean_prepare"
	actCleanManage  = "ironic_clean_manage"
	actCleanProvide = "ironic_clean_provide"
	actCleanAwait   = "ironic_clean_await"
)

const (
	manageWithin = 2 * time.Minute
	// cleanWithin bounds one clean from its first look on: disks are overwritten
	// for hours. A clean that takes longer goes on in Ironic, unwatched.
	cleanWithin = 24 * time.Hour
)

// Node is what steps know of their node.
type Node struct {
	Job    int64  `json:"job"`
	Device int64  `json:"device,omitempty"`
	UUID   string `json:"uuid"`
}

// Cleaning is a device whose node is to be cleaned.
type Cleaning struct {
	act.Target
	UUID string `json:"uuid,omitempty"` // that the node must be; "" for whichever the device has
}

func cleanNode(ctx workflow.Context, u *act.Unit) error { return Clean(ctx, u, "", 5, 30) }

// Clean takes a node whose clean failed, or that is manageable, through a clean
// back to available. The customers' trait stays as it is, unless policy
// (clean_removes_trait) has it taken off. uuid is the node that the work began on,
// "" if it begins here; another one is left alone. from and wait are the percents
// at which it begins and begins to wait.
func Clean(ctx workflow.Context, u *act.Unit, uuid string, from, wait int) error {
	var n Node
	at := func(phase string, percent int, name string) act.Step {
		return act.Step{Phase: phase, Percent: percent, Name: name, Lost: codes.IronicUnavailable}
	}
	if err := u.Do(ctx, at("clear maintenance", from, actCleanPrepare), Cleaning{u.Target(), uuid}, &n); err != nil {
		return err
	}
	if err := u.Do(ctx, at("make manageable", from+2*(wait-from)/5, actCleanManage), n, nil); err != nil {
		return err
	}
	if err := u.Do(ctx, at("begin to clean", from+4*(wait-from)/5, actCleanProvide), n, nil); err != nil {
		return err
	}
	await := at("clean", wait, actCleanAwait)
	await.Within, await.Tries = cleanWithin+time.Hour, -1
	return u.Do(ctx, await, n, nil)
}

// cleaning is the activities of a clean at one site.
type cleaning struct{ site *act.Site }

// cleaner is an Ironic, as far as cleaning a node goes.
type cleaner interface {
	Getter
	untraiter
	ClearMaintenance(ctx context.Context, ref, mark string, repair ironic.Repair) (*sources.Record, error)
	SetProvision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts) (*sources.Record, error)
	Settle(ctx context.Context, ref string, patience time.Duration) (*sources.Record, error)
}

// open gives the site's Ironic.
func open(ctx context.Context, s *act.Site) (cleaner, func(), error) {
	client, release, err := act.Use[cleaner](ctx, s, "ironic")
	if err != nil {
		return nil, nil, act.Final(codes.IronicUnavailable, "%v", err)
	}
	return client, release, nil
}

// unowned refuses a node that somebody's instance is on: a clean destroys what is
// on its disks.
func unowned(f *facts.Ironic, doing string) error {
	if f.InstanceBound == facts.True {
		return act.Final(codes.IronicStateUnexpected, "%s: instance %s is bound to the node, a clean would destroy what is on its disks", doing, f.InstanceUUID.Value)
	}
	return nil
}

// inCustody refuses a device of which a partner holds custody: what is on its disks
// is not ours to destroy.
func inCustody(d *fleet.Device, doing string) error {
	switch d.Operational {
	case facts.OperationalStatusDelegated, facts.OperationalStatusPendingHandover:
		return act.Final(codes.CustodyChanged, "%s: %s is %s: a partner holds custody of it", doing, d.Name, d.Operational)
	}
	return nil
}

// prepareClean finds the device's node, makes sure that it may be cleaned, and
// takes it out of maintenance that is ours or Ironic's own.
func (c *cleaning) prepareClean(ctx context.Context, in Cleaning) (Node, error) {
	const doing = "prepare the clean"
	d, err := c.site.Device(ctx, in.Device)
	if err != nil {
		return Node{}, err
	}
	switch {
	case d.InfrastructureRef == "":
		return Node{}, act.Final(codes.IronicStateUnexpected, "%s: %s has no node in Ironic", doing, d.Name)
	case in.UUID != "" && d.InfrastructureRef != in.UUID:
		return Node{}, act.Final(codes.IronicStateUnexpected, "%s: the device has the node %s by now, the work began on %s", doing, d.InfrastructureRef, in.UUID)
	}
	if err := inCustody(&d, doing); err != nil {
		return Node{}, err
	}
	n := Node{Job: in.Job, Device: in.Device, UUID: d.InfrastructureRef}
	client, release, err := open(ctx, c.site)
	if err != nil {
		return Node{}, err
	}
	defer release()
	f, err := Read(ctx, client, n.UUID)
	if err != nil {
		return Node{}, err
	}
	if f.ProvisionState != facts.ProvisionStateCleanFailed && f.ProvisionState != facts.ProvisionStateManageable {
		return Node{}, Unexpected(f, doing)
	}
	if err := unowned(f, doing); err != nil {
		return Node{}, err
	}
	if _, err := client.ClearMaintenance(ctx, n.UUID, MarkOf(f, in.Job), ironic.Repair{CleanFailure: true}); err != nil {
		return Node{}, Failed(ctx, err)
	}
	return n, nil
}

// manage brings the node from clean failed to manageable.
func (c *cleaning) manage(ctx context.Context, n Node) error {
	const doing = "make the node manageable"
	client, release, err := open(ctx, c.site)
	if err != nil {
		return err
	}
	defer release()
	f, err := Read(ctx, client, n.UUID)
	if err != nil {
		return err
	}
	switch f.ProvisionState {
	case facts.ProvisionStateManageable:
		return nil
	case facts.ProvisionStateCleanFailed:
		if _, err := client.SetProvision(ctx, n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetManage}); err != nil {
			return Failed(ctx, err)
		}
	default:
		if f.ProvisionState.Stable() {
			return Unexpected(f, doing)
		}
	}
	r, err := client.Settle(ctx, n.UUID, manageWithin)
	if err != nil {
		return Failed(ctx, err)
	}
	if r.Ironic.ProvisionState != facts.ProvisionStateManageable {
		return Unexpected(r.Ironic, doing)
	}
	return nil
}

// provide asks for available, on the way to which Ironic cleans. It is asked for
// once: a node that is found in clean failed again has had its clean.
func (c *cleaning) provide(ctx context.Context, n Node) error {
	const doing = "begin to clean"
	if n.Device != 0 {
		d, err := c.site.Device(ctx, n.Device)
		if err != nil {
			return err
		}
		if err := inCustody(&d, doing); err != nil {
			return err
		}
	}
	client, release, err := open(ctx, c.site)
	if err != nil {
		return err
	}
	defer release()
	f, err := Read(ctx, client, n.UUID)
	if err != nil {
		return err
	}
	switch state := f.ProvisionState; {
	case state == facts.ProvisionStateCleanFailed:
		return act.Final(codes.IronicCleanFailed, "the clean failed%s", Why(f))
	case state == facts.ProvisionStateAvailable:
		return nil
	case state.Stable() && state != facts.ProvisionStateManageable:
		return Unexpected(f, doing)
	case f.Maintenance == facts.True:
		return act.Final(codes.MaintenanceForeign, "%s: somebody put the node in maintenance meanwhile: %s", doing, f.MaintenanceReason.Value)
	}
	if err := unowned(f, doing); err != nil {
		return err
	}
	if err := c.withdraw(ctx, client, n); err != nil {
		return err
	}
	if _, err := client.SetProvision(ctx, n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}); err != nil {
		return Failed(ctx, err)
	}
	return nil
}

// awaitClean waits until Ironic has cleaned the node. It only looks.
func (c *cleaning) awaitClean(ctx context.Context, n Node) error {
	client, release, err := open(ctx, c.site)
	if err != nil {
		return err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(cleanWithin)
	for {
		f, err := Read(ctx, client, n.UUID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && act.IsFinal(err):
			return err
		case err == nil && f.ProvisionState.Stable() && f.Reservation.Value == "":
			return cleaned(f)
		case c.site.Clock().After(until) && err != nil:
			return act.Final(codes.IronicUnavailable, "the clean was not seen to end within %s: %v", cleanWithin, err)
		case c.site.Clock().After(until):
			return act.Final(codes.IronicCleanFailed, "after %s the node is still in %q", cleanWithin, f.ProvisionState)
		}
		if !act.Wait(ctx, c.site.Poll) {
			return ctx.Err()
		}
	}
}

// cleaned judges the state in which the node came to rest.
func cleaned(f *facts.Ironic) error {
	switch f.ProvisionState {
	case facts.ProvisionStateAvailable:
		return nil
	case facts.ProvisionStateCleanFailed:
		return act.Final(codes.IronicCleanFailed, "the clean failed%s", Why(f))
	}
	return Unexpected(f, "clean")
}
