package ironictest

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// Verb asks for a verb without waiting.
func (i *Ironic) Verb(ctx context.Context, id string, verb nodes.ProvisionStateOpts) error {
	return i.retry(ctx, fmt.Sprintf("%s node %s", verb.Target, id), func() error {
		return nodes.ChangeProvisionState(ctx, i.sc, id, verb).ExtractErr()
	})
}

func (i *Ironic) walk(ctx context.Context, id string, verb nodes.TargetProvisionState, states ...string) error {
	if err := i.Verb(ctx, id, nodes.ProvisionStateOpts{Target: verb}); err != nil {
		return err
	}
	return i.Wait(ctx, id, states...)
}

// Manage brings a node from enroll, available or a failed clean to manageable.
func (i *Ironic) Manage(ctx context.Context, id string) error {
	return i.walk(ctx, id, nodes.TargetManage, "manageable")
}

// Provide brings a manageable node to available.
func (i *Ironic) Provide(ctx context.Context, id string) error {
	return i.walk(ctx, id, nodes.TargetProvide, "available")
}

// Enroll brings a new node all the way to available.
func (i *Ironic) Enroll(ctx context.Context, id string) error {
	if err := i.Manage(ctx, id); err != nil {
		return err
	}
	return i.Provide(ctx, id)
}

// Deploy binds an instance to an available node and brings it to active. A mark
// other than "" is put into extra beside it, as muster's own deployments do.
func (i *Ironic) Deploy(ctx context.Context, id, instance, mark string) error {
	if mark != "" {
		if err := i.Set(ctx, id, "/extra/muster", mark); err != nil {
			return err
		}
	}
	if err := i.Set(ctx, id, "/instance_uuid", instance); err != nil {
		return err
	}
	return i.walk(ctx, id, nodes.TargetActive, "active")
}

// Undeploy brings an active node back to available, cleaning included; Ironic
// then has no instance bound to it.
func (i *Ironic) Undeploy(ctx context.Context, id string) error {
	return i.walk(ctx, id, nodes.TargetDeleted, "available")
}

// FailCleaning makes a clean of a manageable or available node fail: it ends in
// clean failed, in maintenance that Ironic set, with the fault "clean failure".
func (i *Ironic) FailCleaning(ctx context.Context, id string) error {
	state, err := i.State(ctx, id)
	if err != nil {
		return err
	}
	if state != "manageable" {
		if err := i.Manage(ctx, id); err != nil {
			return err
		}
	}
	// The real BIOS step reads a name that this setting lacks.
	err = i.Verb(ctx, id, nodes.ProvisionStateOpts{Target: nodes.TargetClean, CleanSteps: []nodes.CleanStep{{
		Interface: nodes.InterfaceBIOS, Step: "apply_configuration",
		Args: map[string]any{"settings": []any{map[string]any{"bogus": 1}}},
	}}})
	if err != nil {
		return err
	}
	return i.Wait(ctx, id, "clean failed")
}

// HealCleaning brings a node whose clean failed back to available.
func (i *Ironic) HealCleaning(ctx context.Context, id string) error {
	if err := i.Manage(ctx, id); err != nil {
		return err
	}
	if err := i.Unhold(ctx, id); err != nil {
		return err
	}
	return i.Provide(ctx, id)
}

// StartClean begins a clean of a manageable node that succeeds. Ironic holds
// the node's lock until its end: at once, or after IRONIC_FAKE_BIOS seconds.
func (i *Ironic) StartClean(ctx context.Context, id string) error {
	return i.Verb(ctx, id, nodes.ProvisionStateOpts{Target: nodes.TargetClean, CleanSteps: []nodes.CleanStep{{
		Interface: nodes.InterfaceBIOS, Step: "factory_reset",
	}}})
}
