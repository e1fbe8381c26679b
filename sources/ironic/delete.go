package ironic

import (
	"context"
	"errors"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// managing is how long a node may take from available, or from a failed clean,
// to manageable: Ironic does it at once.
const managing = time.Minute

// Delete has Ironic forget a node, and reads it gone; one that is gone already
// is. It may be called again at any point.
//
// Ironic deletes from enroll, manageable and adopt failed. A node that is
// available, or whose clean or inspection failed, is brought to manageable
// first: it is out of everybody's pool then. One in any other state of rest is
// deleted in maintenance under the mark (muster:<job>), which stays on it if
// Ironic refuses.
//
// Refused are: a node with a bound instance, whoever's (conflict); one on its
// way from one state to another, or locked (locked: call again); one in
// maintenance of somebody else (ErrForeign), which that of Ironic itself after
// a fault is not; a protected one (forbidden, in Ironic's words).
func (c *Client) Delete(ctx context.Context, ref, mark string) error {
	const op = "delete an ironic node"
	if err := checkMark(op, mark); err != nil {
		return err
	}
	o, err := c.deletable(ctx, op, ref, mark)
	if o == nil || err != nil {
		return err
	}
	switch o.facts.ProvisionState {
	case facts.ProvisionStateEnroll, facts.ProvisionStateManageable, facts.ProvisionStateAdoptFailed:
	case facts.ProvisionStateAvailable, facts.ProvisionStateCleanFailed, facts.ProvisionStateInspectFailed:
		_, err = c.Provision(ctx, ref, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, managing)
	default:
		if o.facts.Maintenance == facts.False {
			_, err = c.SetMaintenance(ctx, ref, mark, "to be deleted")
		}
	}
	if err != nil {
		if errors.Is(err, sources.ErrGone) {
			return nil
		}
		return err
	}
	return c.perform(ctx, deed{
		op: op,
		done: func(ctx context.Context) (bool, error) {
			o, err := c.deletable(ctx, op, ref, mark)
			return o == nil && err == nil, err
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient) error {
			return nodes.Delete(ctx, sc, ref).ExtractErr()
		},
	})
}

// deletable reads a node that may be deleted; nil: it is gone.
func (c *Client) deletable(ctx context.Context, op, ref, mark string) (*observation, error) {
	o, err := c.observe(ctx, ref)
	if errors.Is(err, sources.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := o.facts
	switch {
	case f.ProvisionState.Null() || !f.Reservation.Known || f.InstanceBound == facts.Null || f.Maintenance == facts.Null:
		return nil, unread(op, "state, lock, instance or maintenance")
	case f.InstanceBound == facts.True:
		return nil, refused(sources.KindConflict, op, "the instance %s is bound to it: that must be deleted first", f.InstanceUUID.Value)
	case !f.ProvisionState.Stable():
		return nil, refused(sources.KindLocked, op, "it is %s: wait until it comes to rest", f.ProvisionState)
	case f.Maintenance == facts.True && !carries(f.MaintenanceReason.Value, mark) && !faultsReason(f):
		return nil, foreignMaintenance(op, o)
	}
	return o, nil
}
