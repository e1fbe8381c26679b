package handover

import (
	"context"
	"errors"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// cordon takes a node out of the customers' pool where a trait puts it there.
// Whoever has it keeps it.
func (h *hand) cordon(ctx context.Context, in act.Target) (Node, error) {
	n, d, err := h.nodeOf(ctx, in)
	if err != nil {
		return Node{}, err
	}
	if err := inCustody(&d); err != nil {
		return Node{}, err
	}
	if n.UUID == "" {
		return Node{}, act.Final(codes.IronicStateUnexpected, "%s has no node in Ironic", d.Name)
	}
	site, err := h.site.Row(ctx)
	if err != nil || !site.Spec.TraitBased {
		return n, err
	}
	client, release, err := openIronic[interface {
		RemoveTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
	}](ctx, h)
	if err != nil {
		return Node{}, err
	}
	defer release()
	return n, node.Withdraw(ctx, client, n.UUID, site.Spec.CustomerReadyTrait)
}

// withdraw takes a device back from the customer to whom it was delegated.
func (h *hand) withdraw(ctx context.Context, in act.Target) error {
	err := h.site.Devices.Withdraw(ctx, in.Device, in.Job)
	var refused *devices.HandOffRefused
	var known *devices.RefusedError
	if errors.As(err, &refused) || errors.As(err, &known) {
		return act.Final(codes.CustodyChanged, "%v", err)
	}
	return err
}
