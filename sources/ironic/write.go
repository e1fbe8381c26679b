package ironic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// lostAnswer is how long a write whose answer was lost may still show its
// effect: the request may be on its way to the conductor.
const lostAnswer = 10 * time.Second

// change is one write, written so that it can be asked for again at any time.
type change struct {
	op string
	// done reports that the node is as wanted; an error refuses the change.
	done func(o *observation) (bool, error)
	send func(ctx context.Context, sc *gophercloud.ServiceClient, o *observation) error
	// look judges an observation made after sending; accepted: Ironic said yes.
	// nil: landed once done.
	look func(before, now *observation, accepted bool) effect
	// patience is how long an accepted change may take to land, 0 for one look.
	patience time.Duration
}

// effect is what an observation shows of a change that was sent.
type effect int

const (
	nothing  effect = iota // not yet, or never
	underway               // Ironic is at it
	landed
	failed // Ironic is through with it and it did not work
)

// apply reads the node, sends the change unless it is as wanted already, waits
// while the node is locked, and gives an observation made after the write.
func (c *Client) apply(ctx context.Context, ref string, w change) (*sources.Record, error) {
	for waited := time.Duration(0); ; {
		before, err := c.observe(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.op, err)
		}
		done, err := w.done(before)
		if err != nil {
			return nil, err
		}
		if done {
			return before.record, nil
		}
		err = c.send(ctx, w, before)
		if kind := sources.KindOf(err); err != nil && kind == sources.KindLocked && waited < c.config.LockBudget {
			pause := max(2*c.config.Poll, retryAfter(err))
			waited += pause
			if err := c.config.HTTP.Wait(ctx, pause); err != nil {
				return nil, sources.Failure(w.op, err)
			}
			continue
		}
		return c.verify(ctx, w, before, err)
	}
}

func (c *Client) send(ctx context.Context, w change, before *observation) error {
	return c.request(ctx, w.op, func(ctx context.Context, sc *gophercloud.ServiceClient) error { return w.send(ctx, sc, before) })
}

// request sends one write in the agreed session and gives its error a meaning.
func (c *Client) request(ctx context.Context, op string, send func(ctx context.Context, sc *gophercloud.ServiceClient) error) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	if err := send(ctx, s.sc); err != nil {
		classified := c.classify(op, err)
		if lostSession(classified) {
			c.forget(s)
		}
		return classified
	}
	return nil
}

func retryAfter(err error) time.Duration {
	var classified *sources.Error
	if errors.As(err, &classified) {
		return min(classified.RetryAfter, 30*time.Second)
	}
	return 0
}

// verify looks at the node after a write: "accepted" is not "done", an answer
// that was lost may have been a yes, and a refusal may mean that the node is
// as wanted already. sent is what sending gave.
func (c *Client) verify(ctx context.Context, w change, before *observation, sent error) (*sources.Record, error) {
	patience, look := w.patience, w.look
	done := func(_, now *observation, _ bool) effect {
		if ok, err := w.done(now); err == nil && ok {
			return landed
		}
		return nothing
	}
	switch {
	case sent != nil && sources.KindOf(sent) != sources.KindTransient:
		patience, look = 0, done
	case sent != nil:
		patience = lostAnswer
	}
	if look == nil {
		look = done
	}
	for waited := time.Duration(0); ; waited += c.config.Poll {
		now, err := c.observe(ctx, before.record.Ref)
		shown := nothing
		if err == nil {
			shown = look(before, now, sent == nil)
		}
		switch {
		case shown == landed:
			return now.record, nil
		case shown == failed:
			return nil, &sources.Error{Kind: sources.KindTransient, Op: w.op, Message: ErrGaveUp.Error() + lastError(now), Err: ErrGaveUp}
		case shown == underway:
			patience = max(patience, w.patience)
		}
		if waited >= patience {
			return nil, unverified(w.op, sent, err, now)
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return nil, sources.Failure(w.op, err)
		}
	}
}

func unverified(op string, sent, read error, last *observation) error {
	switch {
	case sent != nil:
		return sent
	case read != nil:
		return fmt.Errorf("%s: it was accepted, but the node cannot be read: %w", op, read)
	}
	return refused(sources.KindTransient, op, "it was accepted, but the node does not show it%s", lastError(last))
}

func lastError(o *observation) string {
	if o == nil || !o.facts.LastError.Known {
		return ""
	}
	return "; its last error: " + o.facts.LastError.Value
}

func refused(kind sources.Kind, op, format string, args ...any) error {
	return &sources.Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...)}
}

// unread refuses a write that would be decided by a fact nobody could read.
func unread(op, fact string) error {
	return refused(sources.KindTransient, op, "the node's %s could not be read", fact)
}
