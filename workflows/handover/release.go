package handover

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

const (
	actLook    = "release_look"
	actDrain   = "release_drain"
	actUndrain = "release_undrain"
	actRemove  = "release_instance"
	actUnbind  = "release_unbind"
	actReturn  = "release_lease"
	actHandOff = "release_hand_off"
)

// drainWithin bounds how long the jobs on a drained node are waited for.
const drainWithin = 24 * time.Hour

// Occupied is what a release finds on a device's node. A device without a node
// has UUID "".
type Occupied struct {
	Instance      // that we bound, or had Nova put there
	Foreign  bool `json:"foreign,omitempty"` // somebody else's instance is on it
}

// HandOff is a device that is handed to a customer.
type HandOff struct {
	Node
	Delegate bool `json:"delegate,omitempty"` // the machine itself, not a place in a pool
}

// release takes a machine out of SLURM and, unless it is to stay with us, hands it
// to its customers.
func release(ctx workflow.Context, u *act.Unit) error {
	delegate := false
	switch mode := u.Text("engagement_mode"); mode {
	case facts.EngagementModeExternalPartner.String(): // the connector of custody does it
		return nil
	case facts.EngagementModeMetalDelegated.String():
		delegate = true
	case facts.EngagementModeFullyManaged.String():
	default:
		return act.Final(codes.InternalError, "a job of a site that is %q was admitted: there is no customer pool of ours", mode)
	}
	var found Occupied
	if err := u.Do(ctx, step("look at the node", 5, actLook, codes.IronicUnavailable), u.Target(), &found); err != nil {
		return err
	}
	if !found.Foreign { // a cordoned node, its customer still on it, is only handed off again
		if err := withdraw(ctx, u, found.Instance); err != nil {
			return err
		}
	}
	if !u.Flag("release_to_customer_pool") {
		return nil
	}
	lost := codes.CustomerTraitNotAdded
	if delegate {
		lost = codes.ReleaseHoldRefused
	}
	return u.Do(ctx, step("hand the device off", 90, actHandOff, lost), HandOff{Node: found.Node, Delegate: delegate}, nil)
}

// withdraw takes a node out of SLURM, our instance off it, and its lease back.
func withdraw(ctx workflow.Context, u *act.Unit, i Instance) error {
	if err := u.Do(ctx, await("drain the node and take it out of SLURM", 10, actDrain, codes.SlurmUnavailable, drainWithin), i.Node, nil); err != nil {
		return stay(ctx, u, i.Node, err)
	}
	if i.UUID == "" {
		return nil
	}
	if i.Instance != "" {
		if err := u.Do(ctx, step("delete the test instance", 30, actRemove, codes.InstanceDeleteFailed), i, &i); err != nil {
			return err
		}
	}
	if err := u.Do(ctx, await("wait until the node is clean", 35, actAwaitGone, codes.InstanceDeleteFailed, cleanWithin), i, nil); err != nil {
		return err
	}
	if err := u.Do(ctx, step("clear what is left of the instance", 80, actUnbind, codes.InstanceDeleteFailed), i, nil); err != nil {
		return err
	}
	return u.Do(ctx, step("return the lease", 85, actReturn, codes.LeaseNotSet), i.Node, nil)
}

// stay ends our drain of a node whose release ends before anything of it was
// deleted, also when that is by a cancel. failed is why.
func stay(ctx workflow.Context, u *act.Unit, n Node, failed error) error {
	apart, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	err := u.Do(apart, act.Step{Name: actUndrain, Lost: codes.SlurmUnavailable}, n, nil)
	if code := act.Code(failed); err != nil && code != "" {
		return act.Final(code, "%s; and our drain of the node could not be ended: %s", act.Message(failed), act.Message(err))
	}
	return failed
}
