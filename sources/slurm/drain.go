package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Outcome is how a node was left.
type Outcome string

// The outcomes of Drain, Resume, Remove and Register.
const (
	DrainedByUs    Outcome = "drained_by_us"    // under our mark, now or from an earlier try
	DrainedByOther Outcome = "drained_by_other" // a drain that is not this job's stands: left as it was
	Resumed        Outcome = "resumed"          // in service again
	Undrained      Outcome = "undrained"        // our drain has ended, but the node is not in service: it is down or failing, or its slurmd is silent
	NotDrained     Outcome = "not_drained"      // there was nothing to resume
	Draining       Outcome = "draining"         // under our mark, and work is left: to be removed, ask again
	Removed        Outcome = "removed"          // gets no work any more: drained by us with none left, or no node of the cluster
	Created        Outcome = "created"          // a dynamic node, made anew
)

// Change is what one of them left behind, as read after the last write. Facts
// say nothing of a node that is gone.
type Change struct {
	Outcome Outcome
	Facts   facts.Slurm
	At      time.Time // the instant before that reading
}

// update is the part of a node that we write.
type update struct {
	State   []string `json:"state,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Extra   *string  `json:"extra,omitempty"`
	Comment *string  `json:"comment,omitempty"`
}

// Drain keeps new work off a node; work that runs goes on (facts.Complete
// tells when it has left). mark is muster:JOB. A node that is drained already
// counts as drained and is not touched: nobody's reason is overwritten. It may
// be called again with the same mark until it succeeds. Called again while the
// drain stands it refreshes what tells it from somebody else's (see drainMark):
// who has a node rebooted calls it when the work has left, and while the node is
// away.
//
// Errors: KindMissing (no such node), KindRefused with NotCapable (an API
// without node writes), KindForbidden, KindConflict, KindTransient.
func (c *Client) Drain(ctx context.Context, name, mark, reason string) (*Change, error) {
	op := "drain SLURM node " + name
	before, at, err := c.forWrite(ctx, op, name, mark)
	if err != nil {
		return nil, err
	}
	if !before.facts.States.Has(facts.SlurmDrain) {
		u := update{State: []string{"DRAIN"}, Reason: reasonOf(mark, reason)}
		if err := before.marked(&u, mark, stamp{}); err != nil {
			return nil, &sources.Error{Kind: sources.KindConflict, Op: op, Message: err.Error()}
		}
		writeErr := c.write(ctx, op, name, u)
		// A refused update may be half applied, a lost answer may have taken
		// effect: what stands is what is read.
		before, at, err = c.reread(ctx, op, name, writeErr)
		if err != nil {
			return nil, err
		}
		if !before.facts.States.Has(facts.SlurmDrain) {
			return nil, notShown(op, "drain", &before.facts, writeErr)
		}
	}
	reasonMark, written, read := before.claim()
	now := before.current()
	switch {
	case before.facts.DrainMark == mark && (read == now || now.rested == 0):
		return &Change{Outcome: DrainedByUs, Facts: before.facts, At: at}, nil
	case before.facts.DrainMark == mark:
	case reasonMark != mark || written != mark || read != stamp{} || before.facts.ReasonChangedAt.IsZero():
		return &Change{Outcome: DrainedByOther, Facts: before.facts, At: at}, nil
	}
	return c.stamp(ctx, op, name, mark, before)
}

// stamp records beside our mark what was read of the drain, and verifies that
// the drain is still ours.
func (c *Client) stamp(ctx context.Context, op, name, mark string, n node) (*Change, error) {
	var u update
	if err := n.marked(&u, mark, n.current()); err != nil {
		return nil, &sources.Error{Kind: sources.KindConflict, Op: op, Message: err.Error()}
	}
	writeErr := c.write(ctx, op, name, u)
	after, at, err := c.reread(ctx, op, name, writeErr)
	if err != nil {
		return nil, err
	}
	switch {
	case after.facts.DrainMark == mark:
		return &Change{Outcome: DrainedByUs, Facts: after.facts, At: at}, nil
	case writeErr != nil:
		return nil, writeErr
	case after.facts.States.Has(facts.SlurmDrain):
		return &Change{Outcome: DrainedByOther, Facts: after.facts, At: at}, nil
	}
	return nil, notShown(op, "drain", &after.facts, nil)
}

// broken are the states, besides a drain, of a node that gets no work.
const broken = facts.SlurmDown | facts.SlurmError | facts.SlurmFail

// Resume ends our drain of a node, and only ours: a drain without this mark,
// or one that somebody repeated since, stays and is a KindConflict, with the
// Change beside the error. A node that is not drained needs nothing. Our mark
// is cleared.
//
// A node that SLURM gave up meanwhile is brought back into service if its slurmd
// answers again; if not, or if it is failing, it loses our drain and nothing
// else. SLURM asks the slurmd of a resumed node anew, which takes it about a
// second: that is waited for, for a few seconds at most.
func (c *Client) Resume(ctx context.Context, name, mark string) (*Change, error) {
	op := "resume SLURM node " + name
	before, at, err := c.forWrite(ctx, op, name, mark)
	if err != nil {
		return nil, err
	}
	_, written, _ := before.claim()
	drained := before.facts.States.Has(facts.SlurmDrain)
	switch {
	case drained && before.facts.DrainMark != mark:
		return &Change{Outcome: DrainedByOther, Facts: before.facts, At: at}, &sources.Error{
			Kind: sources.KindConflict, Op: op,
			Message: fmt.Sprintf("the drain is not %s's: its reason is %q, by %s", mark, before.facts.Reason.Value, first(before.facts.ReasonSetBy, "nobody named")),
		}
	case !drained && written != mark:
		return &Change{Outcome: NotDrained, Facts: before.facts, At: at}, nil
	}
	var u update
	if drained {
		u.State = wayBack(before.facts.States)
	}
	before.cleared(&u)
	writeErr := c.write(ctx, op, name, u)
	after, at, err := c.answered(ctx, op, name, u, writeErr)
	if err != nil {
		return nil, err
	}
	if drained && after.facts.States.Has(facts.SlurmDrain) {
		return nil, notShown(op, "resume", &after.facts, writeErr)
	}
	if _, written, _ := after.claim(); written == mark {
		return nil, notShown(op, "removal of our mark", &after.facts, writeErr)
	}
	outcome := Resumed
	switch {
	case !drained:
		outcome = NotDrained
	case after.facts.States&(broken|facts.SlurmNotResponding) != 0:
		outcome = Undrained
	}
	return &Change{Outcome: outcome, Facts: after.facts, At: at}, nil
}

// wayBack is what ends our drain of a node in these states: RESUME would also
// clear a failure, which others set, and take a silent node for one in service.
func wayBack(states facts.SlurmStates) []string {
	if states&(facts.SlurmError|facts.SlurmFail) != 0 || states.Has(facts.SlurmDown) && states.Has(facts.SlurmNotResponding) {
		return []string{"UNDRAIN"}
	}
	return []string{"RESUME"}
}

// How long the slurmd of a resumed node is waited for.
const (
	asked     = 250 * time.Millisecond
	askedMost = 20 // times
)

// answered reads a node after an update. After a RESUME SLURM shows it as not
// responding until its slurmd answered, or for good if it does not: what is read
// last is given.
func (c *Client) answered(ctx context.Context, op, name string, u update, writeErr error) (node, time.Time, error) {
	after, at, err := c.reread(ctx, op, name, writeErr)
	for range askedMost {
		if err != nil || !slices.Equal(u.State, []string{"RESUME"}) || after.facts.States&(facts.SlurmNotResponding|facts.SlurmDrain) != facts.SlurmNotResponding {
			break
		}
		if c.wait(ctx, asked) != nil {
			break
		}
		after, at, err = c.reread(ctx, op, name, writeErr)
	}
	return after, at, err
}

// forWrite checks what a write needs and reads the node as it is before it.
func (c *Client) forWrite(ctx context.Context, op, name, mark string) (node, time.Time, error) {
	if !markForm.MatchString(mark) {
		return node{}, time.Time{}, &sources.Error{Kind: sources.KindRefused, Op: op, Message: fmt.Sprintf("%q is not a mark of the form muster:JOB", mark)}
	}
	if err := validName(name); err != nil {
		return node{}, time.Time{}, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	version, fault := c.negotiate(ctx, op)
	if fault != nil {
		return node{}, time.Time{}, fault
	}
	if can := capabilitiesOf(version); !can.NodeWrites {
		lack := &NotCapable{Version: version, Need: "node writes"}
		return node{}, time.Time{}, &sources.Error{Kind: sources.KindRefused, Op: op, Message: lack.Error(), Err: lack}
	}
	return c.readable(ctx, op, name)
}

// readable reads a node whose states and reason can be judged.
func (c *Client) readable(ctx context.Context, op, name string) (node, time.Time, error) {
	n, at, err := c.read(ctx, op, name)
	if err != nil {
		return node{}, at, err
	}
	for _, fact := range []string{"states", "reason", "reason_changed_at"} {
		if why := n.facts.Unreadable[fact]; why != "" {
			return node{}, at, &sources.Error{Kind: sources.KindTransient, Op: op, Message: "the node's " + fact + " cannot be read: " + why}
		}
	}
	return n, at, nil
}

// reread reads a node after a write; if that fails, the write's error is told
// first.
func (c *Client) reread(ctx context.Context, op, name string, writeErr error) (node, time.Time, error) {
	n, at, err := c.readable(ctx, op, name)
	if err != nil && writeErr != nil {
		return node{}, at, writeErr
	}
	return n, at, err
}

func (c *Client) write(ctx context.Context, op, name string, u update) error {
	if _, fault := c.call(ctx, op, "POST", "/node/"+name, u); fault != nil {
		return fault
	}
	return nil
}

// notShown tells that a write is not to be seen in the node.
func notShown(op, what string, f *facts.Slurm, writeErr error) error {
	if writeErr != nil {
		return writeErr
	}
	return &sources.Error{
		Kind: sources.KindTransient, Op: op,
		Message: fmt.Sprintf("SLURM accepted the %s but shows the node as %s with the reason %q", what, strings.Join(f.States.Tokens(), "+"), f.Reason.Value),
	}
}

// maxReason leaves room for what SLURM adds.
const maxReason = maxText - len(silence)

// reasonOf puts the mark before the reason that people read.
func reasonOf(mark, reason string) string {
	reason = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, reason)), " ")
	return strings.TrimSpace(mark + " " + sources.CleanText(reason, maxReason-len(mark)-1))
}
