package enrol

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

const (
	// restWithin bounds how long a node may be on its way to a state of rest: disks
	// are overwritten for hours.
	restWithin = 24 * time.Hour
	// managingWithin bounds what Ironic does at once.
	managingWithin = 2 * time.Minute
)

// enroller is an Ironic, as far as enrolment goes.
type enroller interface {
	node.Getter
	Find(ctx context.Context, name string) (*sources.Record, error)
	Create(ctx context.Context, n ironic.NewNode) (*sources.Record, error)
	AddPort(ctx context.Context, ref string, p ironic.NewPort) error
	Ports(ctx context.Context, ref string) ([]ironic.Port, error)
	Inventory(ctx context.Context, ref string) (*ironic.Inventory, error)
	Details(ctx context.Context, ref string) (ironic.Details, error)
	ClearMaintenance(ctx context.Context, ref, mark string, repair ironic.Repair) (*sources.Record, error)
	SetProvision(ctx context.Context, ref string, verb nodes.ProvisionStateOpts) (*sources.Record, error)
	Settle(ctx context.Context, ref string, patience time.Duration) (*sources.Record, error)
	SetLessee(ctx context.Context, ref, from, to string) (*sources.Record, error)
	RemoveTrait(ctx context.Context, ref, trait string) (*sources.Record, error)
}

func (e *enrolling) open(ctx context.Context) (enroller, func(), error) {
	return use[enroller](ctx, e.site, "ironic", codes.IronicUnavailable)
}

// wanted is the node that a run is about.
type wanted struct {
	work
	Pinned string `json:"pinned,omitempty"` // uuid that it must have; "" for any
	Mint   string `json:"mint"`             // uuid that it gets if it is made
}

// found is what the node was found to be.
type found struct {
	Kept bool `json:"kept,omitempty"` // in use or ready for it: it is looked at only
}

// node finds the device's node, or makes it, and gives its uuid.
func (e *enrolling) node(ctx context.Context, in wanted) (uuid string, err error) {
	row, err := e.site.Row(ctx)
	if err != nil {
		return "", err
	}
	d, err := e.site.Device(ctx, in.Device)
	if err != nil {
		return "", err
	}
	client, release, err := e.open(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	r, err := e.lookUp(ctx, client, &d, in.Pinned)
	if errors.Is(err, sources.ErrGone) {
		r, err = e.create(ctx, client, &row.Spec, &d, in)
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", conflictOr(ctx, err)
	}
	if err := suits(r, row.Spec.Enrolment.Node, &d); err != nil {
		return "", err
	}
	return r.Ref, nil
}

// lookUp finds the node by what the run is pinned to, else by what the device
// carries, else by its name. ErrGone: there is none.
func (e *enrolling) lookUp(ctx context.Context, client enroller, d *fleet.Device, pinned string) (*sources.Record, error) {
	if pinned != "" {
		r, err := client.Get(ctx, pinned)
		if err == nil && !strings.EqualFold(r.Name, d.Name) {
			return nil, &sources.Error{Kind: sources.KindConflict, Op: "find the node " + pinned, Message: "it is named " + r.Name + ", not " + d.Name}
		}
		return r, err
	}
	if d.InfrastructureRef != "" {
		r, err := client.Get(ctx, d.InfrastructureRef)
		if err == nil || !errors.Is(err, sources.ErrGone) {
			return r, err
		}
	}
	return client.Find(ctx, d.Name)
}

// conflictOr gives an error of finding or making a node its code.
func conflictOr(ctx context.Context, err error) error {
	if ctx.Err() == nil && sources.KindOf(err) == sources.KindConflict {
		return act.Final(codes.IronicNodeConflict, "%v", err)
	}
	return failed(ctx, err, codes.IronicUnavailable, codes.IronicUnavailable)
}

// suits refuses a node that is not what the site says, or is another machine's.
func suits(r *sources.Record, template *fleet.NodeTemplate, d *fleet.Device) error {
	f := r.Ironic
	if f == nil {
		return act.Retry(codes.IronicUnavailable, "what Ironic says of node %s could not be read whole", r.Ref)
	}
	if template != nil && f.Driver.Known && f.Driver.Value != template.Driver {
		return act.Final(codes.IronicDriverMismatch, "the node %s has the driver %s, the site's nodes have %s", r.Ref, f.Driver.Value, template.Driver)
	}
	if other(f.BMCAddress.Value, d.BMCAddress) {
		return act.Final(codes.IronicNodeConflict, "the node %s has the BMC %s, and %s has %s: correct the node's driver_info, or the inventory", r.Ref, f.BMCAddress.Value, d.Name, d.BMCAddress)
	}
	return nil
}

// rest waits until the node is in a state that nothing but a request leaves. It
// only looks.
func (e *enrolling) rest(ctx context.Context, in work) (found, error) {
	client, release, err := e.open(ctx)
	if err != nil {
		return found{}, err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(restWithin)
	for {
		f, err := node.Read(ctx, client, in.Node)
		late := e.site.Clock().After(until)
		switch {
		case ctx.Err() != nil:
			return found{}, ctx.Err()
		case err != nil && act.IsFinal(err):
			return found{}, err
		case err == nil && f.ProvisionState.Stable():
			kept := f.InstanceBound == facts.True || f.ProvisionState == facts.ProvisionStateAvailable || f.ProvisionState == facts.ProvisionStateActive
			return found{Kept: kept}, nil
		case late && err != nil:
			return found{}, act.Final(codes.IronicUnavailable, "the node was not seen to come to rest within %s: %v", restWithin, err)
		case late:
			return found{}, act.Final(codes.IronicStateUnexpected, "after %s the node is still in %q%s", restWithin, f.ProvisionState, node.Why(f))
		}
		if !act.Wait(ctx, e.site.Poll) {
			return found{}, ctx.Err()
		}
	}
}

// other tells two IP addresses apart; of a name nobody knows which it is.
func other(a, b string) bool {
	one, errOne := netip.ParseAddr(fleet.AddressKey(a))
	two, errTwo := netip.ParseAddr(fleet.AddressKey(b))
	return errOne == nil && errTwo == nil && one != two
}
