package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/devices"
)

// problem is an RFC 9457 document. Its code never changes; texts may.
type problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
	Instance  string  `json:"instance,omitempty"`
	RequestID string  `json:"request_id,omitempty"`
	Errors    []fault `json:"errors,omitempty"`

	Eligibility *eligibilityView `json:"eligibility,omitempty"` // of a submission that was refused

	cause  error // of a failure of ours, for the log
	header http.Header
}

// fault is one thing that is wrong with a request.
type fault struct {
	Pointer   string `json:"pointer,omitempty"`   // into the body, RFC 6901
	Parameter string `json:"parameter,omitempty"` // of path or query
	Code      string `json:"code,omitempty"`
	Detail    string `json:"detail"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }
func (p *problem) Unwrap() error { return p.cause }

// refuse makes the problem of a request that is not followed. The format says
// what to do about it.
func refuse(status int, code, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) with(faults ...fault) *problem { p.Errors = append(p.Errors, faults...); return p }

func (p *problem) set(name, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

func deviceNotFound() *problem {
	return refuse(http.StatusNotFound, "device_not_found", "there is no such device: list them at /api/v1/devices/")
}

func siteNotFound() *problem {
	return refuse(http.StatusNotFound, "site_not_found", "there is no such site: list them at /api/v1/sites/")
}

// statusOf maps the codes of refused writes.
var statusOf = map[devices.Code]int{
	devices.CodeTypeUnknown:        http.StatusUnprocessableEntity,
	devices.CodeWriterUnknown:      http.StatusUnprocessableEntity,
	devices.CodeWriterMismatch:     http.StatusForbidden,
	devices.CodeEmittedHere:        http.StatusConflict,
	devices.CodeInFuture:           http.StatusUnprocessableEntity,
	devices.CodeInvalid:            http.StatusUnprocessableEntity,
	devices.CodeSnapshotIncomplete: http.StatusUnprocessableEntity,
	devices.CodeDeviceNotFound:     http.StatusNotFound,
	devices.CodeDeviceRetired:      http.StatusConflict,
	devices.CodeOutOfScope:         http.StatusConflict,
	devices.CodeDataRefused:        http.StatusUnprocessableEntity,
	devices.CodeRefMissing:         http.StatusUnprocessableEntity,
	devices.CodeParentTicket:       http.StatusConflict,
}

// problemOf turns any error into a problem. What is a failure of ours keeps its
// cause for the log and tells the caller nothing of it.
func problemOf(err error) *problem {
	if p := jobsSay(err); p != nil {
		return p
	}
	var p *problem
	var refused *devices.RefusedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		if status, known := statusOf[refused.Code]; known {
			return refuse(status, string(refused.Code), "%s", refused.Message)
		}
		return refuse(http.StatusUnprocessableEntity, string(refused.Code), "%s", refused.Message)
	case errors.Is(err, devices.ErrPolicyNotLoaded), errors.Is(err, devices.ErrNoPolicy):
		p = refuse(http.StatusServiceUnavailable, "policy_not_loaded", "this server has not loaded the active policy: see /api/v1/policies/status/").set("Retry-After", "5")
	case errors.Is(err, context.Canceled):
		p = refuse(statusClientGone, "client_gone", "the request was given up")
	case errors.Is(err, context.DeadlineExceeded), databaseSays(err, "57014"): // query_canceled: its own time-out
		p = refuse(http.StatusServiceUnavailable, "timed_out", "the answer took too long: ask for less, or again later").set("Retry-After", "5")
	case databaseGone(err):
		p = refuse(http.StatusServiceUnavailable, "database_unavailable", "the database does not answer: ask again later").set("Retry-After", "5")
	default:
		p = refuse(http.StatusInternalServerError, "internal_error", "something failed here: the server's log tells what under this request_id")
	}
	p.cause = err
	return p
}

// databaseSays reports whether the database refused with a code of a class.
func databaseSays(err error, class string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && strings.HasPrefix(refused.Code, class)
}

// databaseGone reports whether there is no database to ask: it cannot be
// reached, is stopping or starting, or has no connection left.
func databaseGone(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || databaseSays(err, "57P0") || databaseSays(err, "53300") || databaseSays(err, "08")
}

// statusClientGone is what the log shows for a caller that hung up; nobody
// receives it.
const statusClientGone = 499

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller may be gone
}
