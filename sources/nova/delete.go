package nova

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/sources"
)

// lostAnswer is how long a deletion whose answer was lost may still show itself.
const lostAnswer = 30 * time.Second

// Delete asks Nova to delete a server and comes back when Nova has begun, or the
// server is gone. WaitGone waits for the end.
func (c *Client) Delete(ctx context.Context, uuid string) error {
	const op = "delete a server of Nova"
	if under, err := c.leaving(ctx, uuid); err != nil || under {
		return wrapped(op, err)
	}
	_, sent := c.api.Call(ctx, http.MethodDelete, op, nil, "servers", uuid)
	patience := 2 * c.config.Poll // the answer comes before the server shows it
	switch kind := sources.KindOf(sent); {
	case sent == nil:
	case kind == sources.KindMissing:
		sent = nil
	case kind == sources.KindTransient:
		patience = lostAnswer
	default:
		return sent
	}
	for waited := time.Duration(0); ; waited += c.config.Poll {
		under, err := c.leaving(ctx, uuid)
		switch {
		case under && err == nil:
			return nil
		case waited < patience:
		case sent != nil:
			return sent
		case err != nil:
			return fmt.Errorf("%s: it was accepted, but the server cannot be read: %w", op, err)
		default:
			return refused(sources.KindTransient, op, "it was accepted, but the server does not show it")
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return sources.Failure(op, err)
		}
	}
}

// leaving tells whether a server is gone or on its way out.
func (c *Client) leaving(ctx context.Context, uuid string) (bool, error) {
	s, err := c.Server(ctx, uuid)
	switch {
	case errors.Is(err, sources.ErrGone):
		return true, nil
	case err != nil:
		return false, err
	}
	return s.Ended() || s.TaskState == "deleting" || s.TaskState == "soft-deleting", nil
}

// WaitGone waits until Nova says that it has no such server. One that came to
// rest in another state was not deleted: a conflict that tells its fault.
func (c *Client) WaitGone(ctx context.Context, uuid string, patience time.Duration) error {
	const op = "wait until a server of Nova is gone"
	state := "it could not be read"
	for waited := time.Duration(0); ; waited += c.config.Poll {
		s, err := c.Server(ctx, uuid)
		kind := sources.KindOf(err)
		switch {
		case errors.Is(err, sources.ErrGone), err == nil && s.Ended():
			return nil
		case err != nil && kind != sources.KindTransient && kind != sources.KindOpen:
			return wrapped(op, err)
		case err == nil && s.TaskState == "":
			return refused(sources.KindConflict, op, "it came to rest in %s%s", s.Status, fault(s))
		case err == nil:
			state = "it is still " + s.Status + ", " + s.TaskState + fault(s)
		}
		if waited >= patience {
			return refused(sources.KindTransient, op, "after %s: %s", patience, state)
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return sources.Failure(op, err)
		}
	}
}

func fault(s *Server) string {
	if s.Fault == "" {
		return ""
	}
	return "; its fault: " + s.Fault
}

func wrapped(op string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
