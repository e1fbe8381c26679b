package client

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
	"strings"
	"time"
)

const (
	timeout    = 60 * time.Second // of one request
	answerMost = 256 << 20        // bytes
	pagesMost  = 100_000
	apiRoot    = "/api/v1"
)

// ErrUnreachable says that the server did not answer.
var ErrUnreachable = errors.New("the server cannot be reached")

// AnswerError is a problem that the server answered with.
type AnswerError struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Pointer   string `json:"pointer"`
		Parameter string `json:"parameter"`
		Detail    string `json:"detail"`
	} `json:"errors"`
	RequestID string `json:"request_id"`

	Eligibility json.RawMessage `json:"eligibility"` // of a submission that is refused
}

func (e *AnswerError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d %s)", e.Detail, e.Status, e.Code)
	for _, one := range e.Errors {
		fmt.Fprintf(&b, "\n  %s%s: %s", one.Parameter, one.Pointer, one.Detail)
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		fmt.Fprintf(&b, "\n  request_id %s", e.RequestID)
	}
	return b.String()
}

// Refused reports whether the server said no, not that it failed.
func (e *AnswerError) Refused() bool { return e.Status < http.StatusInternalServerError }

// Client asks one server.
type Client struct {
	base   string
	token  string
	key    string // of posts that are made once
	http   *http.Client
	stream *http.Client // without a time-out
}

// New makes a client. Redirects are not followed: a token goes to the server
// that was named and nowhere else.
func New(c Credentials) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no address of a server: it begins with http:// or https://", c.URL)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		base: strings.TrimRight(c.URL, "/"), token: c.Token,
		http: &http.Client{Timeout: timeout, CheckRedirect: stay}, stream: &http.Client{CheckRedirect: stay},
	}, nil
}

// Get reads a path below /api/v1 into a value.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, apiRoot+path, nil, into)
}

// Post sends a body to a path below /api/v1 and reads the answer into a value.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	return c.do(ctx, http.MethodPost, apiRoot+path, data, into)
}

// Put is Post by another method.
func (c *Client) Put(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	return c.do(ctx, http.MethodPut, apiRoot+path, data, into)
}

// Delete deletes what is at a path below /api/v1.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, apiRoot+path, nil, nil)
}

// List reads every page of a list; at most limit items where that is positive.
func List[T any](ctx context.Context, c *Client, path string, query url.Values, limit int) ([]T, error) {
	query.Set("limit", "1000")
	if limit > 0 && limit < 1000 {
		query.Set("limit", strconv.Itoa(limit))
	}
	next := apiRoot + path + "?" + query.Encode()
	items := []T{}
	for range pagesMost {
		var page struct {
			Items []T     `json:"items"`
			Next  *string `json:"next"`
		}
		if err := c.do(ctx, http.MethodGet, next, nil, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if limit > 0 && len(items) >= limit {
			return items[:limit], nil
		}
		if page.Next == nil {
			return items, nil
		}
		if !strings.HasPrefix(*page.Next, "/") {
			return nil, fmt.Errorf("ask the server: the next page %q is not one of its own", *page.Next)
		}
		next = *page.Next
	}
	return nil, fmt.Errorf("ask the server: more than %d pages", pagesMost)
}

// All reads a list that has one page only.
func All[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	var page struct {
		Items []T `json:"items"`
	}
	err := c.do(ctx, http.MethodGet, apiRoot+path, nil, &page)
	return page.Items, err
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if body != nil && c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	return r, nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	r, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w at %s: is it running? (%w)", ErrUnreachable, c.base, err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, answerMost))
	if err != nil {
		return fmt.Errorf("%w at %s: its answer broke off: %w", ErrUnreachable, c.base, err)
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return problem(c.base+path, answer, data)
	}
	if answer.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read the answer of %s: %w: is this a muster of the same version?", c.base, err)
	}
	return nil
}

// problem reads an answer that is none.
func problem(address string, answer *http.Response, data []byte) error {
	p := &AnswerError{}
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		return fmt.Errorf("%s answered %s and no problem of muster's: is there a muster at this address?", address, answer.Status)
	}
	p.Status = answer.StatusCode
	return p
}
