package ironic

import (
	"context"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// deed is a write that makes or removes a thing, where change alters a node
// that stays. It too can be asked for again at any time.
type deed struct {
	op string
	// done looks whether it is as wanted; an error refuses the deed.
	done func(ctx context.Context) (bool, error)
	send func(ctx context.Context, sc *gophercloud.ServiceClient) error
}

// perform looks, sends unless it is as wanted already, waits while a node is
// locked, and looks again: an answer that was lost may have been a yes, and a
// refusal may mean that it is as wanted.
func (c *Client) perform(ctx context.Context, d deed) error {
	for waited := time.Duration(0); ; {
		if done, err := d.done(ctx); err != nil || done {
			return err
		}
		sent := c.request(ctx, d.op, d.send)
		if sent != nil && sources.KindOf(sent) == sources.KindLocked && waited < c.config.LockBudget {
			pause := max(2*c.config.Poll, retryAfter(sent))
			waited += pause
			if err := c.config.HTTP.Wait(ctx, pause); err != nil {
				return sources.Failure(d.op, err)
			}
			continue
		}
		return c.performed(ctx, d, sent)
	}
}

// performed looks after a deed was sent; sent is what sending gave.
func (c *Client) performed(ctx context.Context, d deed, sent error) error {
	patience := time.Duration(0)
	if sent != nil && sources.KindOf(sent) == sources.KindTransient {
		patience = lostAnswer
	}
	for waited := time.Duration(0); ; waited += c.config.Poll {
		done, err := d.done(ctx)
		switch kind := sources.KindOf(err); {
		case err == nil && done:
			return nil
		case err != nil && kind != sources.KindTransient && kind != sources.KindOpen:
			return err
		case waited >= patience:
			return unverified(d.op, sent, err, nil)
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return sources.Failure(d.op, err)
		}
	}
}
