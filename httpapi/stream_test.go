package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
)

// TestAJobIsFollowed reads events over a real connection: the whole first, then
// what changes, then the end, and then there is nothing more.
func TestAJobIsFollowed(t *testing.T) {
	w := newWorld(t)
	id, other := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	job := w.submit("verify_connectivity", nil, id, other)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/jobs/%d/events", server.URL, job), nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	a, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answered %d as %s", a.StatusCode, a.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(a.Body)
	next := func() (name string, event struct {
		Job     map[string]any   `json:"job"`
		Devices []map[string]any `json:"devices"`
	}) {
		t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				must(t, json.Unmarshal([]byte(text), &event))
				return name, event
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return "", event
	}
	if name, e := next(); name != "snapshot" || len(e.Devices) != 2 || e.Job["status"] != "pending" {
		t.Fatalf("first came %s of %v", name, e)
	}
	w.starts(job, id)
	for {
		name, e := next()
		if name != "change" || len(e.Devices) > 1 {
			t.Fatalf("then came %s of %v", name, e)
		}
		if len(e.Devices) == 1 && e.Devices[0]["status"] == "running" && e.Job["status"] == "running" {
			break
		}
	}
	w.ends(job, id, jobs.Ending{Status: fleet.DeviceSucceeded})
	w.starts(job, other)
	w.ends(job, other, jobs.Ending{Status: fleet.DeviceSucceeded})
	for {
		if name, e := next(); name == "end" {
			if e.Job["status"] != "succeeded" {
				t.Errorf("at the end it is %v", e.Job["status"])
			}
			break
		}
	}
	if lines.Scan(); lines.Scan() {
		t.Errorf("after the end came %q", lines.Text())
	}
	if a := w.ask(w.token, http.MethodGet, fmt.Sprintf("/api/v1/jobs/%d/events/", job), nil); a.Status != http.StatusNoContent {
		t.Errorf("who comes late is answered %d", a.Status)
	}
}

// follow opens a connection that follows a job and waits for the snapshot.
func (w *world) follow(address string, job int64) *bufio.Scanner {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, fmt.Sprintf("http://%s/api/v1/jobs/%d/events/", address, job), nil)
	must(w.t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	a, err := http.DefaultClient.Do(r)
	must(w.t, err)
	w.t.Cleanup(func() { _ = a.Body.Close() })
	lines := bufio.NewScanner(a.Body)
	if lines.Scan(); lines.Text() != "event: snapshot" {
		w.t.Fatalf("first came %q: %v", lines.Text(), lines.Err())
	}
	return lines
}

func TestWhoFollowsIsLetGoWhenTheServerEnds(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.RequestTimeout = 200 * time.Millisecond }) // following is no request that must end
	id := w.bear(w.lab, "gpu-1", node(ready))
	job := w.submit("verify_connectivity", nil, id)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, l) }()
	lines := w.follow(l.Addr().String(), job)
	w.starts(job, id)
	for lines.Scan() && lines.Text() != "event: change" {
		continue
	}
	if lines.Err() != nil || lines.Text() != "event: change" {
		t.Fatalf("it ended with %v", lines.Err())
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("stopped with %v", err)
	}
	for lines.Scan() {
		continue
	}
	if lines.Err() != nil {
		t.Errorf("the events broke off: %v", lines.Err())
	}
}
