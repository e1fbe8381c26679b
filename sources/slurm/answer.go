package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// document is the frame of every answer of slurmrestd.
type document struct {
	Meta   json.RawMessage `json:"meta"`
	Errors json.RawMessage `json:"errors"`
	Pings  json.RawMessage `json:"pings"`
	Nodes  json.RawMessage `json:"nodes"` // nil without the key

	errors []apiError
}

// apiError is one entry of errors[], however a version spells it.
type apiError struct {
	number int64
	known  bool // it had a number
	text   string
}

// parse gives nil for what is no JSON object.
func parse(body []byte) *document {
	var d document
	if json.Unmarshal(body, &d) != nil || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return nil
	}
	d.errors = parseErrors(d.Errors)
	return &d
}

func parseErrors(raw json.RawMessage) []apiError {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return []apiError{{text: "errors of an unknown form: " + sources.CleanText(string(raw), 200)}}
	}
	found := make([]apiError, 0, len(list))
	for _, one := range list {
		var e struct {
			ErrorNumber json.RawMessage `json:"error_number"`
			ErrorCode   json.RawMessage `json:"error_code"`
			Errno       json.RawMessage `json:"errno"`
			Error       any             `json:"error"`
			Description any             `json:"description"`
		}
		a := apiError{text: sources.CleanText(string(one), 200)}
		if json.Unmarshal(one, &e) == nil {
			for _, number := range []json.RawMessage{e.ErrorNumber, e.ErrorCode, e.Errno} {
				if n, err := strconv.ParseInt(strings.Trim(string(number), `"`), 10, 64); err == nil {
					a.number, a.known = n, true
					break
				}
			}
			var parts []string
			for _, part := range []any{e.Description, e.Error} {
				if text, ok := part.(string); ok && text != "" {
					parts = append(parts, text)
				}
			}
			if len(parts) > 0 {
				a.text = sources.CleanText(strings.Join(parts, ": "), 200)
			}
		}
		found = append(found, a)
	}
	return found
}

// fromSlurm tells slurmrestd's own JSON from another server's.
func (d *document) fromSlurm() bool { return present(d.Meta) || present(d.Pings) }

// release gives the server's release, "" where it is not told.
func (d *document) release() string {
	var meta struct {
		New struct {
			Release string `json:"release"`
		} `json:"slurm"`
	}
	_ = json.Unmarshal(d.Meta, &meta) // finds "Slurm" of v0.0.38 too
	return sources.CleanText(meta.New.Release, 64)
}

func (d *document) has(numbers ...int64) bool {
	for _, e := range d.errors {
		for _, n := range numbers {
			if e.known && e.number == n {
				return true
			}
		}
	}
	return false
}

// SLURM's error numbers that decide something.
const (
	errProtocolAuth    = 1007
	errAccessDenied    = 2002
	errUser            = 2010
	errJobUnknown      = 2017
	errNodeUnknown     = 2018
	errNodeState       = 2028
	errNodeExists      = 2168
	errStateTransition = 2180
)

// judgement reports an error number by which a living controller refuses a
// request, as against those of a broken way to it.
func judgement(n int64) bool {
	return n == errProtocolAuth || n >= 2000 && n < 5000 || n >= 9000 && n < 10000
}

// answered tells the transport that an answer of status 500 and more is
// SLURM's judgement: 22.05 and 24.11 refuse with 500.
func answered(status int, body []byte) bool {
	d := parse(body)
	if d == nil || len(d.errors) == 0 {
		return status == 511
	}
	for _, e := range d.errors {
		if !e.known || !judgement(e.number) {
			return false
		}
	}
	return true
}

// versionGone reports the answer to a path that the server does not have;
// SLURM's own "no such thing" has an error number.
func (a *answer) versionGone() bool {
	return (a.status == 404 || a.status == 410) && (a.doc == nil || len(a.doc.errors) == 0)
}

// authDoubtful reports a refused token. v0.0.38 answers it like a dead
// controller: 500 with number -1.
func (a *answer) authDoubtful() bool {
	return a.unauthorised() || a.ambiguous()
}

func (a *answer) unauthorised() bool {
	return a.status == 401 || a.status == 403 || a.status == 511 || a.doc != nil && a.doc.has(errProtocolAuth)
}

func (a *answer) ambiguous() bool {
	return a.doc != nil && a.doc.has(-1) && versionNumber(a.version) < 40
}

// judge gives nil for a usable answer: 200, slurmrestd's JSON, no errors.
func (a *answer) judge(op string, now time.Time) *sources.Error {
	if a.status == 200 && a.doc != nil && len(a.doc.errors) == 0 {
		return nil
	}
	return &sources.Error{Kind: a.failure(), Op: op, Message: a.message(), RetryAfter: sources.RetryAfter(a.header, now), Err: a.cause()}
}

func (a *answer) cause() error {
	if a.status == 405 {
		return &NotCapable{Version: a.version, Need: "such request"}
	}
	return nil
}

func (a *answer) failure() sources.Kind {
	if a.doc != nil && len(a.doc.errors) > 0 {
		switch {
		case a.doc.has(errProtocolAuth, errAccessDenied, errUser):
			return sources.KindForbidden
		case a.doc.has(errNodeUnknown, errJobUnknown):
			return sources.KindMissing
		case a.doc.has(errNodeState, errNodeExists, errStateTransition):
			return sources.KindConflict
		}
		for _, e := range a.doc.errors {
			if e.known && judgement(e.number) {
				return sources.KindRefused
			}
		}
		return sources.KindTransient
	}
	switch {
	case a.status == 401 || a.status == 403 || a.status == 511:
		return sources.KindForbidden
	case a.status == 400 || a.status == 405 || a.status == 422 || a.status >= 300 && a.status < 400 && a.status != 304:
		return sources.KindRefused
	}
	return sources.KindTransient
}

func (a *answer) message() string {
	text := fmt.Sprintf("HTTP %d", a.status)
	switch {
	case a.doc != nil && len(a.doc.errors) > 0:
		for i, e := range a.doc.errors {
			if i == 4 {
				text += fmt.Sprintf("; and %d more errors", len(a.doc.errors)-i)
				break
			}
			text += "; " + e.text
			if e.known {
				text += fmt.Sprintf(" (%d)", e.number)
			}
		}
	case a.doc == nil && len(a.body) > 0:
		text += fmt.Sprintf(" with %s in place of JSON: %s", first(a.kind, "a body"), strings.Join(strings.Fields(sources.CleanText(string(a.body[:min(len(a.body), 400)]), 200)), " "))
	case a.doc == nil:
		text += " without a body"
	}
	switch {
	case a.unauthorised():
		text += ": check the token and the user it is for"
	case a.ambiguous():
		text += ": the controller is down, or the token is refused; this version does not tell which"
	}
	return text
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
