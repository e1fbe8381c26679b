package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhq/muster/sources"
)

// bodyLimit bounds an answer, in bytes: the contracts give one small object.
const bodyLimit = 1 << 20

// Config says where a service is and how it knows us.
type Config struct {
	Name      string // for errors: "the DHCP service"
	URL       string // http(s)://HOST[:PORT][/PATH], without /v1
	Token     string // of the Authorization header; empty with no TokenFile: none is sent
	TokenFile string // in place of Token; read again whenever it changes
	Mute      bool   // nothing that the service says goes into an error but its code: its answers hold secrets
	HTTP      sources.Options
}

// Client is one service. It may be used by many goroutines.
type Client struct {
	name  string
	base  string
	token *sources.Token
	mute  bool
	http  *http.Client
	clock sources.Clock
}

// New gives a client. Nothing is asked of the service yet: it may be down.
func New(c Config, clock sources.Clock) (*Client, error) {
	op := "configure " + c.Name
	if clock == nil {
		return nil, errors.New(op + ": a clock is needed")
	}
	base, err := url.Parse(strings.TrimRight(c.URL, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.User != nil {
		return nil, errors.New(op + ": its url is not http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")
	}
	options := c.HTTP
	options.Clock = clock
	if options.BodyLimit == 0 {
		options.BodyLimit = bodyLimit
	}
	client, err := sources.NewClient(options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return &Client{
		name: c.Name, base: base.String(), token: &sources.Token{Of: strings.TrimPrefix(c.Name, "the "), Value: c.Token, File: c.TokenFile}, mute: c.Mute, http: client, clock: clock,
	}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Request is one request.
type Request struct {
	Op     string // for errors
	Method string
	Path   []string // below /v1/, unescaped
	Body   any      // nil: none
}

// Do makes a request and reads its answer into into, which may be nil. A token
// that is refused is read anew once. Its errors are of *sources.Error; missing
// wraps sources.ErrGone and is said only where the service itself says so.
func (c *Client) Do(ctx context.Context, r Request, into any) error {
	used, fault := c.send(ctx, r, into)
	if fault != nil && fault.Kind == sources.KindForbidden && c.token.Renewed(used) {
		_, fault = c.send(ctx, r, into)
	}
	if fault != nil {
		return fault
	}
	return nil
}

func (c *Client) send(ctx context.Context, r Request, into any) (used string, fault *sources.Error) {
	used, err := c.token.Current()
	if err != nil {
		return "", &sources.Error{Kind: sources.KindForbidden, Op: r.Op, Message: err.Error(), Err: err}
	}
	req, err := c.request(ctx, r)
	if err != nil {
		return used, &sources.Error{Kind: sources.KindRefused, Op: r.Op, Message: err.Error(), Err: err}
	}
	if used != "" {
		req.Header.Set("Authorization", "Bearer "+used)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return used, sources.Failure(r.Op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return used, sources.Failure(r.Op, err)
	}
	if fault := c.judge(r.Op, resp, body, used); fault != nil {
		return used, fault
	}
	if into == nil {
		return used, nil
	}
	if json.Unmarshal(body, into) != nil { // its text may quote what it read
		return used, c.foreign(r.Op, resp)
	}
	return used, nil
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	at := c.base + "/v1"
	for _, segment := range r.Path {
		if segment == "" || segment == "." || segment == ".." {
			return nil, fmt.Errorf("%q can be no name of a resource", segment)
		}
		at += "/" + url.PathEscape(segment)
	}
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, errors.New("the request cannot be written as JSON")
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, at, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// Verified answers whether a write is done, after its request and the reading
// that followed it: what was read decides where it could be read, else what
// became of the request.
func Verified(op string, written error, read error, is bool, seen string) error {
	switch {
	case read == nil && is:
		return nil // an answer that was lost took effect, too
	case written != nil:
		return written
	case read != nil:
		return during(op, read)
	}
	return &sources.Error{Kind: sources.KindRefused, Op: op, Message: "the service took it, and a later reading does not show it: " + seen}
}

func during(op string, err error) error {
	var e *sources.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", op, err)
	}
	kind := e.Kind
	if kind == sources.KindMissing { // it was written a moment ago
		kind = sources.KindRefused
	}
	return &sources.Error{Kind: kind, Op: op, Message: "it was written, and cannot be read back: " + e.Message, RetryAfter: e.RetryAfter}
}

// Unsettled reports an error of a write after which the thing may be written or
// not.
func Unsettled(err error) bool {
	var e *sources.Error
	return errors.As(err, &e) && e.Kind == sources.KindTransient
}
