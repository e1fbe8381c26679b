package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/httpapi"
)

const body = `{"conditions":{"Enrolled":"True"}}`

// begin opens a connection and sends the first half of a request with a body.
func (w *world) begin(address string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", address)
	must(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	must(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(conn, "POST /api/v1/policies/evaluate/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		w.token, len(body))
	must(w.t, err)
	return conn
}

func TestStoppingFinishesWhatIsUnderWay(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, l) }()
	conn := w.begin(l.Addr().String())
	answers := bufio.NewReader(conn)
	line, err := answers.ReadString('\n') // the server reads the body from now on
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q %v", line, err)
	}
	_, err = answers.ReadString('\n')
	must(t, err)
	stop()
	w.wait("readiness to end", func() bool { return w.ask("", http.MethodGet, "/readyz", nil).Status == http.StatusServiceUnavailable })
	w.wait("the listener to close", func() bool {
		late, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			late.Close()
		}
		return err != nil
	})
	select {
	case err := <-served:
		t.Fatalf("stopped before the request was answered: %v", err)
	default:
	}
	_, err = conn.Write([]byte(body))
	must(t, err)
	response, err := http.ReadResponse(answers, nil)
	must(t, err)
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("answered %d %v", response.StatusCode, err)
	}
	if err := <-served; err != nil {
		t.Errorf("stopped with %v", err)
	}
}

func TestStoppingDoesNotWaitForever(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.ShutdownTimeout = 50 * time.Millisecond })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, l) }()
	conn := w.begin(l.Addr().String())
	_, err = bufio.NewReader(conn).ReadString('\n')
	must(t, err)
	stop()
	if err := <-served; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped with %v, want what was left", err)
	}
}

func (w *world) wait(what string, done func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	want := func(status int, text string) {
		t.Helper()
		if a := w.ask("", http.MethodGet, "/readyz", nil); a.Status != status || !strings.Contains(string(a.Body), text) {
			t.Errorf("%d %s, want %d with %q", a.Status, a.Body, status, text)
		}
		if a := w.ask("", http.MethodGet, "/healthz", nil); a.Status != http.StatusOK {
			t.Errorf("health is %d", a.Status)
		}
	}
	want(http.StatusOK, "ready")
	bundle := w.policies.bundle.Swap(nil)
	w.policies.status.Store(&devices.PolicyStatus{Active: bundle.Version(), Error: "policies/x.cue:1:1: no"})
	want(http.StatusServiceUnavailable, "not loaded")
	w.ask(w.token, http.MethodGet, "/api/v1/devices/", nil).refused(http.StatusServiceUnavailable, "policy_not_loaded")
	if v := w.get("/api/v1/policies/status/"); v["error"] != "policies/x.cue:1:1: no" || v["current"] != false || v["family"] != nil {
		t.Errorf("policy status %v", v)
	}
	w.policies.bundle.Store(bundle)
	want(http.StatusOK, "ready")
	w.exec("insert into policy_bundles (version, semantics, files, stored_by) values ('sha256:other', 1, '{}', 'test')")
	w.exec("update active_policy set version = 'sha256:other'")
	want(http.StatusServiceUnavailable, "does not load here")
	w.policies.status.Store(&devices.PolicyStatus{Active: "sha256:other"})
	want(http.StatusOK, "ready") // it is on its way
	w.exec("delete from active_policy")
	want(http.StatusServiceUnavailable, "muster policy activate")
	w.db.Close()
	want(http.StatusServiceUnavailable, "database")
}

func TestTheIndexTellsWhatToAsk(t *testing.T) {
	w := newWorld(t)
	a := w.ask("", http.MethodGet, "/", nil)
	if a.Status != http.StatusOK || !strings.Contains(string(a.Body), "curl") || !strings.Contains(string(a.Body), "http://example.com/api/v1/fleet/summary/") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
