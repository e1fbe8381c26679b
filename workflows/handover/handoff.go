package handover

import (
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// refusals are what keeps a device from its customer, by what devices says of it.
var refusals = map[devices.HandOffCode]codes.Failure{
	devices.HandOffProofMissing: codes.EnrollmentProofMissing,
	devices.HandOffNvLinkLatch:  codes.ReleaseNvlinkLatchRefused,
	devices.HandOffBackendLatch: codes.ReleaseBackendVRFLatchRefused,
	devices.HandOffTriage:       codes.ReleaseHoldRefused,
	devices.HandOffImpairment:   codes.ReleaseHoldRefused,
	devices.HandOffCustody:      codes.ReleaseHoldRefused,
	devices.HandOffInventory:    codes.ReleaseInventoryNotActive,
}

// handOff gives a device to its customers. What is refused after an earlier try may
// be in their reach by that one: it is taken back.
func (h *hand) handOff(ctx context.Context, in HandOff) error {
	site, err := h.site.Row(ctx)
	if err != nil {
		return err
	}
	err = h.give(ctx, in, &site)
	if in.Delegate || activity.GetInfo(ctx).Attempt == 1 || !keeps(err) {
		return err
	}
	what, failed := h.takeBack(ctx, &site.Spec, in.Node)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil && !act.IsFinal(failed):
		return act.Retry(act.Code(failed), "%s; an earlier try may have given it to customers, and it could not be taken back: %s", act.Message(err), act.Message(failed))
	case failed != nil:
		what = "an earlier try may have given it to customers, and it could not be taken back, do it by hand: " + act.Message(failed)
	case what == "":
		return err
	}
	return act.Final(act.Code(err), "%s; %s", act.Message(err), what)
}

// keeps reports that an error is what keeps a device from its customer.
func keeps(err error) bool {
	if err == nil || !act.IsFinal(err) {
		return false
	}
	for _, code := range refusals {
		if act.Code(err) == code {
			return true
		}
	}
	return false
}

// takeBack takes a node out of its customers' reach and says what was done; "" if
// it is in nobody's. Whoever has it by now keeps it.
func (h *hand) takeBack(ctx context.Context, spec *fleet.SiteSpec, n Node) (string, error) {
	client, release, err := openIronic[interface {
		lessor
		RemoveTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
	}](ctx, h)
	if err != nil {
		return "", err
	}
	defer release()
	f, err := node.Read(ctx, client, n.UUID)
	switch {
	case err != nil:
		return "", err
	case spec.TraitBased && f.Traits != nil && !slices.Contains(f.Traits, spec.CustomerReadyTrait):
		return "", nil
	case spec.TraitBased:
		if err := node.Withdraw(ctx, client, n.UUID, spec.CustomerReadyTrait); err != nil {
			return "", err
		}
		return "the customers' trait, which an earlier try may have given the node, was taken off again" + stays(f), nil
	case !f.Lessee.Known:
		return "", lesseeUnread()
	case f.Lessee.Value != "":
		return "", nil
	case f.InstanceBound == facts.True:
		return "the node is in its customers' reach, leased to nobody" + stays(f), nil
	}
	to := reserve(spec)
	if to == "" {
		return "", noReserve()
	}
	if _, err := client.SetLessee(ctx, n.UUID, "", to); err != nil {
		return "", leaseFailed(ctx, err)
	}
	return "the lease, which an earlier try may have ended, was made again", nil
}

// stays tells of an instance that is on a node which is taken back.
func stays(f *facts.Ironic) string {
	if f.InstanceBound != facts.True {
		return ""
	}
	return "; the instance " + f.InstanceUUID.Value + " is on it and stays"
}

// give gives a device to its customers: right before, and with the device's row
// held, everything that it rests on is read again.
func (h *hand) give(ctx context.Context, in HandOff, site *fleet.Site) error {
	if site.Spec.InventorySource() == "netbox" {
		if err := h.active(ctx, in.Node, site); err != nil {
			return err
		}
	}
	order := devices.HandOff{Device: in.Device, Job: in.Job, Proof: !in.Delegate, Latches: true, Delegate: in.Delegate}
	var write func(context.Context, *fleet.Device) error
	if !in.Delegate {
		client, release, err := openIronic[giver](ctx, h)
		if err != nil {
			return err
		}
		defer release()
		write = func(held context.Context, d *fleet.Device) error {
			return expose(ctx, held, client, &site.Spec, in.Node, d)
		}
	}
	err := h.site.Devices.HandOff(ctx, order, write)
	var refused *devices.HandOffRefused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return act.Final(refusals[refused.Code], "%s", refused.Message)
	case act.Code(err) != "":
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case in.Delegate:
		return err
	}
	return act.Retry(codes.EnrollmentProofUnavailable, "%v", err)
}

// active makes sure that NetBox has the device and says active, which policy reads
// out of its statuses.
func (h *hand) active(ctx context.Context, n Node, site *fleet.Site) error {
	ref, err := h.refOf(ctx, n, "netbox")
	if err != nil {
		return err
	}
	if ref == "" {
		return act.Final(codes.ReleaseInventoryNotActive, "NetBox does not list %s", n.Name)
	}
	bundle, err := h.site.Bundle(ctx)
	if err != nil {
		return err
	}
	client, release, err := act.Use[interface {
		Get(ctx context.Context, ref string) (*sources.Record, error)
	}](ctx, h.site, "netbox")
	if err != nil {
		return act.Retry(codes.NetboxUnavailable, "%v", err)
	}
	defer release()
	r, err := client.Get(ctx, ref)
	switch {
	case errors.Is(err, sources.ErrGone):
		return act.Final(codes.ReleaseInventoryNotActive, "NetBox has no device %s (%s) any more", ref, n.Name)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return act.Retry(codes.NetboxUnavailable, "%v", err)
	case r.Netbox == nil || !r.Netbox.Status.Known:
		return act.Retry(codes.NetboxUnavailable, "what NetBox says of device %s could not be read: %s", ref, r.Undecodable)
	}
	f := facts.Facts{Netbox: *r.Netbox, Site: site.Spec.Facts()}
	var c facts.Codes
	f.Intern(&c)
	if _, status, _, _ := bundle.Inventory("netbox", &f, &c); status != facts.InventoryStatusActive {
		return act.Final(codes.ReleaseInventoryNotActive, "NetBox says %q of %s", r.Netbox.Status.Value, n.Name)
	}
	return nil
}

// giver is an Ironic, as far as handing nodes to customers goes.
type giver interface {
	node.Getter
	AddTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
	SetLessee(ctx context.Context, ref, from, to string) (*sources.Record, error)
}

// expose puts the node of a device whose row is held in its customers' reach: by
// the trait or, where there is none, by ending our lease.
func expose(ctx, held context.Context, client giver, spec *fleet.SiteSpec, n Node, d *fleet.Device) error {
	if d.InfrastructureRef != n.UUID {
		return act.Final(codes.EnrollmentProofMissing, "the device has the node %s by now, the work began on %s", orNone(d.InfrastructureRef), orNone(n.UUID))
	}
	err := exposed(held, client, spec, n)
	if err != nil && held.Err() != nil && ctx.Err() == nil {
		return act.Retry(codes.IronicUnavailable, "Ironic did not answer in the time that the device may be held: %v", err)
	}
	return err
}

func exposed(ctx context.Context, client giver, spec *fleet.SiteSpec, n Node) error {
	const doing = "hand the node off"
	f, err := node.Read(ctx, client, n.UUID)
	if err != nil {
		return err
	}
	whose, err := node.Occupied(f, spec)
	leased := spec.Lessees.Slurm != "" && f.Lessee.Value == spec.Lessees.Slurm
	switch {
	case err != nil:
		return err
	case whose == node.Ours || leased:
		return act.Final(codes.IronicStateUnexpected, "%s: it is still ours, leased to %q with instance %s", doing, f.Lessee.Value, orNone(f.InstanceUUID.Value))
	case spec.Lessees.Slurm != "" && !f.Lessee.Known: // it may be SLURM's
		return lesseeUnread()
	case whose == node.Free && f.ProvisionState != facts.ProvisionStateAvailable:
		return node.Unexpected(f, doing)
	case spec.TraitBased:
		return node.Offer(ctx, client, n.UUID, spec.CustomerReadyTrait)
	case !f.Lessee.Known:
		return lesseeUnread()
	case f.Lessee.Value == "" || f.Lessee.Value != spec.Lessees.Enrol && f.Lessee.Value != spec.Lessees.Maintenance:
		return nil // customers have it already
	}
	if _, err := client.SetLessee(ctx, n.UUID, f.Lessee.Value, ""); err != nil {
		return leaseFailed(ctx, err)
	}
	return nil
}
