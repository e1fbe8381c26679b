package handover

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
	"github.com/musterhq/muster/sources/slurm"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

// cluster is a SLURM, as far as nodes come and go.
type cluster interface {
	Get(ctx context.Context, name string) (*sources.Record, error)
	Register(ctx context.Context, name, mark string) (*slurm.Change, error)
	Remove(ctx context.Context, name, mark string) (*slurm.Change, error)
	Resume(ctx context.Context, name, mark string) (*slurm.Change, error)
}

// inSLURM is a device in its site's SLURM.
type inSLURM struct {
	cluster
	name  string // by which SLURM has it, or would
	known bool   // SLURM has been read: it showed the name, or a whole listing lacked it
}

// openCluster gives the site's SLURM and the name that a device has there, which is
// kept when SLURM stops to show it; nil: the site has none.
func (h *hand) openCluster(ctx context.Context, n Node) (*inSLURM, func(), error) {
	site, err := h.site.Row(ctx)
	if err != nil || !site.Spec.Has("slurm") {
		return nil, func() {}, err
	}
	in := inSLURM{name: n.Name}
	stored, err := h.stored(ctx, n, "slurm")
	if err != nil {
		return nil, nil, err
	}
	if in.known = stored != nil; in.known {
		in.name = stored.Ref
	} else {
		marks, err := store.Watermarks(ctx, h.site.DB, h.site.ID)
		if err != nil {
			return nil, nil, err
		}
		in.known = !marks["slurm"].At.IsZero()
	}
	var release func()
	in.cluster, release, err = open[cluster](ctx, h, "slurm", codes.SlurmUnavailable)
	return &in, release, err
}

// find reads the node. Names of devices have no case, SLURM's have one: a device in
// capitals is looked for in small letters too. What SLURM lacks by a name that was
// only guessed is not known to be absent.
func (in *inSLURM) find(ctx context.Context) (*sources.Record, error) {
	r, err := in.Get(ctx, in.name)
	if small := strings.ToLower(in.name); errors.Is(err, sources.ErrGone) && small != in.name {
		var again error
		if r, again = in.Get(ctx, small); !errors.Is(again, sources.ErrGone) {
			in.name, err = small, again
		}
	}
	return r, err
}

// unread refuses to take a node for absent of which SLURM was never asked.
func (in *inSLURM) unread() error {
	if in.known {
		return nil
	}
	return act.Final(codes.SlurmUnavailable, "SLURM has no node %s, and has not been read whole yet: whether it has the machine by another name is not known; run the job again when it was", in.name)
}

// stored gives what a source said of the device, also when it lists it no more; nil
// where it never did.
func (h *hand) stored(ctx context.Context, n Node, source string) (*fleet.Stored, error) {
	stored, err := store.FactsOf(ctx, h.site.DB, []int64{n.Device})
	if err != nil {
		return nil, err
	}
	for i := range stored {
		if stored[i].Source == source && stored[i].Ref != "" {
			return &stored[i], nil
		}
	}
	return nil, nil
}

// refOf gives what a source knows the device by, "" where it does not list it.
func (h *hand) refOf(ctx context.Context, n Node, source string) (string, error) {
	stored, err := h.stored(ctx, n, source)
	if err != nil || stored == nil || stored.RefGone {
		return "", err
	}
	return stored.Ref, nil
}

func markOf(n Node) string { return fmt.Sprintf("muster:%d", n.Job) }

// slurmFailed gives an error of SLURM its code.
func slurmFailed(ctx context.Context, err error, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case kind == sources.KindConflict || kind == sources.KindRefused || kind == sources.KindMissing:
		return act.Final(refused, "%v", err)
	case kind == sources.KindForbidden:
		return act.Final(codes.SlurmUnavailable, "%v", err)
	}
	return act.Retry(codes.SlurmUnavailable, "%v", err)
}

// poll asks again and again until done, or a failure that stays, or the end of
// within, counted from the first try on. What is so late is late.
func (h *hand) poll(ctx context.Context, within time.Duration, late codes.Failure, look func() (done bool, state string, err error)) error {
	until := activity.GetInfo(ctx).ScheduledTime.Add(within)
	for {
		done, state, err := look()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && act.IsFinal(err):
			return err
		case done:
			return nil
		case h.site.Clock().After(until) && err != nil:
			return act.Final(act.Code(err), "given up after %s: %v", within, err)
		case h.site.Clock().After(until):
			return act.Final(late, "given up after %s: %s", within, state)
		}
		if !act.Wait(ctx, h.site.Poll) {
			return ctx.Err()
		}
	}
}

// drain keeps new work off a node, waits until what runs there has ended, and takes
// the node out of SLURM. A node that SLURM does not have needs nothing; a drain of
// somebody else stays as it is.
func (h *hand) drain(ctx context.Context, n Node) error {
	c, release, err := h.openCluster(ctx, n)
	if err != nil {
		return err
	}
	defer release()
	if c == nil {
		return nil
	}
	return h.poll(ctx, drainWithin, codes.SlurmDrainTimeout, func() (bool, string, error) {
		if _, err := c.find(ctx); err != nil {
			if errors.Is(err, sources.ErrGone) {
				return true, "", c.unread()
			}
			return false, "", slurmFailed(ctx, err, codes.SlurmRemoveFailed)
		}
		change, err := c.Remove(ctx, c.name, markOf(n))
		if err != nil {
			return false, "", slurmFailed(ctx, err, codes.SlurmRemoveFailed)
		}
		switch change.Outcome {
		case slurm.Removed:
			return true, "", nil
		case slurm.DrainedByOther:
			return false, "", act.Final(codes.SlurmDrainForeign, "somebody else drained %s in SLURM: %s", c.name, reason(&change.Facts))
		}
		return false, fmt.Sprintf("SLURM still shows %s as %s", c.name, states(&change.Facts)), nil
	})
}

// undrain ends the drain that this job made, of a node that it did not take out of
// SLURM after all. What is anybody else's stays.
func (h *hand) undrain(ctx context.Context, n Node) error {
	c, release, err := h.openCluster(ctx, n)
	if err != nil {
		return err
	}
	defer release()
	if c == nil {
		return nil
	}
	if _, err = c.find(ctx); err == nil {
		_, err = c.Resume(ctx, c.name, markOf(n))
	}
	if err == nil || errors.Is(err, sources.ErrGone) || sources.KindOf(err) == sources.KindConflict {
		return nil
	}
	return slurmFailed(ctx, err, codes.SlurmRemoveFailed)
}

func reason(f *facts.Slurm) string {
	if f.Reason.Value == "" {
		return "no reason is given"
	}
	return fmt.Sprintf("%q, by %s", f.Reason.Value, orNone(f.ReasonSetBy))
}

func states(f *facts.Slurm) string { return fmt.Sprint(f.States.Tokens()) }

// outOfService are the states of a node that gets no work.
const outOfService = facts.SlurmDrain | facts.SlurmDown | facts.SlurmError | facts.SlurmFail | facts.SlurmNotResponding

// atWork are the states of a node that jobs are on.
const atWork = facts.SlurmAllocated | facts.SlurmMixed | facts.SlurmCompleting

// unused refuses a node with an instance that is not ours, by lease or mark, and
// that SLURM gives work nevertheless: nothing would take the work off it.
func (h *hand) unused(ctx context.Context, n Node, f *facts.Ironic) error {
	c, release, err := h.openCluster(ctx, n)
	if err != nil {
		return err
	}
	defer release()
	if c == nil {
		return nil
	}
	r, err := c.find(ctx)
	switch {
	case errors.Is(err, sources.ErrGone):
		return c.unread()
	case err != nil:
		return slurmFailed(ctx, err, codes.SlurmUnavailable)
	case r.Slurm == nil:
		return act.Retry(codes.SlurmUnavailable, "what SLURM says of %s could not be read: %s", c.name, r.Undecodable)
	case r.Slurm.States&outOfService != 0 && r.Slurm.States&atWork == 0:
		return nil
	}
	return act.Final(codes.InstanceNotOurs, "the instance %s is not marked as ours nor its node leased to SLURM, and SLURM shows %s in service as %s: drain it by hand if the machine is a customer's, or lease the node to SLURM's project if it is ours",
		f.InstanceUUID.Value, c.name, states(r.Slurm))
}

// register brings a node that was deployed into SLURM's service. Its slurmd is
// waited for first: a node that is silent cannot be resumed.
func (h *hand) register(ctx context.Context, n Node) error {
	c, release, err := h.openCluster(ctx, n)
	if err != nil {
		return err
	}
	defer release()
	if c == nil {
		return nil
	}
	return h.poll(ctx, registerWithin, codes.SlurmRegisterFailed, func() (bool, string, error) {
		r, err := c.find(ctx)
		switch {
		case errors.Is(err, sources.ErrGone): // it is created
		case err != nil:
			return false, "", slurmFailed(ctx, err, codes.SlurmRegisterFailed)
		case r.Slurm != nil && r.Slurm.States.Has(facts.SlurmNotResponding):
			return false, fmt.Sprintf("the slurmd of %s does not answer: SLURM shows it as %s", c.name, states(r.Slurm)), nil
		}
		change, err := c.Register(ctx, c.name, markOf(n))
		if err != nil {
			return false, "", slurmFailed(ctx, err, codes.SlurmRegisterFailed)
		}
		return change.Facts.States&outOfService == 0, fmt.Sprintf("SLURM shows %s as %s; reason: %s", c.name, states(&change.Facts), reason(&change.Facts)), nil
	})
}
