package netbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// ErrToken says that NetBox does not accept the token, as against one that may
// not do what was asked.
var ErrToken = errors.New("the token is not accepted")

// ErrChanged says that the device was changed by somebody else between the
// reading that a write rests on and the write. Nothing was written.
var ErrChanged = errors.New("the device was changed meanwhile")

// request is one request to NetBox.
type request struct {
	method  string
	url     string
	body    []byte // JSON, nil for none
	ifMatch string
}

// answer is what came back of one request.
type answer struct {
	at     time.Time // before the request
	status int
	header http.Header
	body   []byte
}

// call makes one request. A usable answer (2xx, JSON) has a nil error; else the
// answer is given besides the error if there was one. A refused token is read
// anew once.
func (c *Client) call(ctx context.Context, op string, r request) (*answer, *sources.Error) {
	a, used, fault := c.send(ctx, op, r)
	if fault != nil && errors.Is(fault, ErrToken) && c.token.Renewed(used) {
		a, _, fault = c.send(ctx, op, r)
	}
	return a, fault
}

// send makes one request and judges the answer; used is the token it carried.
func (c *Client) send(ctx context.Context, op string, r request) (a *answer, used string, fault *sources.Error) {
	used, err := c.token.Current()
	if err != nil {
		return nil, "", &sources.Error{Kind: sources.KindForbidden, Op: op, Message: err.Error(), Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, nil)
	if err != nil {
		return nil, used, &sources.Error{Kind: sources.KindRefused, Op: op, Err: err}
	}
	if r.body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
		req.Header.Set("Content-Type", "application/json")
	}
	if r.ifMatch != "" {
		req.Header.Set("If-Match", r.ifMatch)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", authorization(used))
	a = &answer{at: c.clock()}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, used, sources.Failure(op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a.status, a.header = resp.StatusCode, resp.Header
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, used, sources.Failure(op, err)
	}
	c.heard(a.header)
	return a, used, a.judge(op, c.clock())
}

// json reports a body that is a JSON object: NetBox's own, not a page of it or
// of a proxy.
func (a *answer) json() bool {
	return bytes.HasPrefix(bytes.TrimLeft(a.body, " \t\r\n"), []byte("{")) && json.Valid(a.body)
}

// detail gives what NetBox says under "detail", "" for nothing.
func (a *answer) detail() string {
	var d struct {
		Detail json.RawMessage `json:"detail"`
	}
	var text string
	if json.Unmarshal(a.body, &d) != nil || json.Unmarshal(d.Detail, &text) != nil {
		return ""
	}
	return text
}

// judge gives nil for a usable answer. Every failed authentication is a 403,
// like a permission that is missing: only the text tells them apart.
func (a *answer) judge(op string, now time.Time) *sources.Error {
	ok := a.status >= 200 && a.status < 300
	if ok && a.json() {
		return nil
	}
	e := &sources.Error{Kind: sources.KindTransient, Op: op, Message: a.message(), RetryAfter: sources.RetryAfter(a.header, now)}
	detail := a.detail()
	switch {
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden && detail != "":
		e.Kind = sources.KindForbidden
		if strings.Contains(detail, "permission") {
			e.Message += ": the token's user lacks the permission, or the token may only read"
		} else {
			e.Err = ErrToken
			e.Message += ": check the token, whether it has expired, and from where it may be used"
		}
	case a.status == http.StatusNotFound && detail != "":
		e.Kind = sources.KindMissing
	case a.status == http.StatusPreconditionFailed:
		e.Kind, e.Err = sources.KindConflict, ErrChanged
	case a.status == http.StatusConflict:
		e.Kind = sources.KindConflict
	case a.status == http.StatusBadRequest || a.status == http.StatusMethodNotAllowed || a.status == http.StatusNotAcceptable ||
		a.status == http.StatusUnsupportedMediaType || a.status >= 300 && a.status < 400:
		e.Kind = sources.KindRefused
	}
	return e
}

func (a *answer) message() string {
	text := fmt.Sprintf("HTTP %d", a.status)
	switch {
	case len(bytes.TrimSpace(a.body)) == 0:
		return text + " without a body"
	case !a.json():
		kind := a.header.Get("Content-Type")
		if kind == "" {
			kind = "a body"
		}
		return text + " with " + sources.CleanText(kind, 64) + " in place of NetBox's JSON: check the url, and what stands before NetBox"
	}
	if detail := a.detail(); detail != "" {
		return text + "; " + sources.CleanText(detail, 512)
	}
	return text + "; " + complaints(a.body)
}

// complaints flattens what NetBox finds wrong with a request: an object of
// lists of texts by field, or {"error", "exception"} of a failure.
func complaints(body []byte) string {
	var fields map[string]any
	if json.Unmarshal(body, &fields) != nil {
		return sources.CleanText(string(body), 256)
	}
	var parts []string
	for field, value := range fields {
		one := fmt.Sprint(value)
		if list, ok := value.([]any); ok && len(list) == 1 {
			one = fmt.Sprint(list[0])
		}
		if field != "__all__" {
			one = field + ": " + one
		}
		parts = append(parts, one)
	}
	slices.Sort(parts)
	return sources.CleanText(strings.Join(parts, "; "), 512)
}

// path gives the address of something below /api/.
func (c *Client) path(below string, query url.Values) string {
	u := *c.base
	u.Path = strings.TrimRight(u.Path, "/") + "/api/" + below
	u.RawPath = ""
	u.RawQuery = query.Encode()
	return u.String()
}

// onward checks the address that NetBox gives for the next page: it is followed
// as it is, but with our token to our NetBox only.
func (c *Client) onward(next string) error {
	u, err := url.Parse(next)
	if err != nil {
		return fmt.Errorf("the address of the next page, %q, cannot be read", sources.CleanText(next, 200))
	}
	if u.Scheme != c.base.Scheme || !strings.EqualFold(u.Hostname(), c.base.Hostname()) || portOf(u) != portOf(c.base) || u.User != nil {
		return fmt.Errorf("NetBox gives the next page at %s://%s, which is not %s://%s: let what stands before NetBox pass Host and X-Forwarded-Proto on, or name NetBox in the site as it names itself",
			sources.CleanText(u.Scheme, 16), sources.CleanText(u.Host, 200), c.base.Scheme, c.base.Host)
	}
	return nil
}

func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
