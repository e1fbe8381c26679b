package sources

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	b := newBench(t, Options{Retries: -1, BreakerFailures: 3, BreakerCoolDown: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(502)
		}
	})
	for range 3 {
		if status, _, err := b.get("/"); status != 502 || err != nil {
			t.Fatalf("got %d %v", status, err)
		}
	}
	_, _, err := b.get("/")
	if KindOf(err) != KindOpen || b.calls.Load() != 3 {
		t.Fatalf("after three failures: %v, %d calls", err, b.calls.Load())
	}
	for _, part := range []string{b.server.URL, "since 2026-03-01T12:00:00Z", "HTTP 502", "next try at 2026-03-01T12:01:00Z"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal %q does not tell %q", err, part)
		}
	}
	b.pass(time.Minute)
	if status, _, _ := b.get("/"); status != 502 {
		t.Errorf("the probe gave %d", status)
	}
	if _, _, err := b.get("/"); KindOf(err) != KindOpen {
		t.Errorf("after a failed probe: %v", err)
	}
	broken.Store(false)
	b.pass(time.Minute)
	for range 3 {
		if status, _, err := b.get("/"); status != 200 {
			t.Errorf("after recovery: %d %v", status, err)
		}
	}
}

func TestOnlyOneCallProbes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := &breaker{endpoint: "e", failures: 1, coolDown: time.Minute, clock: func() time.Time { return now }, meter: noMeter{}}
	done, _ := b.enter()
	late, _ := b.enter()
	done(failed, "x")
	now = now.Add(time.Minute)
	probe, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.enter(); KindOf(err) != KindOpen {
		t.Errorf("a second probe was admitted: %v", err)
	}
	late(worked, "") // begun before: it decides nothing
	if _, err := b.enter(); KindOf(err) != KindOpen {
		t.Errorf("an old call closed the breaker: %v", err)
	}
	probe(unclear, "") // the caller gave up: the next one may probe
	probe2, err := b.enter()
	if err != nil {
		t.Fatalf("after an abandoned probe: %v", err)
	}
	probe2(worked, "")
	if _, err := b.enter(); err != nil {
		t.Errorf("after a good probe: %v", err)
	}
}

func TestBreakerCountsBodiesCutShortAndNotAnswersOrCallers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		answer  func(int, []byte) bool
		open    bool
	}{
		"bodies cut short": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "cut")
		}, open: true},
		"400s": {handler: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400) }},
		"500s that the adapter calls answers": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "no such node")
		}, answer: func(_ int, body []byte) bool { return bytes.Contains(body, []byte("no such node")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{Retries: -1, BreakerFailures: 2, Answered: c.answer}, c.handler)
			var err error
			for range 4 {
				_, _, err = b.get("/")
			}
			if open := err != nil && KindOf(err) == KindOpen; open != c.open {
				t.Errorf("open %v, want %v (%v)", open, c.open, err)
			}
		})
	}
}
