package sources

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bench is a server with a scripted handler and a client whose clock and waits
// the test holds.
type bench struct {
	server *httptest.Server
	client *http.Client
	mu     sync.Mutex
	now    time.Time
	waits  []time.Duration
	calls  atomic.Int64
}

func newBench(t *testing.T, o Options, handler http.HandlerFunc) *bench {
	t.Helper()
	b := &bench{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.calls.Add(1)
		handler(w, r)
	}))
	t.Cleanup(b.server.Close)
	o.Clock = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now }
	o.Wait = func(_ context.Context, d time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waits, b.now = append(b.waits, d), b.now.Add(d)
		return nil
	}
	client, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	b.client = client
	return b
}

func (b *bench) pass(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.now = b.now.Add(d) }

// get reads a path whole and gives status, body and error.
func (b *bench) get(path string) (int, string, error) {
	resp, err := b.client.Get(b.server.URL + path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func TestReadsAreRetriedAndWritesAreNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		status int
		calls  int64
	}{
		"a GET after 503":             {"GET", 503, 3},
		"a GET after 500":             {"GET", 500, 3},
		"a GET after 429":             {"GET", 429, 3},
		"a GET after 404":             {"GET", 404, 1},
		"a GET after 511, an answer":  {"GET", 511, 1},
		"a POST after 503":            {"POST", 503, 1},
		"a PUT after 500":             {"PUT", 500, 1},
		"a GET after 409, a conflict": {"GET", 409, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{}, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(c.status) })
			req, _ := http.NewRequest(c.method, b.server.URL, nil)
			resp, err := b.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != c.status || b.calls.Load() != c.calls {
				t.Errorf("status %d after %d calls, want %d after %d", resp.StatusCode, b.calls.Load(), c.status, c.calls)
			}
		})
	}
}

func TestAReadRecoversAfterALostConnection(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	b := newBench(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(false, true) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		_, _ = io.WriteString(w, "fine")
	})
	if status, text, err := b.get("/"); status != 200 || text != "fine" || err != nil {
		t.Errorf("got %d %q %v", status, text, err)
	}
}

func TestWaitsGrowWithJitterAndHonourRetryAfter(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC).Format(http.TimeFormat)
	for name, c := range map[string]struct {
		after string
		rand  float64
		waits []time.Duration
	}{
		"doubling, full":           {"", 1, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}},
		"jitter takes half at 0":   {"", 0, []time.Duration{125 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond}},
		"seconds asked for":        {"3", 1, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
		"an instant asked for":     {date, 1, []time.Duration{7 * time.Second, 500 * time.Millisecond, time.Second}},
		"more than we wait":        {"3600", 1, nil},
		"rubbish is our own wait":  {"soon", 1, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}},
		"negative is our own wait": {"-5", 1, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Retries: 3, Rand: func() float64 { return c.rand }}
			b := newBench(t, o, func(w http.ResponseWriter, r *http.Request) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(503)
			})
			if status, _, err := b.get("/"); status != 503 || err != nil {
				t.Fatalf("got %d %v, want the last answer", status, err)
			}
			if fmt.Sprint(b.waits) != fmt.Sprint(c.waits) {
				t.Errorf("waited %v, want %v", b.waits, c.waits)
			}
		})
	}
}

func TestNoRetryStartsThatTheDeadlineForbids(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{TotalTimeout: 2 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(503)
	})
	if status, _, err := b.get("/"); status != 503 || err != nil || b.calls.Load() != 1 {
		t.Errorf("got %d %v after %d calls", status, err, b.calls.Load())
	}
}

func TestAnswersBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 5000)
	for name, handler := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5000")
			_, _ = io.WriteString(w, big)
		},
		"streamed": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, big)
		},
		"compressed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, big)
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{BodyLimit: 1000}, handler)
			_, _, err := b.get("/")
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1000 bytes") {
				t.Errorf("got %v", err)
			}
			if b.calls.Load() != 1 {
				t.Errorf("%d calls: too large is not retried", b.calls.Load())
			}
		})
	}
	b := newBench(t, Options{BodyLimit: 5000}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, big) })
	if _, text, err := b.get("/"); len(text) != 5000 || err != nil {
		t.Errorf("an answer of exactly the limit: %d bytes, %v", len(text), err)
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	t.Parallel()
	var leaked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leaked.Add(1) }))
	t.Cleanup(other.Close)
	b := newBench(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL+"/steal", http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			_, _ = io.WriteString(w, r.URL.Path)
		}
	})
	if status, _, err := b.get("/away"); status != 302 || err != nil || leaked.Load() != 0 {
		t.Errorf("to another host: %d %v, %d calls there", status, err, leaked.Load())
	}
	if status, text, err := b.get("/near"); status != 200 || text != "/there" || err != nil {
		t.Errorf("within the host: %d %q %v", status, text, err)
	}
	if status, _, err := b.get("/loop"); status != 302 || err != nil {
		t.Errorf("a loop: %d %v", status, err)
	}
}

func TestCallsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	release := make(chan struct{})
	b := newBench(t, Options{InFlight: 2}, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		now.Add(-1)
	})
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() { _, _, _ = b.get("/") })
	}
	deadline := time.After(5 * time.Second)
	for most.Load() < 2 {
		select {
		case <-deadline:
			t.Fatal("two calls never ran together")
		default:
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", b.server.URL, nil)
	if resp, err := b.client.Do(req); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		_ = resp.Body.Close()
		t.Errorf("a call past the bound was not held back: %v", err)
	}
	close(release)
	group.Wait()
	if most.Load() != 2 {
		t.Errorf("%d calls at a time, want 2", most.Load())
	}
}

func TestSilentServersEndWithinTheTimeouts(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	b := newBench(t, Options{HeaderTimeout: 50 * time.Millisecond, Retries: -1}, func(w http.ResponseWriter, r *http.Request) { <-stop })
	defer close(stop)
	if _, _, err := b.get("/"); err == nil || !strings.Contains(err.Error(), "awaiting response headers") {
		t.Errorf("no header: %v", err)
	}
	drip := newBench(t, Options{TotalTimeout: 100 * time.Millisecond, Retries: -1}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	if _, _, err := drip.get("/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no body: %v", err)
	}
}

func TestTLSTrust(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tls TLS
		ok  bool
	}{"unknown": {TLS{}, false}, "by file": {TLS{CAFile: file}, true}, "insecure": {TLS{Insecure: true}, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := NewClient(Options{TLS: c.tls, Wait: func(context.Context, time.Duration) error {
				t.Error("a refused certificate is retried")
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Get(server.URL)
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	if _, err := NewClient(Options{TLS: TLS{CAFile: file + ".absent"}}); err == nil {
		t.Error("an absent CA file is accepted")
	}
}

func TestASocketIsDialledInsteadOfTheHost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "over the socket")
	})}}
	server.Start()
	t.Cleanup(server.Close)
	client, err := NewClient(Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get("http://localhost/x")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, _ := io.ReadAll(resp.Body); string(text) != "over the socket" {
		t.Errorf("got %q", text)
	}
}
