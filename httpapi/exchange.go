package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// request is a request that was let in and fits the document.
type request struct {
	*http.Request
	principal Principal
	vars      map[string]string // of the path
	query     url.Values        // without blank values
	body      []byte            // JSON; nil where the operation takes none
	form      url.Values        // nil where the operation takes none
	problem   *problem          // of a form that was refused, for the page that it is on
}

// remote is where the request comes from, for audit and log.
func (r *request) remote() string { return host(r.Request) }

func host(r *http.Request) string {
	if name, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return name
	}
	return r.RemoteAddr
}

// trail is what is noted of a request on its way, for log and metrics.
type trail struct {
	id        string
	route     string // template; "" for an address that is none
	principal string
	cause     error // of a failure of ours
}

type trailKey struct{}

// trailOf gives the request's trail; every request has one.
func trailOf(r *http.Request) *trail {
	if t, ok := r.Context().Value(trailKey{}).(*trail); ok {
		return t
	}
	return &trail{}
}

// written counts what was answered.
type written struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *written) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *written) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(data)
	w.bytes += n
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *written) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Handler is the whole server: every request gets an identity, limits, a log
// line, and an answer even where its handler panics.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		t := &trail{id: requestID(r)}
		out := &written{ResponseWriter: w}
		head := out.Header()
		head.Set("X-Request-Id", t.id)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		defer func() {
			s.recovered(out, r, t, recover())
			s.account(out, r, t, time.Since(start))
		}()
		limit := s.RequestTimeout
		if streaming(slashed(r.URL.Path)) {
			limit = streamFor
		}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), trailKey{}, t), limit)
		defer cancel()
		in := r.Clone(ctx)
		in.Body = http.MaxBytesReader(out, r.Body, maxBody)
		if path := slashed(in.URL.Path); path != in.URL.Path {
			in.URL.Path, in.URL.RawPath = path, ""
		}
		s.router.ServeHTTP(out, in)
	})
}

// slashed is a path as the routes spell it: what is below the API and the pages
// ends with a slash, unless it is a file.
func slashed(path string) string {
	below := strings.HasPrefix(path, apiRoot+"/") || strings.HasPrefix(path, pageRoot)
	if !below || strings.HasSuffix(path, "/") || path == documentPath || path == stylePath || path == scriptPath {
		return path
	}
	return path + "/"
}

// recovered answers for a handler that panicked.
func (s *Server) recovered(w *written, r *http.Request, t *trail, panicked any) {
	if panicked == nil {
		return
	}
	t.cause = fmt.Errorf("panic: %v", panicked)
	s.Log.Error("request panicked", "request_id", t.id, "method", r.Method, "route", t.route, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	if w.status == 0 {
		s.fail(w, r, t, problemOf(t.cause))
	}
}

// fail answers with a problem.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, t *trail, err error) {
	p := *problemOf(err)
	p.Instance, p.RequestID = r.URL.Path, t.id
	if p.Status >= http.StatusInternalServerError {
		t.cause = p.cause
	}
	p.write(w)
}

// account logs and counts an answered request. Nothing of its headers, query or
// body is logged.
func (s *Server) account(w *written, r *http.Request, t *trail, took time.Duration) {
	s.metrics.answered(r.Method, t.route, w.status, took)
	level := hclog.Info
	switch {
	case t.cause != nil:
		level = hclog.Error
	case ofProcess(t.route):
		level = hclog.Debug
	}
	fields := []any{"request_id", t.id, "method", r.Method, "path", r.URL.Path, "status", w.status, "bytes", w.bytes,
		"took", took.Round(time.Microsecond).String(), "principal", t.principal, "remote", host(r)}
	if t.cause != nil {
		fields = append(fields, "error", t.cause.Error())
	}
	s.Log.Log(level, "request", fields...)
}

// ofProcess tells the routes that speak of the process itself. Machines ask
// them every few seconds.
func ofProcess(route string) bool {
	return route == "/healthz" || route == "/readyz" || route == "/metrics"
}

// requestID keeps the caller's id of the request where it is a harmless text.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if len(id) > 0 && len(id) <= 64 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == "" {
		return id
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}
