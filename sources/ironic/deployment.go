package ironic

import (
	"context"
	"fmt"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Deployment is an image that muster puts on a node by Ironic alone, without
// Nova. Job and Instance make its mark.
type Deployment struct {
	Job      string
	Instance string // uuid, minted and kept by the caller

	Source   string // of the image: a URL, or what else instance_info.image_source may be
	Checksum string // of the image, or the URL of one; "" for none
	RootGB   int    // of the root partition, 0 for a whole disk
	Hostname string // for the config drive; "" leaves the node's name
	Lessee   string // project that must have the lease when the node is bound; "" for any
	Keys     []string
}

func (d *Deployment) check(op string) error {
	switch {
	case !uuidForm.MatchString(d.Instance):
		return refused(sources.KindRefused, op, "%q is no uuid of lower-case digits", sources.CleanText(d.Instance, 64))
	case d.Source == "":
		return refused(sources.KindRefused, op, "an image is needed: set imaging.direct.image of the site")
	}
	if _, _, ok := ParseMark(Mark(d.Job, d.Instance)); !ok || strings.ContainsAny(d.Job, ": \t\r\n") {
		return refused(sources.KindRefused, op, "%q is no job", sources.CleanText(d.Job, 64))
	}
	return nil
}

func (d *Deployment) instanceInfo() map[string]any {
	info := map[string]any{"image_source": d.Source}
	if d.Checksum != "" {
		info["image_checksum"] = d.Checksum
	}
	if d.RootGB > 0 {
		info["root_gb"] = d.RootGB
	}
	return info
}

// configDrive is what the image learns about the machine; nil: nothing but what
// Ironic says anyway.
func (d *Deployment) configDrive() any {
	if len(d.Keys) == 0 && d.Hostname == "" {
		return nil
	}
	meta := map[string]any{"uuid": d.Instance} // a new instance to what runs once for each
	if d.Hostname != "" {
		meta["hostname"], meta["name"] = d.Hostname, d.Hostname
	}
	if len(d.Keys) > 0 {
		keys := map[string]string{}
		for i, key := range d.Keys {
			keys[fmt.Sprintf("muster-%d", i)] = strings.TrimSpace(key)
		}
		meta["public_keys"] = keys
	}
	return nodes.ConfigDrive{MetaData: meta}
}

// bound says that a node carries the deployment's instance under its mark.
func (d *Deployment) bound(o *observation) bool {
	return strings.EqualFold(o.facts.InstanceUUID.Value, d.Instance) && markOf(o) == Mark(d.Job, d.Instance)
}

// markOf gives what stands in a node's extra where our mark does.
func markOf(o *observation) string {
	r := &reader{}
	return r.text(r.object(o.raw.Extra, "extra")["muster"], "our_mark", longText).Value
}

// Bind makes a node that of an instance of ours, in one request: the instance,
// its image and our mark. The node must be available, without an instance, leased
// as the deployment says, and not in maintenance; or be bound so already, in whatever state. Deploy then
// puts the image on it.
func (c *Client) Bind(ctx context.Context, ref string, d Deployment) (*sources.Record, error) {
	const op = "bind an instance to an ironic node"
	if err := d.check(op); err != nil {
		return nil, err
	}
	return c.apply(ctx, ref, change{
		op:   op,
		done: func(o *observation) (bool, error) { return d.bindable(op, o) },
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, o *observation) error {
			patch := nodes.UpdateOpts{
				nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_uuid", Value: d.Instance},
				nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_info", Value: d.instanceInfo()},
				nodes.UpdateOperation{Op: nodes.AddOp, Path: "/extra/muster", Value: Mark(d.Job, d.Instance)},
			}
			_, err := nodes.Update(ctx, sc, ref, patch).Extract()
			return err
		},
	})
}

// bindable reports a node that is bound as wanted, and refuses one that must not
// be.
func (d *Deployment) bindable(op string, o *observation) (bool, error) {
	f := o.facts
	switch {
	case f.ProvisionState.Null() || f.InstanceBound == facts.Null || f.Maintenance == facts.Null || f.Unreadable["our_mark"] != "":
		return false, unread(op, "state, instance, maintenance or extra")
	case d.bound(o):
		return true, nil
	case f.InstanceBound == facts.True:
		return false, refused(sources.KindConflict, op, "the instance %s is bound to it", f.InstanceUUID.Value)
	case f.ProvisionState != facts.ProvisionStateAvailable:
		return false, refused(sources.KindConflict, op, "it is %s, not available%s", f.ProvisionState, lastError(o))
	case d.Lessee != "" && !f.Lessee.Known:
		return false, unread(op, "lessee")
	case d.Lessee != "" && f.Lessee.Value != d.Lessee:
		return false, refused(sources.KindConflict, op, "it is leased to %q by now, not to %q", f.Lessee.Value, d.Lessee)
	case f.Maintenance == facts.True:
		return false, refused(sources.KindConflict, op, "it is in maintenance, in which Ironic deploys nothing; the reason: %s", f.MaintenanceReason.Value)
	}
	if _, _, ours := ParseMark(markOf(o)); !ours && markOf(o) != "" {
		return false, &sources.Error{Kind: sources.KindConflict, Op: op, Err: ErrForeign, Message: "extra.muster of the node holds what is no mark of ours"}
	}
	return false, nil
}

// Deploy asks Ironic to put the image of a bound deployment on its node, and
// comes back when Ironic has begun or the node is active; Settle waits for the
// end. A node that is not bound to this instance under our mark is a conflict,
// and so is one whose deployment failed: it is not tried again by itself.
// The image's config drive holds the keys, which Ironic can write from version
// 1.56 on.
func (c *Client) Deploy(ctx context.Context, ref string, d Deployment) (*sources.Record, error) {
	const op = "deploy an image by ironic"
	if err := d.check(op); err != nil {
		return nil, err
	}
	verb := nodes.ProvisionStateOpts{Target: nodes.TargetActive, ConfigDrive: d.configDrive()}
	if s, err := c.session(ctx); err != nil {
		return nil, err
	} else if verb.ConfigDrive != nil && s.minor < 56 {
		return nil, refused(sources.KindRefused, op, "this Ironic is spoken to in version 1.%d, and a config drive with keys needs 1.56: upgrade Ironic, or bake the keys into the image", s.minor)
	}
	return c.provision(ctx, ref, verb, func(o *observation) error {
		switch f := o.facts; {
		case f.InstanceBound == facts.Null || f.Unreadable["our_mark"] != "":
			return unread(op, "instance or extra")
		case !d.bound(o):
			return refused(sources.KindConflict, op, "the instance %s is not bound to it under our mark; bound is %q", d.Instance, f.InstanceUUID.Value)
		case f.ProvisionState == facts.ProvisionStateDeployFailed:
			return refused(sources.KindConflict, op, "the deployment failed%s", lastError(o))
		}
		return nil
	})
}

// Undeploy asks Ironic to tear down an instance, and comes back when Ironic has
// begun, or when the node is on its way to available or there already; Settle waits
// for the end. A node that another instance is bound to, or none while it is
// anywhere else, is a conflict: that is looked at before each request.
func (c *Client) Undeploy(ctx context.Context, ref, instance string) (*sources.Record, error) {
	const op = "tear down an instance by ironic"
	if instance == "" {
		return nil, refused(sources.KindRefused, op, "no instance is named")
	}
	return c.provision(ctx, ref, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, func(o *observation) error {
		f := o.facts
		switch {
		case f.ProvisionState.Null() || f.InstanceBound == facts.Null || !f.Reservation.Known:
			return unread(op, "state, instance or reservation")
		case f.InstanceBound == facts.True && strings.EqualFold(f.InstanceUUID.Value, instance):
			return nil
		case f.InstanceBound == facts.True:
			return refused(sources.KindConflict, op, "the instance %s is bound to it, not %s", f.InstanceUUID.Value, instance)
		case !f.ProvisionState.Stable() && f.TargetProvisionState.Value == facts.ProvisionStateAvailable.String():
			return nil // on its way, nothing is sent
		case f.ProvisionState == facts.ProvisionStateAvailable && f.Reservation.Value == "":
			return nil // there
		case f.ProvisionState == facts.ProvisionStateAvailable:
			return refused(sources.KindLocked, op, "it is available, and locked by %s", f.Reservation.Value)
		}
		return refused(sources.KindConflict, op, "the instance %s is not bound to it any more, and it is %s%s", instance, f.ProvisionState, lastError(o))
	})
}

// Unbind removes, in one request, what a deployment of ours left on a node that
// is available: its instance if that is still bound, instance_info and our mark,
// which Ironic's own tear-down never touches. A node bound to another instance,
// or in another state, is a conflict. instance may be "" for a node that must
// be without one.
func (c *Client) Unbind(ctx context.Context, ref, instance string) (*sources.Record, error) {
	const op = "unbind an instance from an ironic node"
	left := nodes.UpdateOpts{}
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			f := o.facts
			switch {
			case f.ProvisionState.Null() || f.InstanceBound == facts.Null || f.Unreadable["our_mark"] != "":
				return false, unread(op, "state, instance or extra")
			case f.InstanceBound == facts.True && !strings.EqualFold(f.InstanceUUID.Value, instance):
				return false, refused(sources.KindConflict, op, "another instance, %s, is bound to it", f.InstanceUUID.Value)
			case f.ProvisionState != facts.ProvisionStateAvailable:
				return false, refused(sources.KindConflict, op, "it is %s, not available%s", f.ProvisionState, lastError(o))
			}
			details, err := c.Details(ctx, ref)
			if err != nil {
				return false, err
			}
			if details.InstanceInfo == nil {
				return false, unread(op, "instance_info")
			}
			left = leftovers(o, details)
			return len(left) == 0, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			_, err := nodes.Update(ctx, sc, ref, left).Extract()
			return err
		},
	})
}

// leftovers are the operations that remove what a deployment left behind.
func leftovers(o *observation, details Details) (patch nodes.UpdateOpts) {
	if o.facts.InstanceBound == facts.True {
		patch = append(patch, nodes.UpdateOperation{Op: nodes.RemoveOp, Path: "/instance_uuid"})
	}
	if len(details.InstanceInfo) > 0 {
		patch = append(patch, nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_info", Value: map[string]any{}})
	}
	if _, _, ours := ParseMark(markOf(o)); ours {
		patch = append(patch, nodes.UpdateOperation{Op: nodes.RemoveOp, Path: "/extra/muster"})
	}
	return patch
}
