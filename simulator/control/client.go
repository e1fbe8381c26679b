package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/simulator/faultproxy"
)

// Client commands a running simulator.
type Client struct {
	url, token string
	http       *http.Client
}

const (
	askLimit    = 30 * time.Second
	answerLimit = 64 << 20
)

// ErrUnreachable says that no simulator answers.
var ErrUnreachable = errors.New("the simulator does not answer: is it running?")

// RefusedError is what the simulator answers instead of doing something.
type RefusedError struct {
	Code int
	Text string
}

func (e *RefusedError) Error() string { return e.Text }

// Dial gives a client of the control API at a URL.
func Dial(url, token string) *Client {
	return &Client{url: url, token: token, http: &http.Client{Timeout: askLimit}}
}

// World tells what the fleet is and when it is.
func (c *Client) World(ctx context.Context) (out World, err error) {
	return out, c.ask(ctx, http.MethodGet, "/world", nil, &out)
}

// Effects tells what was done since an effect, of one face or ("") of all.
func (c *Client) Effects(ctx context.Context, since int, face string) (out Effects, err error) {
	query := url.Values{"since": {strconv.Itoa(since)}, "face": {face}}
	return out, c.ask(ctx, http.MethodGet, "/effects?"+query.Encode(), nil, &out)
}

// Advance moves the time on and tells it.
func (c *Client) Advance(ctx context.Context, by time.Duration) (time.Time, error) {
	var out Advance
	err := c.ask(ctx, http.MethodPost, "/advance", Advance{By: by.String()}, &out)
	return out.Now, err
}

// Fault makes a face misbehave, or something become of a machine. It gives the
// fault with its number, 0 for a machine's.
func (c *Client) Fault(ctx context.Context, f Fault) (out Fault, err error) {
	return out, c.ask(ctx, http.MethodPost, "/faults", f, &out)
}

// Faults tells the rules of the faces in force.
func (c *Client) Faults(ctx context.Context) ([]faultproxy.Rule, error) {
	var out Faults
	err := c.ask(ctx, http.MethodGet, "/faults", nil, &out)
	return out.Faults, err
}

// Clear takes the rule of a number away, 0 all, and tells how many that were.
func (c *Client) Clear(ctx context.Context, id int) (int, error) {
	path := "/faults"
	if id != 0 {
		path += "/" + strconv.Itoa(id)
	}
	var out Cleared
	err := c.ask(ctx, http.MethodDelete, path, nil, &out)
	return out.Cleared, err
}

func (c *Client) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := c.http.Do(q)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrUnreachable, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("read the simulator's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		var refused Refusal
		if json.Unmarshal(text, &refused) != nil || refused.Error == "" {
			refused.Error = fmt.Sprintf("the simulator answers %s", answer.Status)
		}
		return &RefusedError{Code: answer.StatusCode, Text: refused.Error}
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the simulator's answer: %w", err)
	}
	return nil
}
