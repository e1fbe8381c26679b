package handover

import (
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

const (
	actCordon      = "move_cordon"
	actReclaim     = "move_reclaim"
	actSettle      = "move_settle"
	actLease       = "move_lease"
	actDeploy      = "move_deploy"
	actAwaitDeploy = "move_await_deploy"
	actRegister    = "move_register"
	actWithdraw    = "move_withdraw"
	actAwaitGone   = "instance_await_gone" // also of a release
)

const (
	// settleWithin bounds how long a node is waited for that is on its way from
	// one state to another when it is to be moved: it may be being cleaned.
	settleWithin = 24 * time.Hour
	// deployWithin bounds one deployment from its first look on.
	deployWithin = 4 * time.Hour
	// cleanWithin bounds how long an instance is waited for to be gone: the disks
	// are overwritten after it.
	cleanWithin = 24 * time.Hour
	// registerWithin bounds how long a node that has booted is waited for in SLURM.
	registerWithin = 20 * time.Minute
)

// Node is what steps know of the node that they work on. It stays the one that
// the device had when the work began.
type Node struct {
	Job    int64  `json:"job"`
	Device int64  `json:"device"`
	Name   string `json:"name"` // of the device
	UUID   string `json:"uuid"` // in Ironic
}

// Instance is an instance on a node; UUID "" is none.
type Instance struct {
	Node
	Instance string `json:"instance,omitempty"`
	Nova     bool   `json:"nova,omitempty"` // Nova keeps it
}

// step is a step that ends by itself.
func step(phase string, percent int, name string, lost codes.Failure) act.Step {
	return act.Step{Phase: phase, Percent: percent, Name: name, Lost: lost}
}

// await is a step that only waits: workers may die over it as often as they will.
func await(phase string, percent int, name string, lost codes.Failure, within time.Duration) act.Step {
	return act.Step{Phase: phase, Percent: percent, Name: name, Lost: lost, Within: within + time.Hour, Tries: -1}
}

// move takes a machine from its customers.
func move(ctx workflow.Context, u *act.Unit) error {
	switch mode := u.Text("engagement_mode"); mode {
	case facts.EngagementModeExternalPartner.String(): // the connector of custody does it
		return nil
	case facts.EngagementModeMetalDelegated.String():
		return u.Do(ctx, step("take the device back", 50, actWithdraw, codes.CustodyChanged), u.Target(), nil)
	case facts.EngagementModeFullyManaged.String():
	default:
		return act.Final(codes.InternalError, "a job of a site that is %q was admitted: there is no test cluster of ours", mode)
	}
	var n Node
	if err := u.Do(ctx, step("take the node from the customers' pool", 5, actCordon, codes.CustomerTraitNotRemoved), u.Target(), &n); err != nil {
		return err
	}
	if u.Flag("cordon_only") {
		return nil
	}
	if u.Flag("force_reclaim") {
		approved, gone := Instance{Node: n, Instance: u.Text("reclaim_instance")}, Instance{}
		if err := u.Do(ctx, step("delete the customer's instance", 10, actReclaim, codes.InstanceDeleteFailed), approved, &gone); err != nil {
			return err
		}
		if err := u.Do(ctx, await("wait until the instance is gone and the node clean", 15, actAwaitGone, codes.InstanceDeleteFailed, cleanWithin), gone, nil); err != nil {
			return err
		}
	}
	return adopt(ctx, u, n)
}

// adopt puts an image of ours on a node and the node into SLURM.
func adopt(ctx workflow.Context, u *act.Unit, n Node) error {
	var found Found
	if err := u.Do(ctx, await("wait until the node comes to rest", 30, actSettle, codes.IronicUnavailable, settleWithin), n, &found); err != nil {
		return err
	}
	// Before the node can become available: where the lease alone keeps customers
	// away, they have what is available and leased to nobody.
	if err := u.Do(ctx, step("lease the node to SLURM", 32, actLease, codes.LeaseNotSet), n, nil); err != nil {
		return err
	}
	if found.Unclean {
		if err := node.Clean(ctx, u, n.UUID, 35, 40); err != nil {
			return err
		}
	}
	var i Instance
	minted := Instance{Node: n, Instance: mint(ctx)}
	if err := u.Do(ctx, step("begin to deploy", 55, actDeploy, codes.IronicDeployFailed), minted, &i); err != nil {
		return err
	}
	if err := u.Do(ctx, await("deploy", 60, actAwaitDeploy, codes.IronicDeployFailed, deployWithin), i, nil); err != nil {
		return err
	}
	return u.Do(ctx, await("register in SLURM", 90, actRegister, codes.SlurmRegisterFailed, registerWithin), n, nil)
}

// mint gives the instance that this run of the workflow binds, the same one
// however often a step is tried.
func mint(ctx workflow.Context) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("muster instance "+workflow.GetInfo(ctx).OriginalRunID)).String()
}
