package ironic

import (
	"context"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// goals gives the state that a verb leads to. A verb that does its work and
// comes back to where it began (round) is never done before it was sent.
var goals = map[nodes.TargetProvisionState]struct {
	state facts.ProvisionState
	round bool
}{
	nodes.TargetManage:   {facts.ProvisionStateManageable, false},
	nodes.TargetProvide:  {facts.ProvisionStateAvailable, false},
	nodes.TargetActive:   {facts.ProvisionStateActive, false},
	nodes.TargetDeleted:  {facts.ProvisionStateAvailable, false},
	nodes.TargetAdopt:    {facts.ProvisionStateActive, false},
	nodes.TargetRescue:   {facts.ProvisionStateRescue, false},
	nodes.TargetUnrescue: {facts.ProvisionStateActive, false},
	nodes.TargetAbort:    {0, false}, // whatever state the node comes to rest in
	nodes.TargetInspect:  {facts.ProvisionStateManageable, true},
	nodes.TargetClean:    {facts.ProvisionStateManageable, true},
	nodes.TargetRebuild:  {facts.ProvisionStateActive, true},
	nodes.TargetService:  {facts.ProvisionStateActive, true},
}

// SetProvision asks for a verb of Ironic's state machine and comes back when
// Ironic has begun, or when the node is at the verb's goal already. Settle
// waits for the end.
func (c *Client) SetProvision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts) (*sources.Record, error) {
	return c.provision(ctx, ref, verb, func(*observation) error { return nil })
}

// provision is SetProvision for a node that allowed has nothing against, which
// is asked of each read before a request.
func (c *Client) provision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts, allowed func(*observation) error) (*sources.Record, error) {
	op := fmt.Sprintf("set ironic provision state %q", verb.Target)
	goal, known := goals[verb.Target]
	if !known {
		return nil, refused(sources.KindRefused, op, "the verb is not one that muster uses")
	}
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			f := o.facts
			if err := allowed(o); err != nil {
				return false, err
			}
			switch {
			case f.ProvisionState.Null() || !f.Reservation.Known:
				return false, unread(op, "provision state or reservation")
			case verb.Target == nodes.TargetAbort:
				return f.ProvisionState.Stable() && f.Reservation.Value == "", nil
			case goal.round:
				return false, nil
			case f.ProvisionState == goal.state:
				return f.Reservation.Value == "", nil
			}
			// On the way already, by an earlier request of ours or another's.
			return !f.ProvisionState.Stable() && f.TargetProvisionState.Value == goal.state.String(), nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			return nodes.ChangeProvisionState(ctx, sc, ref, verb).ExtractErr()
		},
		look: func(before, now *observation, accepted bool) effect {
			moved := now.facts.ProvisionState != before.facts.ProvisionState ||
				!now.facts.ProvisionUpdatedAt.Equal(before.facts.ProvisionUpdatedAt)
			towards := now.facts.ProvisionState == goal.state || now.facts.TargetProvisionState.Value == goal.state.String()
			if accepted || moved && towards {
				return landed
			}
			return nothing
		},
	})
}

// Settle waits until the node is in a state that only a verb leaves and nobody
// holds its lock. Which state that is, the caller judges.
func (c *Client) Settle(ctx context.Context, ref string, patience time.Duration) (*sources.Record, error) {
	const op = "wait until an ironic node settles"
	var last *observation
	for waited := time.Duration(0); ; waited += c.config.Poll {
		o, err := c.observe(ctx, ref)
		switch {
		case err == nil && o.facts.ProvisionState.Stable() && o.facts.Reservation.Known && o.facts.Reservation.Value == "":
			return o.record, nil
		case err == nil:
			last = o
		case sources.KindOf(err) != sources.KindTransient && sources.KindOf(err) != sources.KindOpen:
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		if waited >= patience {
			return nil, unsettled(op, last, patience)
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return nil, sources.Failure(op, err)
		}
	}
}

func unsettled(op string, last *observation, patience time.Duration) error {
	if last == nil {
		return refused(sources.KindTransient, op, "it could not be read for %s", patience)
	}
	state := last.facts.ProvisionState.String()
	if state == "" {
		state = "in a state that cannot be read"
	}
	held := ""
	if last.facts.Reservation.Value != "" {
		held = ", locked by " + last.facts.Reservation.Value
	}
	return refused(sources.KindTransient, op, "after %s it is still %s%s%s", patience, state, held, lastError(last))
}

// Provision asks for a verb and waits for its goal. A node that settles in
// another state is a conflict that tells Ironic's last error.
func (c *Client) Provision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts, patience time.Duration) (*sources.Record, error) {
	if _, err := c.SetProvision(ctx, ref, verb); err != nil {
		return nil, err
	}
	record, err := c.Settle(ctx, ref, patience)
	if err != nil {
		return nil, err
	}
	if goal := goals[verb.Target].state; !goal.Null() && record.Ironic.ProvisionState != goal {
		return record, refused(sources.KindConflict, fmt.Sprintf("set ironic provision state %q", verb.Target),
			"the node came to rest in %q, not in %q%s", record.Ironic.ProvisionState, goal, lastError(&observation{facts: record.Ironic}))
	}
	return record, nil
}
