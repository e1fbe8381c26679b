package handover

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// Found is a node that came to rest.
type Found struct {
	Unclean bool `json:"unclean,omitempty"` // it has to be cleaned before it can be deployed
}

// settle waits until a node is where it can be gone on with: free, or ours and
// deployed or on its way there. It only looks.
func (h *hand) settle(ctx context.Context, n Node) (Found, error) {
	var found Found
	site, err := h.site.Row(ctx)
	if err != nil {
		return found, err
	}
	client, release, err := openIronic[node.Getter](ctx, h)
	if err != nil {
		return found, err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(settleWithin)
	err = h.watch(ctx, client, n.UUID, until, codes.IronicStateUnexpected, func(f *facts.Ironic) (bool, error) {
		if !atRest(f) && !deploying(f) {
			return false, nil
		}
		found, err = adoptable(f, &site.Spec)
		return err == nil, err
	})
	return found, err
}

// deploying reports a node that is on its way to active.
func deploying(f *facts.Ironic) bool {
	return !f.ProvisionState.Stable() && f.TargetProvisionState.Value == facts.ProvisionStateActive.String()
}

// adoptable judges a node that is at rest, or being deployed.
func adoptable(f *facts.Ironic, spec *fleet.SiteSpec) (Found, error) {
	const doing = "adopt the node"
	whose, err := node.Occupied(f, spec)
	state := f.ProvisionState
	switch {
	case err != nil:
		return Found{}, err
	case whose == node.Foreign:
		return Found{}, notOurs(f, doing)
	case whose == node.Ours && state == facts.ProvisionStateDeployFailed:
		return Found{}, deployFailed(f)
	case whose == node.Ours && (state == facts.ProvisionStateActive || state == facts.ProvisionStateAvailable || deploying(f)):
		return Found{}, nil
	case whose == node.Free && state == facts.ProvisionStateAvailable:
		return Found{}, nil
	case whose == node.Free && (state == facts.ProvisionStateManageable || state == facts.ProvisionStateCleanFailed):
		return Found{Unclean: true}, nil
	}
	return Found{}, node.Unexpected(f, doing)
}

func deployFailed(f *facts.Ironic) error {
	return act.Final(codes.IronicDeployFailed, "instance %s of ours was not deployed, it is still bound to the node and nothing was deleted%s", f.InstanceUUID.Value, node.Why(f))
}

// lessor is an Ironic, as far as leases go.
type lessor interface {
	node.Getter
	SetLessee(ctx context.Context, ref, from, to string) (*sources.Record, error)
	ClearMaintenance(ctx context.Context, ref, mark string, repair ironic.Repair) (*sources.Record, error)
}

// lease makes a node that of SLURM's project, if the site has one. One that is to
// be cleaned is taken out of maintenance by the clean.
func (h *hand) lease(ctx context.Context, n Node) error {
	site, err := h.site.Row(ctx)
	if err != nil {
		return err
	}
	client, release, err := openIronic[lessor](ctx, h)
	if err != nil {
		return err
	}
	defer release()
	if err := h.untouched(ctx, n); err != nil {
		return err
	}
	f, err := node.Read(ctx, client, n.UUID)
	if err != nil {
		return err
	}
	found, err := adoptable(f, &site.Spec)
	if err != nil {
		return err
	}
	if !found.Unclean {
		if err := clearOurs(ctx, client, n, f); err != nil {
			return err
		}
	}
	to := site.Spec.Lessees.Slurm
	switch {
	case to == "" || f.Lessee.Known && f.Lessee.Value == to:
		return nil
	case !f.Lessee.Known:
		return act.Final(codes.LeaseNotSet, "Ironic does not tell to whom the node is leased: it must be spoken to in version 1.65 or later")
	}
	if _, err := client.SetLessee(ctx, n.UUID, f.Lessee.Value, to); err != nil {
		return leaseFailed(ctx, err)
	}
	return nil
}

// clearOurs takes a free node out of maintenance in which earlier work of ours left
// it; in anybody else's it can be neither deployed nor cleared.
func clearOurs(ctx context.Context, client lessor, n Node, f *facts.Ironic) error {
	if f.InstanceBound == facts.True || f.Maintenance == facts.False {
		return nil
	}
	if !strings.HasPrefix(f.MaintenanceReason.Value, "muster:") {
		return act.Final(codes.MaintenanceForeign, "the node is in maintenance, in which nothing is deployed; the reason: %s", f.MaintenanceReason.Value)
	}
	if _, err := client.ClearMaintenance(ctx, n.UUID, node.MarkOf(f, n.Job), ironic.Repair{}); err != nil {
		return node.Failed(ctx, err)
	}
	return nil
}

// giveBack ends SLURM's lease of a node: back to the project of enrolment or, where
// no trait but the lease itself keeps customers away, to that of maintenance. A
// node with another lease keeps it.
func (h *hand) giveBack(ctx context.Context, n Node) error {
	site, err := h.site.Row(ctx)
	if err != nil {
		return err
	}
	l := site.Spec.Lessees
	if l.Slurm == "" {
		return nil
	}
	client, release, err := openIronic[lessor](ctx, h)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, n.UUID)
	if err != nil {
		return err
	}
	switch {
	case f.InstanceBound == facts.True:
		return notOurs(f, "return the lease")
	case !f.Lessee.Known:
		return lesseeUnread()
	case f.Lessee.Value != l.Slurm:
		return nil
	}
	to := reserve(&site.Spec)
	if to == "" {
		return noReserve()
	}
	if _, err := client.SetLessee(ctx, n.UUID, l.Slurm, to); err != nil {
		return leaseFailed(ctx, err)
	}
	return nil
}

// reserve is the project that leases a node which neither SLURM nor a customer has;
// "" if the site names none.
func reserve(spec *fleet.SiteSpec) string {
	l := spec.Lessees
	if spec.EngagementMode == facts.EngagementModeFullyManaged && !spec.TraitBased && l.Maintenance != "" {
		return l.Maintenance
	}
	return l.Enrol
}

func noReserve() error {
	return act.Final(codes.LeaseNotSet, "the site names no project that the lease could be returned to: set lessees.enrol, at a site without trait lessees.maintenance")
}
