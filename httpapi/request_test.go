package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/httpapi"
)

func TestEverythingWrongWithABodyIsToldAtOnce(t *testing.T) {
	w := newWorld(t)
	faults := w.ask(w.token, http.MethodPost, "/api/v1/device-conditions/apply/", map[string]any{
		"colour": "red",
		"devices": []any{
			map[string]any{"device_id": 1, "observed_at": "yesterday", "conditions": []any{map[string]any{"type": "CustodyIntent", "status": "true"}}},
			map[string]any{"device_id": "two", "conditions": []any{map[string]any{"type": "", "status": "True", "reason": "not camel"}}},
			map[string]any{"conditions": []any{}},
		},
	}).refused(http.StatusBadRequest, "request_invalid")
	want := []string{
		"/colour", "/devices/0/conditions/0/status", "/devices/0/observed_at", "/devices/1/conditions/0/reason",
		"/devices/1/conditions/0/type", "/devices/1/device_id", "/devices/2/conditions", "/devices/2/device_id",
	}
	if got := slices.Sorted(maps.Keys(faults)); !slices.Equal(got, want) {
		t.Errorf("told of %q, want %q", got, want)
	}
	if detail := faults["/devices/0/conditions/0/status"]; !strings.Contains(detail, "NotRead") {
		t.Errorf("the allowed values are not told: %q", detail)
	}
}

func TestWhatIsNotReadableIsRefused(t *testing.T) {
	w := newWorld(t)
	nested := `{"devices":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`
	for name, try := range map[string]struct {
		body   string
		status int
		code   string
		change func(*http.Request)
	}{
		"too large":           {`{"hash":"` + strings.Repeat("x", 20<<20) + `"}`, http.StatusRequestEntityTooLarge, "body_too_large", nil},
		"nested too deep":     {nested, http.StatusBadRequest, "body_too_deep", nil},
		"no JSON":             {`{"hash":`, http.StatusBadRequest, "body_not_json", nil},
		"two documents":       {`{"hash":"x"}{}`, http.StatusBadRequest, "body_not_json", nil},
		"none":                {``, http.StatusBadRequest, "body_not_json", nil},
		"another form":        {`hash=x`, http.StatusUnsupportedMediaType, "media_type_unsupported", header("Content-Type", "application/x-www-form-urlencoded")},
		"no form":             {`{}`, http.StatusUnsupportedMediaType, "media_type_unsupported", header("Content-Type", "")},
		"a list":              {`[]`, http.StatusBadRequest, "request_invalid", nil},
		"slower than allowed": {`{}`, http.StatusRequestTimeout, "body_too_slow", func(r *http.Request) { r.Body = io.NopCloser(slow{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			change := try.change
			if change == nil {
				change = func(*http.Request) {}
			}
			w.ask(w.token, http.MethodPost, "/api/v1/sites/lab/sources/ironic/confirm/", try.body, change).refused(try.status, try.code)
		})
	}
	if a := w.ask(w.token, http.MethodPost, "/api/v1/policies/evaluate/", `{}`, header("Content-Type", "application/json; charset=utf-8")); a.Status != http.StatusOK {
		t.Errorf("a charset is answered %d", a.Status)
	}
}

// slow is a body of which nothing comes before the connection's deadline.
type slow struct{}

func (slow) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestAFilterThatIsNotApplyedIsRefused(t *testing.T) {
	w := newWorld(t)
	for query, parameter := range map[string]string{
		"format=xml":                                        "format",
		"operational_status=Idle":                           "operational_status",
		"operational_status=available%20":                   "operational_status",
		"operational_status=available&operational_status=x": "operational_status",
		"slurm_states=DRAINED":                              "slurm_states",
		"customer_ready=maybe":                              "customer_ready",
		"customer_ready=true&customer_ready=false":          "customer_ready",
		"limit=0":                       "limit",
		"limit=1001":                    "limit",
		"limit=ten":                     "limit",
		"cursor=%21":                    "cursor",
		"cursor=YWJj":                   "cursor",
		"id=-1":                         "id",
		"id=99999999999999999999999999": "id",
	} {
		faults := w.ask(w.token, http.MethodGet, "/api/v1/devices/?"+query, nil).refused(http.StatusBadRequest, "request_invalid")
		if _, told := faults[parameter]; !told || len(faults) != 1 {
			t.Errorf("?%s: told of %v, want %s alone", query, faults, parameter)
		}
	}
	faults := w.ask(w.token, http.MethodGet, "/api/v1/devices/?limit=0&health_status=ill&q=1", nil).refused(http.StatusBadRequest, "request_invalid")
	if got := slices.Sorted(maps.Keys(faults)); !slices.Equal(got, []string{"health_status", "limit", "q"}) {
		t.Errorf("told of %v", faults)
	}
	if detail := faults["health_status"]; !strings.Contains(detail, "critical") {
		t.Errorf("the allowed values are not told: %q", detail)
	}
	w.ask(w.token, http.MethodGet, "/api/v1/device-conditions/?type=Nonsense", nil).refused(http.StatusBadRequest, "condition_type_unknown")
	w.ask(w.token, http.MethodGet, "/api/v1/devices/abc/", nil).refused(http.StatusBadRequest, "request_invalid")
	w.ask(w.token, http.MethodGet, "/api/v1/devices/123456789/", nil).refused(http.StatusNotFound, "device_not_found")
}

func TestAddressesWithAndWithoutASlashAreTheSame(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/v1/sites", "/api/v1/sites/", "/api/v1/sites/lab/sources", "/api/v1/policies/status?", "/api/v1/openapi.json", "/healthz"} {
		if a := w.ask(w.token, http.MethodGet, path, nil); a.Status != http.StatusOK {
			t.Errorf("%s: %d", path, a.Status)
		}
		if a := w.ask(w.token, http.MethodHead, path, nil); a.Status != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, a.Status)
		}
	}
	for _, path := range []string{"/api/v1/", "/api/v1/nothing", "/api/v2/devices/", "/api//v1/devices/", "/api/v1/devices/../sites/", "/nothing"} {
		w.ask(w.token, http.MethodGet, path, nil).refused(http.StatusNotFound, "route_not_found")
	}
	a := w.ask(w.token, http.MethodDelete, "/api/v1/device-conditions", nil)
	a.refused(http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := a.Header.Get("Allow"); allow != "GET, HEAD, POST" {
		t.Errorf("Allow: %q", allow)
	}
}

func TestAPanicIsAnsweredAndLogged(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.Devices = nil })
	a := w.ask(w.token, http.MethodGet, "/api/v1/devices/", nil, header("X-Request-Id", "req-7"))
	a.refused(http.StatusInternalServerError, "internal_error")
	if a.Header.Get("X-Request-Id") != "req-7" || a.json()["request_id"] != "req-7" || strings.Contains(string(a.Body), "nil pointer") {
		t.Errorf("answered %s", a.Body)
	}
	if log := w.log.String(); !strings.Contains(log, "request panicked") || !strings.Contains(log, "req-7") || !strings.Contains(log, "device_list.go") {
		t.Errorf("logged %s", log)
	}
	if a := w.ask(w.token, http.MethodGet, "/healthz", nil); a.Status != http.StatusOK {
		t.Errorf("the next request is answered %d", a.Status)
	}
}

func TestRequestsAreLoggedWithoutSecrets(t *testing.T) {
	w := newWorld(t)
	a := w.ask(w.token, http.MethodGet, "/api/v1/sites/?colour=canary", nil, header("X-Request-Id", "bad id\n"), header("Cookie", "canary"))
	id := a.Header.Get("X-Request-Id")
	line := map[string]any{}
	must(t, json.Unmarshal(w.log.Bytes(), &line))
	for key, want := range map[string]any{"request_id": id, "method": "GET", "path": "/api/v1/sites/", "status": float64(400), "principal": "token:t1", "remote": "192.0.2.1"} {
		if line[key] != want {
			t.Errorf("%s is logged as %v, want %v", key, line[key], want)
		}
	}
	if len(id) != 16 || strings.Contains(w.log.String(), w.token) || strings.Contains(w.log.String(), "canary") {
		t.Errorf("logged %s", w.log)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"} {
		if a.Header.Get(name) != want {
			t.Errorf("%s is %q", name, a.Header.Get(name))
		}
	}
}

func TestADatabaseThatDoesNotAnswerIsToldFromAFaultOfOurs(t *testing.T) {
	gone := &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"}
	for name, try := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"stopping":        {gone, http.StatusServiceUnavailable, "database_unavailable"},
		"out of time":     {&pgconn.PgError{Code: "57014"}, http.StatusServiceUnavailable, "timed_out"},
		"deadline":        {context.DeadlineExceeded, http.StatusServiceUnavailable, "timed_out"},
		"a fault of ours": {&pgconn.PgError{Code: "42703", Message: "column secret does not exist"}, http.StatusInternalServerError, "internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(d *httpapi.Deps) { d.Auth = failing{fmt.Errorf("read token: %w", try.err)} })
			a := w.ask(w.token, http.MethodGet, "/api/v1/sites/", nil)
			a.refused(try.status, try.code)
			if strings.Contains(string(a.Body), "secret") || !strings.Contains(w.log.String(), "read token") {
				t.Errorf("answered %s, logged %s", a.Body, w.log)
			}
		})
	}
}

// failing is an authenticator that cannot tell.
type failing struct{ err error }

func (f failing) Authenticate(context.Context, string) (httpapi.Principal, error) {
	return httpapi.Principal{}, f.err
}

// FuzzDepth holds the depth that is counted against the one that is decoded.
func FuzzDepth(f *testing.F) {
	for _, seed := range []string{`{}`, `[[{"a":"[\"]"}]]`, `"\\"`, `{"a":[1,{"b":{}}]}`, `]]]`, `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got := httpapi.Depth([]byte(body))
		var value any
		if json.Unmarshal([]byte(body), &value) == nil && got != nesting(value) {
			t.Errorf("%q nests %d deep, counted %d", body, nesting(value), got)
		}
	})
}

func nesting(value any) int {
	deepest := 0
	switch v := value.(type) {
	case map[string]any:
		for _, one := range v {
			deepest = max(deepest, nesting(one))
		}
	case []any:
		for _, one := range v {
			deepest = max(deepest, nesting(one))
		}
	default:
		return 0
	}
	return deepest + 1
}
