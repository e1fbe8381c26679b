package handover

import (
	"context"
	"errors"
	"strings"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// open gives a client of the site; what cannot be opened stays so until the site
// is mended.
func open[T any](ctx context.Context, h *hand, name string, unavailable codes.Failure) (T, func(), error) {
	client, release, err := act.Use[T](ctx, h.site, name)
	if err != nil && ctx.Err() == nil {
		err = act.Final(unavailable, "%v", err)
	}
	return client, release, err
}

func openIronic[T any](ctx context.Context, h *hand) (T, func(), error) {
	return open[T](ctx, h, "ironic", codes.IronicUnavailable)
}

func notOurs(f *facts.Ironic, doing string) error {
	return act.Final(codes.InstanceNotOurs, "%s: the instance %s is on the node, and not one that muster bound", doing, f.InstanceUUID.Value)
}

// atRest reports a state that only a verb leaves, and that nobody is working in.
func atRest(f *facts.Ironic) bool { return f.ProvisionState.Stable() && f.Reservation.Value == "" }

// holds reports that an instance is bound to a node.
func holds(f *facts.Ironic, instance string) bool {
	return f.InstanceBound == facts.True && strings.EqualFold(f.InstanceUUID.Value, instance)
}

// lesseeUnread is that nobody knows whether a node is SLURM's.
func lesseeUnread() error {
	return act.Retry(codes.IronicUnavailable, "to whom the node is leased could not be read: Ironic must be spoken to in version 1.65 or later")
}

// leaseFailed gives an error of Ironic over a lease its code.
func leaseFailed(ctx context.Context, err error) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sources.ErrGone) || kind == sources.KindMissing:
	case kind == sources.KindConflict || kind == sources.KindForbidden || kind == sources.KindRefused:
		return act.Final(codes.LeaseNotSet, "%v", err)
	}
	return node.Failed(ctx, err)
}

// ironicFailed is node.Failed where a refusal has a code of its own.
func ironicFailed(ctx context.Context, err error, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sources.ErrGone):
	case kind == sources.KindConflict || kind == sources.KindForbidden || kind == sources.KindRefused:
		return act.Final(refused, "%v", err)
	}
	return node.Failed(ctx, err)
}

// novaFailed gives an error of Nova its code.
func novaFailed(ctx context.Context, err error, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case kind == sources.KindConflict || kind == sources.KindRefused || kind == sources.KindMissing:
		return act.Final(refused, "%v", err)
	case kind == sources.KindForbidden:
		return act.Final(codes.NovaUnavailable, "%v", err)
	}
	return act.Retry(codes.NovaUnavailable, "%v", err)
}

// proven makes sure that an enrolment has validated the very node that is about
// to be worked on.
func (h *hand) proven(ctx context.Context, n Node) error {
	ref, err := h.site.Devices.Proven(ctx, n.Device)
	switch {
	case errors.Is(err, devices.ErrProofMissing):
		return act.Final(codes.EnrollmentProofMissing, "%v", err)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return act.Retry(codes.EnrollmentProofUnavailable, "%v", err)
	case ref != n.UUID:
		return act.Final(codes.EnrollmentProofMissing, "the device has the node %s by now, the work began on %s", ref, n.UUID)
	}
	return nil
}

// inCustody refuses a device of which a partner holds custody: nothing of it is
// ours to change.
func inCustody(d *fleet.Device) error {
	switch d.Operational {
	case facts.OperationalStatusDelegated, facts.OperationalStatusPendingHandover, facts.OperationalStatusDrained:
		return act.Final(codes.CustodyChanged, "%s is %s: a partner holds custody of it", d.Name, d.Operational)
	}
	return nil
}

// nodeOf names the node of a device; UUID "" where it has none.
func (h *hand) nodeOf(ctx context.Context, in act.Target) (Node, fleet.Device, error) {
	d, err := h.site.Device(ctx, in.Device)
	return Node{Job: in.Job, Device: in.Device, Name: d.Name, UUID: d.InfrastructureRef}, d, err
}
