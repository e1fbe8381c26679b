package enrol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/placement"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// removal is what a step of an unenrolment knows. What the device's row loses when
// its node goes is in it from the first step on.
type removal struct {
	act.Target
	Name     string `json:"name"`
	Node     string `json:"node,omitempty"`     // uuid in Ironic; "" for none
	NetBox   string `json:"netbox,omitempty"`   // id of the device there; "" at a site without NetBox
	BMC      bool   `json:"bmc,omitempty"`      // its BMC is ours to reset
	Stale    string `json:"stale,omitempty"`    // instance that the node is bound to and Nova does not have
	Declared bool   `json:"declared,omitempty"` // to the topology service
}

// deleter is an Ironic, as far as unenrolment goes.
type deleter interface {
	node.Getter
	Find(ctx context.Context, name string) (*sources.Record, error)
	Delete(ctx context.Context, ref, mark string) error
	Unbind(ctx context.Context, ref, instance string) (*sources.Record, error)
}

// servers is a Nova.
type servers interface {
	Server(ctx context.Context, uuid string) (*nova.Server, error)
	Servers(ctx context.Context, f nova.Filter) ([]nova.Server, error)
}

// providers is a Placement.
type providers interface {
	Allocations(ctx context.Context, provider string) ([]placement.Allocation, error)
	DeleteProvider(ctx context.Context, uuid string) error
}

// plan finds out what there is of the device.
func (r *removing) plan(ctx context.Context, in act.Target) (removal, error) {
	row, err := r.site.Row(ctx)
	if err != nil {
		return removal{}, err
	}
	d, err := r.site.Device(ctx, in.Device)
	if err != nil {
		return removal{}, err
	}
	out := removal{Target: in, Name: d.Name, Node: d.InfrastructureRef, BMC: row.Spec.Enrolment.BMC && row.Spec.Has("bmc")}
	if out.NetBox, err = netboxID(ctx, r.site, &row, &d); err != nil && act.Code(err) != codes.NetboxDeviceMissing {
		return removal{}, err
	}
	if out.Node != "" || !row.Spec.Has("ironic") {
		return out, nil
	}
	client, release, err := use[deleter](ctx, r.site, "ironic", codes.IronicUnavailable)
	if err != nil {
		return removal{}, err
	}
	defer release()
	out.Node, err = r.unjoined(ctx, client, &d)
	return out, err
}

// unjoined finds the node of a device whose row carries none: one that is not joined
// yet, or that an earlier run deleted, whose resource provider may be left. "": there
// is none.
func (r *removing) unjoined(ctx context.Context, client deleter, d *fleet.Device) (uuid string, err error) {
	found, err := client.Find(ctx, d.Name)
	switch {
	case err == nil:
		return found.Ref, nil
	case !errors.Is(err, sources.ErrGone):
		return "", failed(ctx, err, codes.IronicUnavailable, codes.IronicUnavailable)
	}
	before, err := lastNode(ctx, r.site, d)
	if before == "" || err != nil {
		return "", err
	}
	switch _, err = client.Get(ctx, before); {
	case errors.Is(err, sources.ErrGone):
		return before, nil
	case err != nil:
		return "", failed(ctx, err, codes.IronicUnavailable, codes.IronicUnavailable)
	}
	return "", nil // by its name it is another device's now
}

// lastNode gives the uuid of the last node that Ironic was read to have of the
// device, "" for none.
func lastNode(ctx context.Context, s *act.Site, d *fleet.Device) (string, error) {
	stored, err := store.FactsOf(ctx, s.DB, []int64{d.ID})
	if err != nil {
		return "", fmt.Errorf("find the last node of %s: %w", d.Name, err)
	}
	for i := range stored {
		if stored[i].Source == "ironic" && stored[i].SiteID == s.ID {
			return stored[i].Ref, nil
		}
	}
	return "", nil
}

// preflight refuses what somebody holds, and a machine whose BMC does not let us
// in: it could not be left as it came. What cannot be read refuses. It gives the
// instance that the node is bound to and Nova does not have, "" for none.
func (r *removing) preflight(ctx context.Context, in removal) (stale string, err error) {
	if in.Node != "" {
		if stale, err = r.unheld(ctx, in); err != nil {
			return "", err
		}
	}
	if !in.BMC {
		return stale, nil
	}
	d, err := r.site.Device(ctx, in.Device)
	if err != nil {
		return "", err
	}
	if d.BMCAddress == "" {
		return "", act.Final(codes.BMCAddressMissing, "the inventory gives %s no BMC address", d.Name)
	}
	client, release, err := use[resetter](ctx, r.site, "bmc", codes.BMCUnreachable)
	if err != nil {
		return "", err
	}
	defer release()
	if activity.GetInfo(ctx).Attempt == 1 {
		client.AllowLogin(d.BMCAddress) // a person asks
	}
	return stale, r.letsIn(ctx, client, targetOf(&d))
}

// letsIn shows that the BMC takes the device's credential, or the one that it came
// with: then an earlier run has reset it.
func (r *removing) letsIn(ctx context.Context, client resetter, target redfish.Target) error {
	err := client.Login(ctx, target)
	if err != nil && sources.KindOf(err) == sources.KindForbidden && client.FactoryLogin(ctx, target) == nil {
		return nil
	}
	return bmcFailed(ctx, err)
}

// unheld refuses a node that somebody's instance is on, by Ironic, Nova and
// Placement.
func (r *removing) unheld(ctx context.Context, in removal) (stale string, err error) {
	row, err := r.site.Row(ctx)
	if err != nil {
		return "", err
	}
	ironics, done, err := use[deleter](ctx, r.site, "ironic", codes.IronicUnavailable)
	if err != nil {
		return "", err
	}
	defer done()
	f, instance, err := boundTo(ctx, ironics, in.Node)
	if err != nil {
		return "", err
	}
	if !row.Spec.Serves("nova") {
		if instance != "" {
			return "", act.Final(codes.UnenrollmentInstancePresent, "instance %s is bound to the node", instance)
		}
		return "", nil
	}
	if stale, err = r.unserved(ctx, in.Node, instance); err != nil {
		return "", err
	}
	if stale != "" && f.ProvisionState != facts.ProvisionStateAvailable {
		return "", node.Unexpected(f, "take off the instance "+stale+", which Nova does not have")
	}
	client, release, err := use[providers](ctx, r.site, "placement", codes.PlacementUnavailable)
	if err != nil {
		return "", err
	}
	defer release()
	held, err := client.Allocations(ctx, in.Node)
	switch {
	case errors.Is(err, sources.ErrGone):
		return stale, nil
	case err != nil:
		return "", failed(ctx, err, codes.PlacementUnavailable, codes.PlacementUnavailable)
	case len(held) > 0:
		consumers := make([]string, len(held))
		for i := range held {
			consumers[i] = held[i].Consumer
		}
		return "", act.Final(codes.UnenrollmentProviderInUse, "allocations on the node's resource provider are held by %s", strings.Join(consumers, ", "))
	}
	return stale, nil
}

// boundTo gives the node and what it is bound to: nil and "" for one that is gone,
// "" for nothing.
func boundTo(ctx context.Context, client node.Getter, uuid string) (*facts.Ironic, string, error) {
	rec, err := client.Get(ctx, uuid)
	switch {
	case errors.Is(err, sources.ErrGone):
		return nil, "", nil
	case err != nil:
		return nil, "", failed(ctx, err, codes.IronicUnavailable, codes.IronicUnavailable)
	case rec.Ironic == nil || rec.Ironic.InstanceBound == facts.Null || rec.Ironic.ProvisionState.Null():
		return nil, "", act.Retry(codes.IronicUnavailable, "what Ironic says of node %s could not be read whole", uuid)
	case rec.Ironic.InstanceBound == facts.False:
		return rec.Ironic, "", nil
	}
	return rec.Ironic, rec.Ironic.InstanceUUID.Value, nil
}

// unserved refuses a node that Nova has a server on. The instance that Ironic binds
// and Nova does not have is stale.
func (r *removing) unserved(ctx context.Context, uuid, instance string) (stale string, err error) {
	client, release, err := use[servers](ctx, r.site, "nova", codes.NovaUnavailable)
	if err != nil {
		return "", err
	}
	defer release()
	if instance != "" {
		server, err := client.Server(ctx, instance)
		switch {
		case err == nil && !server.Ended():
			return "", act.Final(codes.UnenrollmentInstancePresent, "Nova has the server %s (%s) on the node", server.ID, server.Name)
		case err != nil && !errors.Is(err, sources.ErrGone):
			return "", failed(ctx, err, codes.NovaUnavailable, codes.NovaUnavailable)
		}
	}
	on, err := client.Servers(ctx, nova.Filter{Node: uuid})
	switch {
	case err != nil:
		return "", failed(ctx, err, codes.NovaUnavailable, codes.NovaUnavailable)
	case len(on) > 0:
		return "", act.Final(codes.UnenrollmentInstancePresent, "Nova has the server %s (%s) on the node", on[0].ID, on[0].Name)
	}
	return instance, nil
}

// deleteNode has Ironic forget the node, and reads it gone. It goes on from where an
// earlier try, or an earlier job under its own mark, came to.
func (r *removing) deleteNode(ctx context.Context, in removal) error {
	client, release, err := use[deleter](ctx, r.site, "ironic", codes.IronicUnavailable)
	if err != nil {
		return err
	}
	defer release()
	f, instance, err := boundTo(ctx, client, in.Node)
	if f == nil || err != nil {
		return err
	}
	if instance != "" && strings.EqualFold(instance, in.Stale) {
		if _, err := client.Unbind(ctx, in.Node, in.Stale); err != nil && !errors.Is(err, sources.ErrGone) {
			return deletion(ctx, err)
		}
	}
	for until := activity.GetInfo(ctx).ScheduledTime.Add(settleWithin); ; {
		err := client.Delete(ctx, in.Node, node.MarkOf(f, in.Job))
		if err == nil || sources.KindOf(err) != sources.KindLocked || r.site.Clock().After(until) {
			return deletion(ctx, err)
		}
		if !act.Wait(ctx, r.site.Poll) { // on its way somewhere, or locked
			return ctx.Err()
		}
	}
}

// settleWithin is how long a node may be on its way to a state of rest, or locked.
const settleWithin = 4 * time.Minute

// deletion gives an error of a deletion its code.
func deletion(ctx context.Context, err error) error {
	switch kind := sources.KindOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ironic.ErrForeign):
		return act.Final(codes.MaintenanceForeign, "%v", err)
	case kind == sources.KindTransient || kind == sources.KindOpen:
		return act.Retry(codes.IronicUnavailable, "%v", err)
	}
	return act.Final(codes.IronicNodeDeleteFailed, "%v", err)
}

// deleteProvider deletes the node's resource provider, and reads it gone.
func (r *removing) deleteProvider(ctx context.Context, in removal) error {
	row, err := r.site.Row(ctx)
	if err != nil || !row.Spec.Has("placement") {
		return err
	}
	client, release, err := use[providers](ctx, r.site, "placement", codes.PlacementUnavailable)
	if err != nil {
		return err
	}
	defer release()
	if err := client.DeleteProvider(ctx, in.Node); err != nil {
		if ctx.Err() == nil && sources.KindOf(err) == sources.KindConflict {
			return act.Final(codes.UnenrollmentProviderInUse, "%v", err)
		}
		return failed(ctx, err, codes.PlacementUnavailable, codes.PlacementUnavailable)
	}
	return nil
}
