package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// lostAnswer is how long a write whose answer was lost may still show its
// effect.
const lostAnswer = 10 * time.Second

// Provider reads one resource provider. ErrGone: Placement has none of that uuid.
func (c *Client) Provider(ctx context.Context, uuid string) (*Provider, error) {
	const op = "read a resource provider"
	body, err := c.readRef(ctx, op, uuid, "resource_providers", uuid)
	if err != nil {
		return nil, err
	}
	p, ok := decodeProvider(body)
	if !ok || !strings.EqualFold(p.UUID, uuid) {
		return nil, foreign(op, body)
	}
	return p, nil
}

// Traits reads the traits of a provider, as Placement orders them.
func (c *Client) Traits(ctx context.Context, uuid string) ([]string, error) {
	const op = "read the traits of a resource provider"
	body, err := c.readRef(ctx, op, uuid, "resource_providers", uuid, "traits")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Traits []string `json:"traits"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Traits == nil {
		return nil, foreign(op, body)
	}
	return answer.Traits, nil
}

// Allocations reads what consumers hold of a provider, by consumer.
func (c *Client) Allocations(ctx context.Context, provider string) ([]Allocation, error) {
	const op = "read the allocations of a resource provider"
	body, err := c.readRef(ctx, op, provider, "resource_providers", provider, "allocations")
	if err != nil {
		return nil, err
	}
	return allocations(op, body, func(consumer string) Allocation { return Allocation{Consumer: consumer, Provider: provider} })
}

// Held reads what a consumer holds of providers; nothing for one that Placement
// does not know.
func (c *Client) Held(ctx context.Context, consumer string) ([]Allocation, error) {
	const op = "read the allocations of a consumer"
	body, err := c.readRef(ctx, op, consumer, "allocations", consumer)
	if err != nil {
		return nil, err
	}
	return allocations(op, body, func(provider string) Allocation { return Allocation{Consumer: consumer, Provider: provider} })
}

func allocations(op string, body []byte, by func(string) Allocation) ([]Allocation, error) {
	held, err := decodeAllocations(op, body, by)
	if errors.Is(err, errNoAllocations) {
		return nil, foreign(op, body)
	}
	return held, err
}

func (c *Client) readRef(ctx context.Context, op, uuid string, path ...string) ([]byte, error) {
	if !validRef(uuid) {
		return nil, refused(sources.KindRefused, op, "%q is no uuid", sources.CleanText(uuid, 64))
	}
	body, err := c.call(ctx, http.MethodGet, op, path...)
	return body, keystone.Gone(err)
}

// DeleteAllocations ends everything that a consumer holds, of whichever
// provider, and reads that it is so. Nothing held is success.
func (c *Client) DeleteAllocations(ctx context.Context, consumer string) error {
	const op = "delete the allocations of a consumer"
	return c.remove(ctx, op, []string{"allocations", consumer}, func(ctx context.Context) (bool, error) {
		held, err := c.Held(ctx, consumer)
		return len(held) == 0, err
	})
}

// DeleteProvider deletes a resource provider and reads it gone. One that is gone
// is success; one of which something is held is a conflict that names the
// consumers.
func (c *Client) DeleteProvider(ctx context.Context, uuid string) error {
	const op = "delete a resource provider"
	err := c.remove(ctx, op, []string{"resource_providers", uuid}, func(ctx context.Context) (bool, error) {
		_, err := c.Provider(ctx, uuid)
		if errors.Is(err, sources.ErrGone) {
			return true, nil
		}
		return false, err
	})
	if sources.KindOf(err) != sources.KindConflict {
		return err
	}
	held, reading := c.Allocations(ctx, uuid)
	if reading != nil || len(held) == 0 {
		return err
	}
	consumers := make([]string, len(held))
	for i := range held {
		consumers[i] = held[i].Consumer
	}
	return refused(sources.KindConflict, op, "it is in use by %s", sources.CleanText(strings.Join(consumers, ", "), 500))
}

// remove deletes what is there and reads that it is gone: "accepted" is not
// "done", and an answer that was lost may have been a yes.
func (c *Client) remove(ctx context.Context, op string, path []string, gone func(context.Context) (bool, error)) error {
	if done, err := gone(ctx); err != nil || done {
		return wrapped(op, err)
	}
	_, sent := c.call(ctx, http.MethodDelete, op, path...)
	patience := time.Duration(0)
	switch kind := sources.KindOf(sent); {
	case sent == nil, kind == sources.KindMissing:
		sent = nil
	case kind == sources.KindTransient:
		patience = lostAnswer
	default:
		return sent
	}
	for waited := time.Duration(0); ; waited += c.config.Poll {
		done, err := gone(ctx)
		switch {
		case done && err == nil:
			return nil
		case waited < patience:
		case sent != nil:
			return sent
		case err != nil:
			return fmt.Errorf("%s: it was accepted, but cannot be read: %w", op, err)
		default:
			return refused(sources.KindTransient, op, "it was accepted, but it is still there")
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return sources.Failure(op, err)
		}
	}
}

func wrapped(op string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
