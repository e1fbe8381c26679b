package enrol

import (
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// lease sees to it that customers cannot have the node once it is clean: it is the
// enrolment's, and has not the trait that hands it to them. Both are read back.
func (e *enrolling) lease(ctx context.Context, in work) error {
	row, err := e.site.Row(ctx)
	if err != nil {
		return err
	}
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, in.Node)
	if err != nil {
		return err
	}
	if f.ProvisionState != facts.ProvisionStateManageable || f.InstanceBound == facts.True {
		return node.Unexpected(f, "lease the node to the enrolment")
	}
	if err := leased(ctx, client, in.Node, f, row.Spec.Lessees.Enrol, row.Spec.TraitBased); err != nil {
		return err
	}
	trait := row.Spec.CustomerReadyTrait
	if !row.Spec.TraitBased || trait == "" {
		return nil
	}
	r, err := client.RemoveTrait(ctx, in.Node, trait)
	if err != nil {
		return failed(ctx, err, codes.CustomerTraitNotRemoved, codes.CustomerTraitNotRemoved)
	}
	if r.Ironic == nil || r.Ironic.Traits == nil || slices.Contains(r.Ironic.Traits, trait) {
		return act.Retry(codes.CustomerTraitNotRemoved, "a later reading of the node does not show it without the trait %s", trait)
	}
	return nil
}

// leased gives the node the enrolment's lease. At a site whose customers see a node
// by its trait there may be none.
func leased(ctx context.Context, client enroller, uuid string, f *facts.Ironic, to string, traits bool) error {
	switch {
	case to == "" && traits:
		return nil
	case to == "":
		return act.Final(codes.LeaseNotSet, "the site has no project of the enrolment (lessees.enrol), and a clean node without a lessee would be a customer's at once")
	case !f.Lessee.Known:
		return act.Final(codes.LeaseNotSet, "Ironic does not say whose lease the node has")
	}
	r, err := client.SetLessee(ctx, uuid, f.Lessee.Value, to)
	if err != nil {
		if sources.KindOf(err) == sources.KindConflict { // changed meanwhile: look again
			return act.Retry(codes.LeaseNotSet, "%v", err)
		}
		return failed(ctx, err, codes.LeaseNotSet, codes.LeaseNotSet)
	}
	if r.Ironic == nil || r.Ironic.Lessee.Value != to {
		return act.Retry(codes.LeaseNotSet, "a later reading of the node does not show the lessee %s", to)
	}
	return nil
}

// provide asks for available, on the way to which Ironic cleans. It is asked for
// once: a node that is found in clean failed again has had its clean.
func (e *enrolling) provide(ctx context.Context, in work) error {
	const doing = "begin to clean"
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, in.Node)
	if err != nil {
		return err
	}
	switch state := f.ProvisionState; {
	case f.InstanceBound == facts.True:
		return node.Unexpected(f, doing+": an instance is bound to it, a clean would destroy what is on its disks")
	case state == facts.ProvisionStateAvailable || !state.Stable():
		return nil // by an earlier try
	case state == facts.ProvisionStateCleanFailed:
		return cleaned(f)
	case state != facts.ProvisionStateManageable:
		return node.Unexpected(f, doing)
	case f.Maintenance == facts.True:
		return act.Final(codes.MaintenanceForeign, "%s: somebody put the node in maintenance meanwhile: %s", doing, f.MaintenanceReason.Value)
	}
	if _, err := client.SetProvision(ctx, in.Node, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}); err != nil {
		return node.Failed(ctx, err)
	}
	return nil
}

// cleaned waits until Ironic has cleaned the node. It only looks.
func (e *enrolling) cleaned(ctx context.Context, in work) error {
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(restWithin)
	for {
		f, err := node.Read(ctx, client, in.Node)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && act.IsFinal(err):
			return err
		case err == nil && f.ProvisionState.Stable() && f.Reservation.Value == "":
			return cleaned(f)
		case e.site.Clock().After(until) && err != nil:
			return act.Final(codes.IronicUnavailable, "the clean was not seen to end within %s: %v", restWithin, err)
		case e.site.Clock().After(until):
			return act.Final(codes.IronicCleanFailed, "after %s the node is still in %q", restWithin, f.ProvisionState)
		}
		if !act.Wait(ctx, e.site.Poll) {
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
		return act.Final(codes.IronicCleanFailed, "the clean failed%s", node.Why(f))
	}
	return node.Unexpected(f, "clean")
}
