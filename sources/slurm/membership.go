package slurm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// dynamic are the nodes that can be deleted and created over the API.
const dynamic = facts.SlurmDynamicNorm | facts.SlurmDynamicFuture

// Remove takes a node out of the cluster's service, and is called again until it
// says Removed. The node is drained under the mark (muster:JOB) or stays drained
// under that of an earlier job of muster's: while work is left the outcome is
// Draining, and nothing waits for it. A static node with no work left is removed
// by that drain; a dynamic one is deleted then. A node that SLURM does not have
// is removed.
//
// A drain of anybody else stands as it is: DrainedByOther. It keeps new work off
// too, but it is not ours to count on, nor a dynamic node under it to delete.
//
// Errors: KindRefused with NotCapable (an API without node writes),
// KindForbidden, KindConflict, KindTransient.
func (c *Client) Remove(ctx context.Context, name, mark string) (*Change, error) {
	op := "remove SLURM node " + name
	before, at, err := c.forWrite(ctx, op, name, mark)
	if err != nil {
		return removed(at, err)
	}
	owner := mark
	if before.facts.States.Has(facts.SlurmDrain) && before.facts.DrainMark != "" {
		owner = before.facts.DrainMark
	}
	drained, err := c.Drain(ctx, name, owner, "removed from service")
	switch {
	case err != nil:
		return removed(at, err)
	case drained.Outcome != DrainedByUs:
		return drained, nil
	case drained.Facts.States&working != 0:
		return &Change{Outcome: Draining, Facts: drained.Facts, At: drained.At}, nil
	case drained.Facts.States&dynamic == 0:
		return &Change{Outcome: Removed, Facts: drained.Facts, At: drained.At}, nil
	}
	return c.remove(ctx, op, name)
}

// removed takes a node that SLURM does not have for removed.
func removed(at time.Time, err error) (*Change, error) {
	if errors.Is(err, sources.ErrGone) {
		return &Change{Outcome: Removed, Facts: facts.Slurm{Listed: facts.False}, At: at}, nil
	}
	return nil, err
}

// remove deletes a dynamic node that we drained and that has no work.
func (c *Client) remove(ctx context.Context, op, name string) (*Change, error) {
	var writeErr error
	if _, fault := c.call(ctx, op, "DELETE", "/node/"+name, nil); fault != nil {
		writeErr = fault
	}
	for looks := 0; ; looks++ {
		after, at, err := c.readable(ctx, op, name)
		switch {
		case errors.Is(err, sources.ErrGone):
			return removed(at, err)
		case writeErr != nil && err != nil:
			return nil, writeErr
		case err != nil:
			return nil, err
		case after.facts.States&working != 0:
			return &Change{Outcome: Draining, Facts: after.facts, At: at}, nil
		case writeErr != nil || looks == askedMost:
			return nil, notShown(op, "deletion", &after.facts, writeErr)
		}
		if err := c.wait(ctx, asked); err != nil {
			return nil, sources.Failure(op, err)
		}
	}
}

// Register brings a node that muster removed back into the cluster's service: it
// resumes the drain of ours that the node is under, whichever job of muster's
// made it, as Resume does, and with its outcomes and errors. A drain of anybody
// else is a KindConflict. A node that is in service needs nothing.
//
// A node that SLURM does not have is created as a dynamic one, of the client's
// NodeConf, where the API can (v0.0.44); elsewhere that is NotCapable.
func (c *Client) Register(ctx context.Context, name, mark string) (*Change, error) {
	op := "register SLURM node " + name
	before, _, err := c.forWrite(ctx, op, name, mark)
	switch {
	case errors.Is(err, sources.ErrGone):
		return c.create(ctx, op, name)
	case err != nil:
		return nil, err
	}
	owner := mark
	if _, written, _ := before.claim(); before.facts.DrainMark != "" {
		owner = before.facts.DrainMark
	} else if !before.facts.States.Has(facts.SlurmDrain) && written != "" {
		owner = written // of a drain that somebody else ended
	}
	return c.Resume(ctx, name, owner)
}

// create makes a dynamic node that SLURM does not have.
func (c *Client) create(ctx context.Context, op, name string) (*Change, error) {
	version, fault := c.negotiate(ctx, op)
	if fault != nil {
		return nil, fault
	}
	if !capabilitiesOf(version).NodeCreate {
		lack := &NotCapable{Version: version, Need: "way to create the node " + name + ", which SLURM does not have (start its slurmd with -Z, or name it in slurm.conf)", Since: fmt.Sprintf("v0.0.%d", firstCreate)}
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: lack.Error(), Err: lack}
	}
	var writeErr error
	if _, fault := c.call(ctx, op, "POST", "/new/node", map[string]string{"node_conf": "NodeName=" + name + " " + c.nodeConf}); fault != nil {
		writeErr = fault
	}
	after, at, err := c.reread(ctx, op, name, writeErr)
	if err != nil {
		return nil, err
	}
	return &Change{Outcome: Created, Facts: after.facts, At: at}, nil
}
