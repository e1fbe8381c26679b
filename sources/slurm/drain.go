package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Outcome is how a node was left.
type Outcome string

// The outcomes of Drain and Resume.
const (
	DrainedByUs    Outcome = "drained_by_us"    // under our mark, now or from an earlier try
	DrainedByOther Outcome = "drained_by_other" // a drain that is not this job's stands: left as it was
	Resumed        Outcome = "resumed"
	NotDrained     Outcome = "not_drained" // there was nothing to resume
)

// Change is what Drain or Resume left behind, as read after the last write.
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
// be called again with the same mark until it succeeds.
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
		if err := before.marked(&u, mark, 0); err != nil {
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
	if owner, ours := Ours(&before.facts); ours && owner == mark {
		return &Change{Outcome: DrainedByUs, Facts: before.facts, At: at}, nil
	}
	reasonMark, written, stamp := claim(&before.facts)
	if reasonMark != mark || written != mark || stamp != 0 || before.facts.ReasonChangedAt.IsZero() {
		return &Change{Outcome: DrainedByOther, Facts: before.facts, At: at}, nil
	}
	return c.stamp(ctx, op, name, mark, before)
}

// stamp records how old the reason is beside our mark, and verifies that the
// drain is still ours.
func (c *Client) stamp(ctx context.Context, op, name, mark string, n node) (*Change, error) {
	var u update
	if err := n.marked(&u, mark, n.facts.ReasonChangedAt.Unix()); err != nil {
		return nil, &sources.Error{Kind: sources.KindConflict, Op: op, Message: err.Error()}
	}
	writeErr := c.write(ctx, op, name, u)
	after, at, err := c.reread(ctx, op, name, writeErr)
	if err != nil {
		return nil, err
	}
	owner, ours := Ours(&after.facts)
	switch {
	case ours && owner == mark:
		return &Change{Outcome: DrainedByUs, Facts: after.facts, At: at}, nil
	case writeErr != nil:
		return nil, writeErr
	case after.facts.States.Has(facts.SlurmDrain):
		return &Change{Outcome: DrainedByOther, Facts: after.facts, At: at}, nil
	}
	return nil, notShown(op, "drain", &after.facts, nil)
}

// Resume ends our drain of a node, and only ours: a drain without this mark,
// or one that somebody repeated since, stays and is a KindConflict, with the
// Change beside the error. A node that is not drained needs nothing. Our mark
// is cleared.
func (c *Client) Resume(ctx context.Context, name, mark string) (*Change, error) {
	op := "resume SLURM node " + name
	before, at, err := c.forWrite(ctx, op, name, mark)
	if err != nil {
		return nil, err
	}
	outcome, u := NotDrained, update{}
	if before.facts.States.Has(facts.SlurmDrain) {
		owner, ours := Ours(&before.facts)
		if !ours || owner != mark {
			return &Change{Outcome: DrainedByOther, Facts: before.facts, At: at}, &sources.Error{
				Kind: sources.KindConflict, Op: op,
				Message: fmt.Sprintf("the drain is not %s's: its reason is %q, by %s", mark, before.facts.Reason.Value, first(before.facts.ReasonSetBy, "nobody named")),
			}
		}
		outcome, u.State = Resumed, []string{"RESUME"}
		if before.facts.States&(facts.SlurmDown|facts.SlurmError|facts.SlurmFail) != 0 {
			u.State = []string{"UNDRAIN"} // RESUME would clear what others set as well
		}
	} else if _, written, _ := claim(&before.facts); written != mark {
		return &Change{Outcome: NotDrained, Facts: before.facts, At: at}, nil
	}
	before.cleared(&u)
	writeErr := c.write(ctx, op, name, u)
	after, at, err := c.reread(ctx, op, name, writeErr)
	if err != nil {
		return nil, err
	}
	if outcome == Resumed && after.facts.States.Has(facts.SlurmDrain) {
		return nil, notShown(op, "resume", &after.facts, writeErr)
	}
	if _, written, _ := claim(&after.facts); written == mark {
		return nil, notShown(op, "removal of our mark", &after.facts, writeErr)
	}
	return &Change{Outcome: outcome, Facts: after.facts, At: at}, nil
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

// reasonOf puts the mark before the reason that people read.
func reasonOf(mark, reason string) string {
	reason = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, reason)), " ")
	return strings.TrimSpace(mark + " " + sources.CleanText(reason, maxText-len(mark)-1))
}
