package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/musterhq/muster/sources"
)

// refusal is how every contract says no.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// kinds are what the codes of the contracts mean.
var kinds = map[string]sources.Kind{
	"not_found": sources.KindMissing, "conflict": sources.KindConflict, "locked": sources.KindLocked, "invalid": sources.KindRefused,
	"unauthorized": sources.KindForbidden, "forbidden": sources.KindForbidden, "unavailable": sources.KindTransient,
}

var codeForm = regexp.MustCompile(`^[a-z][a-z_]{0,39}$`)

// own reads a refusal; false where the answer is not the service's.
func own(body []byte) (r refusal, ok bool) {
	return r, json.Unmarshal(body, &r) == nil && codeForm.MatchString(r.Code)
}

// judge gives nil for a usable answer. A code that is not of the contract means
// what its status does.
func (c *Client) judge(op string, resp *http.Response, body []byte, token string) *sources.Error {
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if ok && (len(bytes.TrimSpace(body)) == 0 || object(body)) {
		return nil
	}
	said, known := own(body)
	if ok || !known {
		fault := c.foreign(op, resp)
		switch {
		case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
			fault.Kind = sources.KindForbidden
			fault.Message += "; check the token"
		case resp.StatusCode >= 300 && resp.StatusCode < 400:
			fault.Kind = sources.KindRefused
		}
		return fault
	}
	fault := &sources.Error{Kind: kinds[said.Code], Op: op, Message: c.said(resp, said, token), RetryAfter: sources.RetryAfter(resp.Header, c.clock())}
	if fault.Kind == "" {
		fault.Kind = byStatus(resp.StatusCode)
	}
	switch fault.Kind {
	case sources.KindMissing:
		fault.Err = sources.ErrGone
	case sources.KindForbidden:
		fault.Message += "; check the token, and what it may do"
	}
	return fault
}

func byStatus(status int) sources.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sources.KindForbidden
	case http.StatusConflict, http.StatusPreconditionFailed:
		return sources.KindConflict
	case http.StatusLocked:
		return sources.KindLocked
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return sources.KindTransient
	}
	if status >= 500 || status == http.StatusNotFound { // only not_found says that there is none
		return sources.KindTransient
	}
	return sources.KindRefused
}

func (c *Client) said(resp *http.Response, r refusal, token string) string {
	text := fmt.Sprintf("HTTP %d %s", resp.StatusCode, r.Code)
	if c.mute || r.Message == "" {
		return text
	}
	message := r.Message
	if token != "" {
		message = strings.ReplaceAll(message, token, "[token]")
	}
	return text + ": " + sources.CleanText(message, 512)
}

// foreign says that something else than the service answered.
func (c *Client) foreign(op string, resp *http.Response) *sources.Error {
	kind := sources.CleanText(resp.Header.Get("Content-Type"), 64)
	if kind == "" {
		kind = "a body of no type"
	}
	return &sources.Error{
		Kind: sources.KindTransient, Op: op, RetryAfter: sources.RetryAfter(resp.Header, c.clock()),
		Message: fmt.Sprintf("HTTP %d with %s, which is no answer of %s's contract: check the url, and what stands before it", resp.StatusCode, kind, c.name),
	}
}

func object(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
}
