package handover

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// provisioner is an Ironic, as far as taking instances off nodes goes.
type provisioner interface {
	node.Getter
	Undeploy(ctx context.Context, ref, instance string) (*sources.Record, error)
}

// servers are those of a Nova, as far as deleting one goes.
type servers interface {
	Server(ctx context.Context, uuid string) (*nova.Server, error)
	Delete(ctx context.Context, uuid string) error
}

// reclaim deletes the instance of a customer that was approved, and no other one.
// in.Instance "" is that there was none.
func (h *hand) reclaim(ctx context.Context, in Instance) (Instance, error) {
	const doing = "reclaim the node"
	site, err := h.site.Row(ctx)
	if err != nil {
		return in, err
	}
	spec := &site.Spec
	if spec.EngagementMode != facts.EngagementModeFullyManaged || !spec.TraitBased || !spec.ForceReclaimEnabled {
		return in, act.Final(codes.ForceReclaimNotEnabled, "the site %s does not allow force_reclaim", spec.Name)
	}
	if err := h.untouched(ctx, in.Node); err != nil {
		return in, err
	}
	client, release, err := openIronic[provisioner](ctx, h)
	if err != nil {
		return in, err
	}
	defer release()
	f, err := node.Read(ctx, client, in.UUID)
	if err != nil {
		return in, err
	}
	in.Nova = spec.Serves("nova")
	switch {
	case f.InstanceBound == facts.False && in.Instance != "": // gone, by an earlier try or by its customer
		return in, nil
	case f.InstanceBound == facts.False && f.ProvisionState == facts.ProvisionStateAvailable:
		return in, nil
	case f.InstanceBound == facts.False:
		return in, node.Unexpected(f, doing+", on which no instance is")
	case !holds(f, in.Instance):
		return in, act.Final(codes.ReclaimInstanceChanged, "the instance %s is on the node, approved was %s", f.InstanceUUID.Value, orNone(in.Instance))
	case !deletable(f, facts.ProvisionStateActive):
		return in, node.Unexpected(f, doing)
	}
	if err := h.proven(ctx, in.Node); err != nil { // again, right before
		return in, err
	}
	return in, h.erase(ctx, client, in, f)
}

func orNone(instance string) string {
	if instance == "" {
		return "none"
	}
	return instance
}

// untouched makes sure that the device is still the one, and whose, that the work
// was begun on.
func (h *hand) untouched(ctx context.Context, n Node) error {
	d, err := h.site.Device(ctx, n.Device)
	if err != nil {
		return err
	}
	if err := inCustody(&d); err != nil {
		return err
	}
	return h.proven(ctx, n)
}

// deletable reports a node whose instance may be deleted from the state that it is
// in, or is being deleted.
func deletable(f *facts.Ironic, from ...facts.ProvisionState) bool {
	for _, state := range from {
		if f.ProvisionState == state {
			return true
		}
	}
	return leaving(f)
}

// leaving reports a node that is on its way to available.
func leaving(f *facts.Ironic) bool {
	return !f.ProvisionState.Stable() && f.TargetProvisionState.Value == facts.ProvisionStateAvailable.String()
}

// erase asks for the end of an instance, through Nova where that keeps it.
func (h *hand) erase(ctx context.Context, client provisioner, in Instance, f *facts.Ironic) error {
	if in.Nova {
		servers, release, err := open[servers](ctx, h, "nova", codes.NovaUnavailable)
		if err != nil {
			return err
		}
		defer release()
		if err := servers.Delete(ctx, in.Instance); err != nil {
			return novaFailed(ctx, err, codes.InstanceDeleteFailed)
		}
		return nil
	}
	if leaving(f) {
		return nil
	}
	if _, err := client.Undeploy(ctx, in.UUID, in.Instance); err != nil {
		return ironicFailed(ctx, err, codes.InstanceDeleteFailed)
	}
	return nil
}

// look tells what a release has before it. Nothing is changed.
func (h *hand) look(ctx context.Context, in act.Target) (Occupied, error) {
	n, d, err := h.nodeOf(ctx, in)
	found := Occupied{Instance: Instance{Node: n}}
	if err != nil {
		return found, err
	}
	if err := inCustody(&d); err != nil {
		return found, act.Final(codes.ReleaseHoldRefused, "%s is %s: a partner holds custody of it", d.Name, d.Operational)
	}
	site, err := h.site.Row(ctx)
	if err != nil || n.UUID == "" {
		return found, err
	}
	client, release, err := openIronic[node.Getter](ctx, h)
	if err != nil {
		return found, err
	}
	defer release()
	f, err := node.Read(ctx, client, n.UUID)
	if err != nil {
		return found, err
	}
	switch whose, err := node.Occupied(f, &site.Spec); {
	case err != nil:
		return found, err
	case whose == node.Ours:
		found.Instance.Instance = f.InstanceUUID.Value
		// Before anything is changed: what cannot be deleted keeps the node here.
		if found.Nova, err = h.kept(ctx, &site.Spec, found.Instance, f); err != nil {
			return found, err
		}
	case whose == node.Foreign:
		found.Foreign = true
		return found, h.unused(ctx, n, f)
	default:
		s, err := h.coming(ctx, &site.Spec, n)
		if err != nil || s == nil {
			return found, err
		}
		found.Instance.Instance, found.Nova = s.ID, true
	}
	return found, nil
}

// coming finds the server of a move that was broken off, which Nova may yet put on
// a free node: the only one with the machine's name in SLURM's project that is on
// no other node. nil for none.
func (h *hand) coming(ctx context.Context, spec *fleet.SiteSpec, n Node) (*nova.Server, error) {
	if !spec.Serves("nova") || spec.Lessees.Slurm == "" {
		return nil, nil
	}
	all, release, err := open[finder](ctx, h, "nova", codes.NovaUnavailable)
	if err != nil {
		return nil, err
	}
	defer release()
	named, err := all.Servers(ctx, nova.Filter{Name: n.Name, Project: spec.Lessees.Slurm})
	if err != nil {
		return nil, novaFailed(ctx, err, codes.NovaUnavailable)
	}
	var found []nova.Server
	for i := range named {
		switch s := &named[i]; {
		case s.Node == "" && !s.NodeKnown:
			return nil, act.Final(codes.NovaUnavailable, "Nova hides the node of server %s (%s): the user needs a role that may see where servers are", s.ID, s.Name)
		case s.Node == "" && strings.HasPrefix(s.Status, "SHELVED"): // put away by a person
		case s.Node == "" || strings.EqualFold(s.Node, n.UUID):
			found = append(found, *s)
		}
	}
	switch {
	case len(found) > 1:
		return nil, act.Final(codes.ImageServerAmbiguous, "the project of SLURM has %d servers called %s, which may yet come to the node: %s", len(found), n.Name, ids(found))
	case len(found) == 1:
		return &found[0], nil
	}
	return nil, nil
}

// remove deletes the instance that we bound.
func (h *hand) remove(ctx context.Context, in Instance) (Instance, error) {
	const doing = "delete the test instance"
	site, err := h.site.Row(ctx)
	if err != nil {
		return in, err
	}
	client, release, err := openIronic[provisioner](ctx, h)
	if err != nil {
		return in, err
	}
	defer release()
	f, err := node.Read(ctx, client, in.UUID)
	if err != nil {
		return in, err
	}
	whose, err := node.Occupied(f, &site.Spec)
	switch {
	case err != nil:
		return in, err
	case whose == node.Free:
		in.Nova = site.Spec.Serves("nova")
		s, err := h.coming(ctx, &site.Spec, in.Node)
		if err != nil || s == nil || s.ID != in.Instance {
			return in, err
		}
		return in, h.erase(ctx, client, in, f)
	case whose == node.Foreign || !holds(f, in.Instance):
		return in, notOurs(f, doing)
	}
	if in.Nova, err = h.kept(ctx, &site.Spec, in, f); err != nil {
		return in, err
	}
	if !in.Nova && f.ProvisionState == facts.ProvisionStateAvailable { // bound and never deployed: what is left is unbound
		return in, nil
	}
	if !deletable(f, facts.ProvisionStateActive, facts.ProvisionStateDeployFailed, facts.ProvisionStateWaitCallback, facts.ProvisionStateError) {
		return in, node.Unexpected(f, doing)
	}
	return in, h.erase(ctx, client, in, f)
}

// kept tells whether Nova keeps the instance of ours on a node; one that neither
// Nova keeps in SLURM's project nor our mark names is not ours to delete.
func (h *hand) kept(ctx context.Context, spec *fleet.SiteSpec, in Instance, f *facts.Ironic) (bool, error) {
	if !spec.Serves("nova") {
		if f.OurMark != facts.True {
			return false, act.Final(codes.InstanceNotOurs, "the instance %s is on a node that is leased to SLURM, and our mark does not name it: delete it by hand if it is to go", in.Instance)
		}
		return false, nil
	}
	servers, release, err := open[servers](ctx, h, "nova", codes.NovaUnavailable)
	if err != nil {
		return false, err
	}
	defer release()
	s, err := servers.Server(ctx, in.Instance)
	switch {
	case errors.Is(err, sources.ErrGone) && leaving(f): // deleted just now
		return true, nil
	case errors.Is(err, sources.ErrGone) && f.OurMark == facts.True: // of before the site had Nova
		return false, nil
	case errors.Is(err, sources.ErrGone):
		return false, act.Final(codes.InstanceDeleteFailed, "Nova has no server %s, to which the node is bound: the binding is stale, clear the node's instance_uuid by hand, then run the job again", in.Instance)
	case err != nil:
		return false, novaFailed(ctx, err, codes.InstanceDeleteFailed)
	case s.Project != spec.Lessees.Slurm:
		return false, act.Final(codes.InstanceNotOurs, "the server %s (%s) is of the project %s, not of SLURM's", s.ID, s.Name, s.Project)
	}
	return true, nil
}

// begins is how long a deletion that was asked for may take to show: Nova waits
// for a locked node.
const begins = 15 * time.Minute

// awaitGone waits until the instance is off its node and the node is clean. It
// only looks. Where no instance was to go the node may be in any state of rest.
func (h *hand) awaitGone(ctx context.Context, in Instance) error {
	client, release, err := openIronic[node.Getter](ctx, h)
	if err != nil {
		return err
	}
	defer release()
	began := activity.GetInfo(ctx).ScheduledTime
	return h.watch(ctx, client, in.UUID, began.Add(cleanWithin), codes.InstanceDeleteFailed, func(f *facts.Ironic) (bool, error) {
		state := f.ProvisionState
		switch {
		case f.InstanceBound == facts.True && !holds(f, in.Instance):
			return false, notOurs(f, "wait until the node is clean")
		case !atRest(f):
			return false, nil
		case f.InstanceBound == facts.True && state == facts.ProvisionStateAvailable && f.OurMark == facts.True:
			return true, nil // never deployed
		case f.InstanceBound == facts.True && (state == facts.ProvisionStateError || h.site.Clock().After(began.Add(begins))):
			return false, act.Final(codes.InstanceDeleteFailed, "the node is in %q, and instance %s is still on it%s", state, in.Instance, node.Why(f))
		case f.InstanceBound == facts.True:
			return false, nil
		case state == facts.ProvisionStateCleanFailed:
			return false, act.Final(codes.IronicCleanFailed, "the clean failed%s", node.Why(f))
		case state != facts.ProvisionStateAvailable && in.Instance != "":
			return false, node.Unexpected(f, "wait until the node is clean")
		case in.Nova && in.Instance != "":
			return h.forgotten(ctx, in.Instance)
		}
		return true, nil
	})
}

// forgotten reports that Nova has no such server any more.
func (h *hand) forgotten(ctx context.Context, instance string) (bool, error) {
	servers, release, err := open[servers](ctx, h, "nova", codes.NovaUnavailable)
	if err != nil {
		return false, err
	}
	defer release()
	s, err := servers.Server(ctx, instance)
	switch {
	case errors.Is(err, sources.ErrGone):
		return true, nil
	case err != nil:
		return false, novaFailed(ctx, err, codes.InstanceDeleteFailed)
	case s.Status == "ERROR" && s.TaskState == "":
		return false, act.Final(codes.InstanceDeleteFailed, "Nova failed to delete the server %s: %s", instance, s.Fault)
	}
	return s.Ended(), nil
}

// watch looks at a node until done says that it is as wanted, or fails finally. A
// failure that trying again may mend is lived with until the end.
func (h *hand) watch(ctx context.Context, client node.Getter, uuid string, until time.Time, late codes.Failure, done func(f *facts.Ironic) (bool, error)) error {
	for {
		f, err := node.Read(ctx, client, uuid)
		there := false
		if err == nil {
			there, err = done(f)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && act.IsFinal(err):
			return err
		case there:
			return nil
		case h.site.Clock().After(until) && err != nil:
			return act.Final(act.Code(err), "given up: %v", err)
		case h.site.Clock().After(until):
			return act.Final(late, "given up: the node is still in %q%s", f.ProvisionState, node.Why(f))
		}
		if !act.Wait(ctx, h.site.Poll) {
			return ctx.Err()
		}
	}
}

// unbind clears what Ironic's own tear-down leaves of an instance of ours. A node
// that had none, and is not available, has nothing of it.
func (h *hand) unbind(ctx context.Context, in Instance) error {
	client, release, err := openIronic[interface {
		node.Getter
		Unbind(ctx context.Context, ref, instance string) (*sources.Record, error)
	}](ctx, h)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, in.UUID)
	if err != nil {
		return err
	}
	if in.Instance == "" && f.ProvisionState != facts.ProvisionStateAvailable {
		return nil
	}
	if _, err := client.Unbind(ctx, in.UUID, in.Instance); err != nil {
		return ironicFailed(ctx, err, codes.InstanceDeleteFailed)
	}
	return nil
}
