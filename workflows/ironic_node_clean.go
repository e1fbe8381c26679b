package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
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

// node is what the steps of a clean know of their node.
type node struct {
	Job  int64  `json:"job"`
	UUID string `json:"uuid"`
}

// unitDevice names a device of a job.
type unitDevice struct {
	Job    int64 `json:"job"`
	Device int64 `json:"device"`
}

// cleanNode takes a node whose clean failed, or that is manageable, through a
// clean back to available. Its traits stay as they are.
func cleanNode(ctx workflow.Context, u *unit) error {
	var n node
	at := func(phase string, percent int, name string) step {
		return step{phase: phase, percent: percent, name: name, lost: codes.IronicUnavailable}
	}
	if err := u.do(ctx, at("clear maintenance", 5, actCleanPrepare), unitDevice{u.Job, u.Device}, &n); err != nil {
		return err
	}
	if err := u.do(ctx, at("make manageable", 15, actCleanManage), n, nil); err != nil {
		return err
	}
	if err := u.do(ctx, at("begin to clean", 25, actCleanProvide), n, nil); err != nil {
		return err
	}
	wait := at("clean", 30, actCleanAwait)
	wait.within, wait.tries = cleanWithin+time.Hour, -1
	return u.do(ctx, wait, n, nil)
}

// cleaner is an Ironic, as far as cleaning a node goes.
type cleaner interface {
	Get(ctx context.Context, ref string) (*sources.Record, error)
	ClearMaintenance(ctx context.Context, ref, mark string, repair ironic.Repair) (*sources.Record, error)
	SetProvision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts) (*sources.Record, error)
	Settle(ctx context.Context, ref string, patience time.Duration) (*sources.Record, error)
}

// ironic gives the site's Ironic.
func (s *site) ironic(ctx context.Context) (cleaner, func(), error) {
	client, release, err := use[cleaner](ctx, s, "ironic")
	if err != nil {
		return nil, nil, failFinal(codes.IronicUnavailable, "%v", err)
	}
	return client, release, nil
}

// ironicFailed gives an error of Ironic its code.
func ironicFailed(ctx context.Context, err error) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ironic.ErrForeign):
		return failFinal(codes.MaintenanceForeign, "%v", err)
	case errors.Is(err, sources.ErrGone) || kind == sources.KindMissing:
		return failFinal(codes.IronicStateUnexpected, "Ironic has no such node: %v", err)
	case kind == sources.KindConflict:
		return failFinal(codes.IronicStateUnexpected, "%v", err)
	case kind == sources.KindForbidden || kind == sources.KindRefused:
		return failFinal(codes.IronicUnavailable, "%v", err)
	}
	return fail(codes.IronicUnavailable, "%v", err)
}

// read reads a node. What decides whether disks may be overwritten must be known.
func read(ctx context.Context, c cleaner, uuid string) (*facts.Ironic, error) {
	r, err := c.Get(ctx, uuid)
	if err != nil {
		return nil, ironicFailed(ctx, err)
	}
	f := r.Ironic
	if f == nil || f.ProvisionState.Null() || f.Maintenance == facts.Null || f.InstanceBound == facts.Null || !f.Reservation.Known {
		return nil, fail(codes.IronicUnavailable, "what Ironic says of node %s could not be read whole", uuid)
	}
	return f, nil
}

func unexpected(f *facts.Ironic, doing string) error {
	return failFinal(codes.IronicStateUnexpected, "%s: the node is in %q%s", doing, f.ProvisionState, why(f))
}

func why(f *facts.Ironic) string {
	if !f.LastError.Known || f.LastError.Value == "" {
		return ""
	}
	return "; Ironic's last error: " + f.LastError.Value
}

// unowned refuses a node that somebody's instance is on: a clean destroys what is
// on its disks.
func unowned(f *facts.Ironic, doing string) error {
	if f.InstanceBound == facts.True {
		return failFinal(codes.IronicStateUnexpected, "%s: instance %s is bound to the node, a clean would destroy what is on its disks", doing, f.InstanceUUID.Value)
	}
	return nil
}

// prepareClean finds the device's node, makes sure that it may be cleaned, and
// takes it out of maintenance that is ours or Ironic's own.
func (s *site) prepareClean(ctx context.Context, in unitDevice) (node, error) {
	const doing = "prepare the clean"
	d, err := s.device(ctx, in.Device)
	if err != nil {
		return node{}, err
	}
	if d.InfrastructureRef == "" {
		return node{}, failFinal(codes.IronicStateUnexpected, "%s: %s has no node in Ironic", doing, d.Name)
	}
	n := node{Job: in.Job, UUID: d.InfrastructureRef}
	c, release, err := s.ironic(ctx)
	if err != nil {
		return node{}, err
	}
	defer release()
	f, err := read(ctx, c, n.UUID)
	if err != nil {
		return node{}, err
	}
	if f.ProvisionState != facts.ProvisionStateCleanFailed && f.ProvisionState != facts.ProvisionStateManageable {
		return node{}, unexpected(f, doing)
	}
	if err := unowned(f, doing); err != nil {
		return node{}, err
	}
	if _, err := c.ClearMaintenance(ctx, n.UUID, markOf(f, in.Job), ironic.Repair{CleanFailure: true}); err != nil {
		return node{}, ironicFailed(ctx, err)
	}
	return n, nil
}

// markOf gives the mark of ours under which the node is in maintenance. Work that
// left it has ended: this job holds the device alone.
func markOf(f *facts.Ironic, job int64) string {
	mark, _, _ := strings.Cut(f.MaintenanceReason.Value, " ")
	if rest, ok := strings.CutPrefix(mark, "muster:"); ok && rest != "" {
		return mark
	}
	return fmt.Sprintf("muster:%d", job)
}

// manage brings the node from clean failed to manageable.
func (s *site) manage(ctx context.Context, n node) error {
	const doing = "make the node manageable"
	c, release, err := s.ironic(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := read(ctx, c, n.UUID)
	if err != nil {
		return err
	}
	switch f.ProvisionState {
	case facts.ProvisionStateManageable:
		return nil
	case facts.ProvisionStateCleanFailed:
		if _, err := c.SetProvision(ctx, n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetManage}); err != nil {
			return ironicFailed(ctx, err)
		}
	default:
		if f.ProvisionState.Stable() {
			return unexpected(f, doing)
		}
	}
	r, err := c.Settle(ctx, n.UUID, manageWithin)
	if err != nil {
		return ironicFailed(ctx, err)
	}
	if r.Ironic.ProvisionState != facts.ProvisionStateManageable {
		return unexpected(r.Ironic, doing)
	}
	return nil
}

// provide asks for available, on the way to which Ironic cleans. It is asked for
// once: a node that is found in clean failed again has had its clean.
func (s *site) provide(ctx context.Context, n node) error {
	const doing = "begin to clean"
	c, release, err := s.ironic(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := read(ctx, c, n.UUID)
	if err != nil {
		return err
	}
	switch state := f.ProvisionState; {
	case state == facts.ProvisionStateCleanFailed:
		return failFinal(codes.IronicCleanFailed, "the clean failed%s", why(f))
	case state == facts.ProvisionStateAvailable:
		return nil
	case state.Stable() && state != facts.ProvisionStateManageable:
		return unexpected(f, doing)
	case f.Maintenance == facts.True:
		return failFinal(codes.MaintenanceForeign, "%s: somebody put the node in maintenance meanwhile: %s", doing, f.MaintenanceReason.Value)
	}
	if err := unowned(f, doing); err != nil {
		return err
	}
	if _, err := c.SetProvision(ctx, n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}); err != nil {
		return ironicFailed(ctx, err)
	}
	return nil
}

// awaitClean waits until Ironic has cleaned the node. It only looks.
func (s *site) awaitClean(ctx context.Context, n node) error {
	c, release, err := s.ironic(ctx)
	if err != nil {
		return err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(cleanWithin)
	for {
		f, err := read(ctx, c, n.UUID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && final(err):
			return err
		case err == nil && f.ProvisionState.Stable() && f.Reservation.Value == "":
			return cleaned(f)
		case s.clock().After(until) && err != nil:
			return failFinal(codes.IronicUnavailable, "the clean was not seen to end within %s: %v", cleanWithin, err)
		case s.clock().After(until):
			return failFinal(codes.IronicCleanFailed, "after %s the node is still in %q", cleanWithin, f.ProvisionState)
		}
		if !wait(ctx, s.poll) {
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
		return failFinal(codes.IronicCleanFailed, "the clean failed%s", why(f))
	}
	return unexpected(f, "clean")
}
