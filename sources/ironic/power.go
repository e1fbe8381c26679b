package ironic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
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

// ErrUnsent is wrapped by errors of SetPower after which nothing was sent, and
// ErrGaveUp by those that say that Ironic tried and did not come through.
var (
	ErrUnsent = errors.New("nothing was sent")
	ErrGaveUp = errors.New("given up by Ironic")
)

// SetPower changes a node's power through Ironic, which would undo a change
// made behind its back, and waits until Ironic is through with it: the power
// state is as wanted, no target is left and nobody holds the lock. may is asked
// with each reading that a request rests on, also after one that found the node
// locked; its error ends it. It may be nil.
func (c *Client) SetPower(ctx context.Context, ref string, target nodes.TargetPowerState, patience time.Duration, may func(*facts.Ironic) error) (*sources.Record, error) {
	op := fmt.Sprintf("set ironic power %q", target)
	goal, known := powered[target]
	if !known {
		return nil, refused(sources.KindRefused, op, "it is no power state that muster asks for")
	}
	idle := func(o *observation) bool {
		return string(o.raw.TargetPowerState) == "null" && o.facts.Reservation.Known && o.facts.Reservation.Value == ""
	}
	seen, sent, behind := false, false, false // a power request at work; ours; that ours waits for
	r, err := c.apply(ctx, ref, change{
		op:       op,
		patience: patience,
		done: func(o *observation) (bool, error) {
			done := !goal.round && idle(o) && o.facts.PowerState.Value == goal.state
			if done || may == nil {
				return done, nil
			}
			return false, may(o.facts)
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, o *observation) error {
			// A request on its way is waited for, not repeated: a soft power-off
			// takes minutes.
			if !goal.round && o.facts.TargetPowerState.Value == goal.state {
				behind = true
				return nil
			}
			sent = true
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
	if err != nil && behind && !sent {
		err = refused(sources.KindTransient, op, "another power request was under way all the time (%s)", goal.state)
	}
	if err != nil && !sent {
		err = fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return r, err
}
