package ironic

import (
	"context"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/sources"
)

var powered = map[nodes.TargetPowerState]struct {
	state string
	round bool // it ends where it may have begun
}{
	nodes.PowerOn:       {"power on", false},
	nodes.PowerOff:      {"power off", false},
	nodes.SoftPowerOff:  {"power off", false},
	nodes.Rebooting:     {"power on", true},
	nodes.SoftRebooting: {"power on", true},
}

// SetPower changes a node's power through Ironic, which would undo a change
// made behind its back, and waits until Ironic is through with it: the power
// state is as wanted, no target is left and nobody holds the lock.
func (c *Client) SetPower(ctx context.Context, ref string, target nodes.TargetPowerState, patience time.Duration) (*sources.Record, error) {
	op := fmt.Sprintf("set ironic power %q", target)
	goal, known := powered[target]
	if !known {
		return nil, refused(sources.KindRefused, op, "it is no power state that muster asks for")
	}
	idle := func(o *observation) bool {
		return string(o.raw.TargetPowerState) == "null" && o.facts.Reservation.Known && o.facts.Reservation.Value == ""
	}
	seen := false // a power request at work
	return c.apply(ctx, ref, change{
		op:       op,
		patience: patience,
		done: func(o *observation) (bool, error) {
			return !goal.round && idle(o) && o.facts.PowerState.Value == goal.state, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, o *observation) error {
			// A request on its way is waited for, not repeated: a soft power-off
			// takes minutes.
			if !goal.round && o.facts.TargetPowerState.Value == goal.state {
				return nil
			}
			return nodes.ChangePowerState(ctx, sc, ref, nodes.PowerStateOpts{Target: target}).ExtractErr()
		},
		// Ironic holds the lock from before it accepts until it is through.
		look: func(_, now *observation, accepted bool) effect {
			switch {
			case !idle(now):
				seen = seen || now.facts.TargetPowerState.Known
				return underway
			case now.facts.PowerState.Value == goal.state && (accepted || seen || !goal.round):
				return landed
			case accepted || seen:
				return failed
			}
			return nothing
		},
	})
}
