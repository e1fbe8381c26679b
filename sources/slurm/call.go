package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/musterhq/muster/sources"
)

// answer is what came back of one request, errors[] and all.
type answer struct {
	at      time.Time // before the request
	version string
	status  int
	header  http.Header
	kind    string // content type
	body    []byte
	doc     *document // nil when the body is no JSON object
}

// call makes one request under the negotiated version. A version that the
// server no longer serves is negotiated anew, a refused token is read anew,
// each once. A usable answer (200, JSON, no errors) has a nil error; else the
// answer is given besides the error if there was one.
func (c *Client) call(ctx context.Context, op, method, path string, body any) (*answer, *sources.Error) {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Err: err}
		}
	}
	renegotiated, renewed := false, false
	for { // at most three times: both flags only rise
		version, fault := c.negotiate(ctx, op)
		if fault != nil {
			return nil, fault
		}
		a, used, fault := c.send(ctx, op, method, version, path, payload)
		if fault == nil {
			return a, nil
		}
		switch {
		case a != nil && a.versionGone() && !renegotiated:
			renegotiated = true
			c.forget(version)
		case a != nil && a.authDoubtful() && !renewed && c.token.Renewed(used):
			renewed = true
		default:
			return a, fault
		}
	}
}

// send makes one request and judges the answer; used is the token it carried.
func (c *Client) send(ctx context.Context, op, method, version, path string, payload []byte) (a *answer, used string, fault *sources.Error) {
	used, err := c.token.Current()
	if err != nil {
		return nil, "", &sources.Error{Kind: sources.KindForbidden, Op: op, Message: err.Error(), Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/slurm/"+version+path, nil)
	if err != nil {
		return nil, used, &sources.Error{Kind: sources.KindRefused, Op: op, Err: err}
	}
	if payload != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(payload)), int64(len(payload))
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	if used != "" {
		req.Header.Set("X-SLURM-USER-NAME", c.user)
		req.Header.Set("X-SLURM-USER-TOKEN", used)
	}
	a = &answer{at: c.clock(), version: version}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, used, sources.Failure(op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a.status, a.header, a.kind = resp.StatusCode, resp.Header, resp.Header.Get("Content-Type")
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, used, sources.Failure(op, err)
	}
	a.doc = parse(a.body)
	return a, used, a.judge(op, c.clock())
}

// ErrNotCapable is wrapped by every error of NotCapable.
var ErrNotCapable = errors.New("site_not_capable")

// NotCapable says that the cluster's API has no way to do what was asked.
type NotCapable struct {
	Version string // the API version in use
	Need    string // what it lacks, such as "node writes"
	Since   string // the version that has it; "" v0.0.40
}

// Code is the failure's code in the catalogue of failures.
func (e *NotCapable) Code() string { return "site_not_capable" }

func (e *NotCapable) Error() string {
	return "SLURM's API " + e.Version + " has no " + e.Need + ": upgrade slurmrestd to one that serves " + first(e.Since, "v0.0.40") + " or later"
}

// Is makes errors.Is(err, ErrNotCapable) true.
func (e *NotCapable) Is(target error) bool { return target == ErrNotCapable }
