package ironic

import (
	"context"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/sources"
)

// SetLessee moves the node's lease from one project to another; "" is none.
// A node that another than from holds meanwhile is a conflict.
func (c *Client) SetLessee(ctx context.Context, ref, from, to string) (*sources.Record, error) {
	const op = "set the lessee of an ironic node"
	if s, err := c.session(ctx); err != nil {
		return nil, err
	} else if !s.has("lessee") {
		return nil, refused(sources.KindRefused, op, "this Ironic is spoken to in version 1.%d, and a lessee needs 1.65: upgrade Ironic", s.minor)
	}
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			switch lessee := o.facts.Lessee; {
			case !lessee.Known:
				return false, unread(op, "lessee")
			case lessee.Value == to:
				return true, nil
			case lessee.Value != from:
				return false, refused(sources.KindConflict, op, "it is leased to %q by now, not to %q", lessee.Value, from)
			}
			return false, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			// A value of nil would not be sent: no lessee is said by removing it.
			patch := nodes.UpdateOperation{Op: nodes.AddOp, Path: "/lessee", Value: to}
			if to == "" {
				patch = nodes.UpdateOperation{Op: nodes.RemoveOp, Path: "/lessee"}
			}
			_, err := nodes.Update(ctx, sc, ref, nodes.UpdateOpts{patch}).Extract()
			return err
		},
	})
}

// AddTrait gives the node a trait, one at a time: the others, of whoever set
// them, stay.
func (c *Client) AddTrait(ctx context.Context, ref, trait string) (*sources.Record, error) {
	return c.setTrait(ctx, ref, trait, true)
}

// RemoveTrait takes one trait from the node.
func (c *Client) RemoveTrait(ctx context.Context, ref, trait string) (*sources.Record, error) {
	return c.setTrait(ctx, ref, trait, false)
}

func (c *Client) setTrait(ctx context.Context, ref, trait string, wanted bool) (*sources.Record, error) {
	op := "remove a trait of an ironic node"
	if wanted {
		op = "add a trait to an ironic node"
	}
	if !validTrait(trait) {
		return nil, refused(sources.KindRefused, op, "%q is no trait: it must be of A-Z, 0-9 and _", sources.CleanText(trait, 64))
	}
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			if o.facts.Traits == nil {
				return false, unread(op, "traits")
			}
			return slices.Contains(o.facts.Traits, trait) == wanted, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			address := sc.ServiceURL("nodes", ref, "traits", trait)
			ok := &gophercloud.RequestOpts{OkCodes: []int{http.StatusNoContent}}
			if wanted {
				_, err := sc.Put(ctx, address, nil, nil, ok)
				return err
			}
			_, err := sc.Delete(ctx, address, ok)
			return err
		},
	})
}

func validTrait(trait string) bool {
	for _, b := range []byte(trait) {
		if !(b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_') {
			return false
		}
	}
	return trait != "" && len(trait) <= 255
}
