package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	jobText = `{"id": 12, "site": "lab", "workflow": "verify_connectivity", "status": %q, "ended": %t, "parameters": {"a": true}, "bundle_version": "sha256:0123456789abcdef",
		"requested_by": "token:me", "created_at": "2026-03-01T12:00:00Z", "devices": {"total": 1, "by_status": {%q: 1}}, "waiting": null}`
	jobDeviceText = `{"device_id": 7, "name": "gpu-1", "status": %q, "phase": %q, "progress": %d, "failure": null}`
	verdictText   = `{"workflow": "move_to_test_cluster", "available": true, "eligible": false, "checked_at": "2026-03-01T12:00:00Z", "bundle_version": "sha256:0123456789abcdef",
		"parameters": {}, "refusals": [{"code": "breaker_open", "message": "breaker b is open", "field": null, "actual": null, "expected": null, "pos": null}], "devices": [
		{"id": 7, "name": "gpu-1", "site": "lab", "eligible": true, "refusals": []},
		{"id": 8, "name": "gpu-2", "site": "lab", "eligible": false, "refusals": [{"code": "enrollment_proof_missing", "message": "run enrollment first",
			"field": "enrollment.proof", "actual": "missing", "expected": "\"valid\"", "pos": "policies/eligibility/move_to_test_cluster.cue:50"}]}]}`
)

// conversation is a server that gives prepared answers, by method and path, and
// keeps what it was sent.
type conversation struct {
	*httptest.Server
	answers map[string]func(http.ResponseWriter)
	sent    []string
	keys    []string
}

func converse(t *testing.T, answers map[string]func(http.ResponseWriter)) *conversation {
	t.Helper()
	c := &conversation{answers: answers}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.sent = append(c.sent, string(body))
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		answer := c.answers[r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1")]
		if answer == nil {
			t.Errorf("asked %s %s", r.Method, r.URL)
			http.NotFound(w, r)
			return
		}
		answer(w)
	}))
	t.Cleanup(c.Close)
	return c
}

func says(status int, format string, args ...any) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		fmt.Fprintf(w, format, args...)
	}
}

// types runs a command against the server.
func (c *conversation) types(t *testing.T, args ...string) (code int, out, errors string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{
		args: append(append([]string{"muster"}, args...), "--url", c.URL, "--token", "t", "--data-dir", t.TempDir()), getenv: func(string) string { return "" },
		now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC) }, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
	}
	code = a.run(t.Context())
	return code, stdout.String(), stderr.String()
}

func TestEligibilityIsToldReadably(t *testing.T) {
	t.Parallel()
	c := converse(t, map[string]func(http.ResponseWriter){"POST /eligibility/check/": says(200, verdictText)})
	code, out, errs := c.types(t, "eligibility", "move_to_test_cluster", "gpu-1", "8", "--param", "cordon_only=true", "--param", "replacement=gpu-9", "--site", "lab")
	want := `move_to_test_cluster may not run: 1 device refused
  ✗ breaker_open: breaker b is open

✓ gpu-1 (site lab)

✗ gpu-2 (site lab)
  ✗ enrollment_proof_missing: run enrollment first
      enrollment.proof is missing, asked is "valid"
      policies/eligibility/move_to_test_cluster.cue:50

by policy 0123456789ab, at 2026-03-01 12:00:00 UTC
`
	if code != exitNo || out != want || errs != "" {
		t.Errorf("code %d, %s\n%s", code, out, errs)
	}
	if sent := `{"workflow":"move_to_test_cluster","site":"lab","device_ids":[8],"device_names":["gpu-1"],"parameters":{"cordon_only":true,"replacement":"gpu-9"}}`; c.sent[0] != sent {
		t.Errorf("sent %s", c.sent[0])
	}
	if code, out, _ := c.types(t, "eligibility", "move_to_test_cluster", "8", "-o", "json"); code != exitNo || !strings.HasPrefix(out, "{") {
		t.Errorf("as JSON: code %d, %s", code, out)
	}
	if code, _, errs := c.types(t, "eligibility", "move_to_test_cluster", "8", "--param", "x"); code != exitUsage || !strings.Contains(errs, "name=value") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestWorkflowsAreListedWithTheirParameters(t *testing.T) {
	t.Parallel()
	c := converse(t, map[string]func(http.ResponseWriter){"GET /workflows/": says(200, `{"next": null, "items": [{"slug": "node_swap", "title": "Node swap", "available": false, "contention": "exclusive",
		"devices": {"min": 1, "max": 1}, "parameters": {"properties": {"to": {}, "force": {"default": false}, "note": {}}, "required": ["to"]}}]}`)})
	code, out, _ := c.types(t, "eligibility", "--list")
	if code != exitOK || !strings.Contains(out, "node_swap  Node swap  no         exclusive   1–1      force=false note to*") {
		t.Errorf("code %d, %s", code, out)
	}
}

func TestASubmissionIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	event := func(name, status string, ended bool, device, phase string, percent int) string {
		data := fmt.Sprintf(`{"job": %s, "devices": [%s]}`, fmt.Sprintf(jobText, status, ended, device), fmt.Sprintf(jobDeviceText, device, phase, percent))
		return "event: " + name + "\ndata: " + strings.Join(strings.Fields(data), " ") + "\n\n"
	}
	connections := 0
	c := converse(t, map[string]func(http.ResponseWriter){
		"POST /jobs/": says(201, jobText, "pending", false, "waiting"),
		"GET /jobs/12/events/": func(w http.ResponseWriter) {
			if connections++; connections == 1 { // it breaks off
				fmt.Fprint(w, event("snapshot", "pending", false, "waiting", "", 0), ": still here\n\n", event("change", "running", false, "running", "login", 40))
				return
			}
			fmt.Fprint(w, event("snapshot", "running", false, "running", "login", 40), event("end", "succeeded", true, "succeeded", "", 100))
		},
	})
	code, out, errs := c.types(t, "job", "submit", "verify_connectivity", "gpu-1", "--reason", "CHG-1", "--key", "k", "--watch")
	want := `12:00:30  gpu-1 waiting
12:00:30  job 12 verify_connectivity is pending
12:00:30  gpu-1 running 40 % login
12:00:30  job 12 verify_connectivity is running
12:00:30  gpu-1 succeeded
12:00:30  job 12 verify_connectivity is succeeded
`
	if code != exitOK || out != want || errs != "" {
		t.Errorf("code %d\n%s\n%s", code, out, errs)
	}
	if !strings.Contains(c.sent[0], `"reason":"CHG-1"`) || c.keys[0] != "k" || c.keys[1] != "" {
		t.Errorf("sent %s with the keys %v", c.sent[0], c.keys)
	}
}

func TestARefusedSubmissionTellsWhy(t *testing.T) {
	t.Parallel()
	c := converse(t, map[string]func(http.ResponseWriter){"POST /jobs/": says(409, `{"status": 409, "code": "not_eligible", "detail": "d", "eligibility": %s}`, verdictText)})
	code, out, errs := c.types(t, "job", "submit", "move_to_test_cluster", "gpu-2")
	if code != exitNo || !strings.Contains(out, "✗ enrollment_proof_missing: run enrollment first") || errs != "" {
		t.Errorf("code %d, %s %s", code, out, errs)
	}
}

func TestWhoWatchesTooLateIsToldTheEnd(t *testing.T) {
	t.Parallel()
	c := converse(t, map[string]func(http.ResponseWriter){
		"GET /jobs/12/events/":  says(204, ""),
		"GET /jobs/12/":         says(200, jobText, "failed", true, "failed"),
		"GET /jobs/12/devices/": says(200, `{"next": null, "items": [{"device_id": 7, "name": "gpu-1", "status": "failed", "progress": 10, "failure": {"code": "BMC_UNREACHABLE", "message": "no answer", "owner": "dc", "hint": "look at the cable"}}]}`),
	})
	code, out, _ := c.types(t, "job", "watch", "12")
	if code != exitNo || !strings.Contains(out, "gpu-1 failed: BMC_UNREACHABLE no answer (look at the cable)\n") || !strings.Contains(out, "job 12 verify_connectivity is failed\n") {
		t.Errorf("code %d, %s", code, out)
	}
	code, out, _ = c.types(t, "job", "show", "job/12")
	if code != exitOK || !strings.Contains(out, "dc: look at the cable") || !strings.Contains(out, "a = true") {
		t.Errorf("code %d, %s", code, out)
	}
	if code, _, errs := c.types(t, "job", "cancel", "12"); code != exitUsage || !strings.Contains(errs, "--reason") {
		t.Errorf("code %d, %s", code, errs)
	}
}
