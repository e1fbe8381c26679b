package enrol

import (
	"context"
	"errors"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

// failure tells of a run that did not succeed.
type failure struct {
	act.Target
	Pinned string `json:"pinned,omitempty"` // the node that it was about; "" where that is not known
}

// prove notes that the node was shown to be what the device is to be.
func (e *enrolling) prove(ctx context.Context, in work) error {
	result, err := e.site.Devices.Prove(ctx, in.Device, in.Node, devices.JobCaller(in.Job))
	var refused *devices.RefusedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return act.Final(codes.EnrollmentProofUnavailable, "%v", err)
	case err != nil:
		return act.Retry(codes.EnrollmentProofUnavailable, "%v", err)
	case result.Outcome == devices.ProofSuperseded:
		return act.Retry(codes.EnrollmentProofUnavailable, "the node %s was validated, and the device still carries the node %s: run the job again once Ironic's listing has shown the new one", in.Node, result.Device.InfrastructureRef)
	}
	return nil
}

// unprove notes that a run did not succeed. What a device has of a proof of this
// very node stays.
func (e *enrolling) unprove(ctx context.Context, in failure) error {
	if in.Pinned == "" {
		return nil
	}
	_, err := e.site.Devices.Unprove(ctx, in.Device, in.Pinned, devices.JobCaller(in.Job))
	var refused *devices.RefusedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return act.Final(codes.EnrollmentProofUnavailable, "%v", err)
	}
	return act.Retry(codes.EnrollmentProofUnavailable, "%v", err)
}

// withdraw ends the device's proof of a node that is gone, or that is about to be
// made: what gets its UUID later was not validated.
func withdraw(ctx context.Context, site *act.Site, in act.Target, uuid string) error {
	d, err := site.Device(ctx, in.Device)
	if err != nil || d.Proof.ValidatedRef != uuid {
		return err
	}
	_, err = site.Devices.WithdrawProof(ctx, in.Device, uuid, devices.JobCaller(in.Job))
	var refused *devices.RefusedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return act.Final(codes.EnrollmentProofUnavailable, "%v", err)
	}
	return act.Retry(codes.EnrollmentProofUnavailable, "%v", err)
}

// letGo deletes the node, and with it what was proven of it.
func (r *removing) letGo(ctx context.Context, in removal) error {
	if err := r.deleteNode(ctx, in); err != nil {
		return err
	}
	return withdraw(ctx, r.site, in.Target, in.Node)
}
