package node

import (
	"context"
	"errors"
	"slices"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
)

// untraiter takes a trait off a node.
type untraiter interface {
	RemoveTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
}

// Withdraw takes a node out of the customers' pool by the trait that puts it
// there, and reads it gone. Somebody's machine stays theirs.
func Withdraw(ctx context.Context, c untraiter, uuid, trait string) error {
	r, err := c.RemoveTrait(ctx, uuid, trait)
	if err != nil {
		return traitFailed(ctx, err, codes.CustomerTraitNotRemoved)
	}
	if r.Ironic == nil || slices.Contains(r.Ironic.Traits, trait) {
		return act.Retry(codes.CustomerTraitNotRemoved, "Ironic took the removal of %s, and shows it on the node", trait)
	}
	return nil
}

// traiter gives a node a trait.
type traiter interface {
	AddTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
}

// Offer puts a node into the customers' pool by its trait, and reads it there.
func Offer(ctx context.Context, c traiter, uuid, trait string) error {
	r, err := c.AddTrait(ctx, uuid, trait)
	if err != nil {
		return traitFailed(ctx, err, codes.CustomerTraitNotAdded)
	}
	if r.Ironic == nil || !slices.Contains(r.Ironic.Traits, trait) {
		return act.Retry(codes.CustomerTraitNotAdded, "Ironic took %s, and does not show it on the node", trait)
	}
	return nil
}

// traitFailed gives an error of Ironic over a trait its code.
func traitFailed(ctx context.Context, err error, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sources.ErrGone) || kind == sources.KindMissing:
		return Failed(ctx, err)
	case kind == sources.KindConflict || kind == sources.KindForbidden || kind == sources.KindRefused:
		return act.Final(refused, "%v", err)
	}
	return Failed(ctx, err)
}

// withdraw takes the customers' trait off a node that is about to be cleaned,
// where policy says so.
func (c *cleaning) withdraw(ctx context.Context, client untraiter, n Node) error {
	site, err := c.site.Row(ctx)
	if err != nil || !site.Spec.TraitBased || n.Device == 0 {
		return err
	}
	d, err := c.site.Device(ctx, n.Device)
	if err != nil {
		return err
	}
	bundle, err := c.site.Bundle(ctx)
	if err != nil {
		return err
	}
	f := facts.Facts{Device: d.Facts(""), Site: site.Spec.Facts()}
	var codes facts.Codes
	f.Intern(&codes)
	if _, removes := bundle.CleanRemovesTrait(&f, &codes); !removes {
		return nil
	}
	return Withdraw(ctx, client, n.UUID, site.Spec.CustomerReadyTrait)
}
