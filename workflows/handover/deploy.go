package handover

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// deployer is an Ironic, as far as deploying without Nova goes.
type deployer interface {
	node.Getter
	Details(ctx context.Context, ref string) (ironic.Details, error)
	Bind(ctx context.Context, ref string, d ironic.Deployment) (*sources.Record, error)
	Deploy(ctx context.Context, ref string, d ironic.Deployment) (*sources.Record, error)
}

// deploy begins to put an image of ours on a node that is leased to us, and gives
// the instance that it then carries. in.Instance is what is bound where Nova makes
// none.
func (h *hand) deploy(ctx context.Context, in Instance) (Instance, error) {
	site, err := h.site.Row(ctx)
	if err != nil {
		return in, err
	}
	client, release, err := openIronic[deployer](ctx, h)
	if err != nil {
		return in, err
	}
	defer release()
	if err := h.untouched(ctx, in.Node); err != nil {
		return in, err
	}
	f, err := node.Read(ctx, client, in.UUID)
	if err != nil {
		return in, err
	}
	if !atRest(f) && !deploying(f) {
		return in, act.Retry(codes.IronicStateUnexpected, "deploy the node: it is %q by now, on its way elsewhere", f.ProvisionState)
	}
	switch found, err := adoptable(f, &site.Spec); {
	case err != nil:
		return in, err
	case found.Unclean:
		return in, node.Unexpected(f, "deploy the node")
	}
	if site.Spec.Serves("nova") {
		return h.byNova(ctx, &site.Spec, client, in, f)
	}
	return h.byIronic(ctx, &site.Spec, client, in, f)
}

// stillLeased adds to a refusal what the move itself has changed by then.
func stillLeased(err error, spec *fleet.SiteSpec) error {
	if act.Code(err) != codes.InstanceNotOurs || spec.Lessees.Slurm == "" {
		return err
	}
	return act.Final(codes.InstanceNotOurs, "%s; the node stays leased to SLURM's project, %s: give the lease back by hand if the customer is to keep it", act.Message(err), spec.Lessees.Slurm)
}

// byIronic deploys by Ironic alone, under a binding of ours.
func (h *hand) byIronic(ctx context.Context, spec *fleet.SiteSpec, client deployer, in Instance, f *facts.Ironic) (Instance, error) {
	if f.InstanceBound == facts.True {
		in.Instance = f.InstanceUUID.Value
		if f.ProvisionState != facts.ProvisionStateAvailable {
			return in, nil // deployed, or on its way
		}
	}
	if spec.Imaging == nil || spec.Imaging.Direct == nil {
		return in, act.Final(codes.IronicDeployFailed, "the site %s says of no image that is to be deployed: set imaging.direct", spec.Name)
	}
	image := spec.Imaging.Direct
	d := ironic.Deployment{
		Job: strconv.FormatInt(in.Job, 10), Instance: in.Instance,
		Source: image.Image, Checksum: image.Checksum, RootGB: image.RootGB, Hostname: in.Name, Keys: image.SSHKeys,
		Lessee: spec.Lessees.Slurm,
	}
	if f.InstanceBound == facts.True { // of an earlier job, which came no further
		details, err := client.Details(ctx, in.UUID)
		if err != nil {
			return in, node.Failed(ctx, err)
		}
		text, _ := details.Extra["muster"].(string)
		job, instance, ok := ironic.ParseMark(text)
		if !ok || !strings.EqualFold(instance, in.Instance) {
			return in, act.Final(codes.InstanceNotOurs, "the instance %s is bound to the idle node, and our mark does not name it", in.Instance)
		}
		d.Job, d.Instance = job, instance
	}
	if _, err := client.Bind(ctx, in.UUID, d); err != nil {
		return in, ironicFailed(ctx, err, codes.IronicDeployFailed)
	}
	if _, err := client.Deploy(ctx, in.UUID, d); err != nil {
		return in, ironicFailed(ctx, err, codes.IronicDeployFailed)
	}
	return in, nil
}

// finder finds servers, of all projects.
type finder interface {
	Server(ctx context.Context, uuid string) (*nova.Server, error)
	Servers(ctx context.Context, f nova.Filter) ([]nova.Server, error)
}

// creator makes servers, as the user of SLURM's project.
type creator interface {
	Create(ctx context.Context, n nova.NewServer) (*nova.Server, error)
}

// byNova has Nova put a server of SLURM's project on the node, once: the one that
// the node is bound to, else the only one with the machine's name, is that of an
// earlier try. A server that a customer had scheduled to the node before it was
// cordoned is not ours, whatever the lease says.
func (h *hand) byNova(ctx context.Context, spec *fleet.SiteSpec, client deployer, in Instance, f *facts.Ironic) (Instance, error) {
	if f.InstanceBound == facts.True {
		bound := in
		bound.Instance = f.InstanceUUID.Value
		switch kept, err := h.kept(ctx, spec, bound, f); {
		case act.Code(err) == codes.InstanceDeleteFailed:
			return in, act.Final(codes.ImageServerFailed, "nothing was deployed: %s", act.Message(err))
		case err != nil:
			return in, stillLeased(err, spec)
		case !kept: // bound by us, of before the site had Nova
			return h.byIronic(ctx, spec, client, in, f)
		}
		bound.Nova = true
		return bound, nil
	}
	in.Nova = true
	if !spec.Serves("imaging") {
		return in, act.Final(codes.ImageServerRefused, "the site %s says of no image that Nova is to deploy: set imaging.nova", spec.Name)
	}
	all, release, err := open[finder](ctx, h, "nova", codes.NovaUnavailable)
	if err != nil {
		return in, err
	}
	defer release()
	named, err := all.Servers(ctx, nova.Filter{Name: in.Name, Project: spec.Lessees.Slurm})
	switch {
	case err != nil:
		return in, novaFailed(ctx, err, codes.NovaUnavailable)
	case len(named) > 1:
		return in, act.Final(codes.ImageServerAmbiguous, "the project of SLURM has %d servers called %s: %s", len(named), in.Name, ids(named))
	case len(named) == 1:
		in.Instance = named[0].ID
		return in, usable(&named[0], in, spec)
	}
	own, release, err := open[creator](ctx, h, "imaging", codes.NovaUnavailable)
	if err != nil {
		return in, err
	}
	defer release()
	image := spec.Imaging.Nova
	made, err := own.Create(ctx, nova.NewServer{Name: in.Name, Project: spec.Lessees.Slurm, Image: image.Image, Flavor: image.Flavor, Network: image.Network, Key: image.Key, Node: in.UUID})
	if err != nil {
		return in, novaFailed(ctx, err, codes.ImageServerRefused)
	}
	in.Instance = made.ID
	return in, nil
}

func ids(servers []nova.Server) string {
	var all []string
	for i := range servers {
		all = append(all, servers[i].ID)
	}
	return strings.Join(all, ", ")
}

// usable refuses a server that is another project's or on another node, or in a
// state that it does not leave. It is not deleted.
func usable(s *nova.Server, in Instance, spec *fleet.SiteSpec) error {
	switch {
	case s.Project != spec.Lessees.Slurm:
		return stillLeased(act.Final(codes.InstanceNotOurs, "the server %s (%s) is of the project %s, not of SLURM's", s.ID, s.Name, s.Project), spec)
	case s.Terminal():
		return act.Final(codes.ImageServerFailed, "the server %s (%s) is in %s: %s", s.ID, s.Name, s.Status, s.Fault)
	case s.Node != "" && !strings.EqualFold(s.Node, in.UUID):
		return act.Final(codes.ImageServerAmbiguous, "the server %s of SLURM's project has the machine's name and is on the node %s", s.ID, s.Node)
	}
	return nil
}

// awaitDeploy waits until the image is on the node. It only looks.
func (h *hand) awaitDeploy(ctx context.Context, in Instance) error {
	site, err := h.site.Row(ctx)
	if err != nil {
		return err
	}
	client, release, err := openIronic[node.Getter](ctx, h)
	if err != nil {
		return err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(deployWithin)
	return h.watch(ctx, client, in.UUID, until, codes.IronicDeployFailed, func(f *facts.Ironic) (bool, error) {
		if f.InstanceBound == facts.True && !holds(f, in.Instance) { // also while Nova still looks for a place
			return false, stillLeased(notOurs(f, "deploy the node"), &site.Spec)
		}
		if in.Nova {
			if there, err := h.served(ctx, in, &site.Spec); err != nil || !there {
				return false, err
			}
		}
		switch bound := f.InstanceBound == facts.True; {
		case !bound && in.Nova: // Nova binds it when it comes to it
			return false, nil
		case !bound:
			return false, act.Final(codes.IronicStateUnexpected, "somebody took our instance %s off the node meanwhile, which is in %q", in.Instance, f.ProvisionState)
		case !atRest(f):
			return false, nil
		case f.ProvisionState == facts.ProvisionStateActive:
			return true, nil
		case f.ProvisionState == facts.ProvisionStateDeployFailed:
			return false, deployFailed(f)
		case in.Nova && f.ProvisionState == facts.ProvisionStateAvailable:
			return false, nil
		}
		return false, node.Unexpected(f, "deploy the node")
	})
}

// served reports that Nova says of a server that it was built; whether it runs,
// SLURM will tell.
func (h *hand) served(ctx context.Context, in Instance, spec *fleet.SiteSpec) (bool, error) {
	all, release, err := open[finder](ctx, h, "nova", codes.NovaUnavailable)
	if err != nil {
		return false, err
	}
	defer release()
	s, err := all.Server(ctx, in.Instance)
	switch {
	case errors.Is(err, sources.ErrGone):
		return false, act.Final(codes.ImageServerFailed, "the server %s was deleted while it was deployed", in.Instance)
	case err != nil:
		return false, novaFailed(ctx, err, codes.NovaUnavailable)
	}
	return s.Status == "ACTIVE" || s.Status == "SHUTOFF", usable(s, in, spec)
}
