package slurm

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		why    string
	}{
		"no URL":               {Config{}, "is not http://"},
		"another scheme":       {Config{URL: "ftp://h"}, "is not http://"},
		"impatient":            {Config{URL: "http://h", Transport: sources.Options{HeaderTimeout: 10 * time.Second}}, "must be above 10s"},
		"impatient altogether": {Config{URL: "http://h", Transport: sources.Options{TotalTimeout: 5 * time.Second}}, "must be above 10s"},
		"no version":           {Config{URL: "http://h", Versions: []string{"38"}}, "is not an API version"},
		"no CA":                {Config{URL: "https://h", Transport: sources.Options{TLS: sources.TLS{CAFile: "absent"}}}, "CA file"},
	} {
		if _, err := New(c.config, time.Now, nil); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{URL: "http://127.0.0.1:1"}, time.Now, nil); err != nil {
		t.Errorf("a cluster that is down: %v", err)
	}
}

func TestTheNewestVersionOfTheServerIsTaken(t *testing.T) {
	t.Parallel()
	for generation, want := range map[int]Capabilities{
		38: {Version: "v0.0.38"}, 42: {Version: "v0.0.42", NodeWrites: true}, 45: {Version: "v0.0.45", NodeWrites: true, NodeCreate: true},
	} {
		f := newFake(generation, 1)
		got, err := dial(t, f, nil).Capabilities(t.Context())
		if err != nil || got != want {
			t.Errorf("%d: %+v %v", generation, got, err)
		}
		down := newFake(generation, 1)
		down.down = true
		if got, err := dial(t, down, nil).Capabilities(t.Context()); err != nil || got != want {
			t.Errorf("%d with its controller down: %+v %v", generation, got, err)
		}
	}
	_, err := dial(t, newFake(38, 1), func(c *Config) { c.Versions = []string{"v0.0.45", "v0.0.44"} }).Capabilities(t.Context())
	if sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "v0.0.45, v0.0.44") {
		t.Errorf("no common version: %v", err)
	}
}

func TestAnUpgradeThatDropsTheVersionIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFake(42, 2)
	c := dial(t, f, nil)
	if l := listAll(t, c); l.err != nil || len(l.records) != 2 {
		t.Fatalf("%+v", l)
	}
	f.mu.Lock()
	f.versions = []string{"v0.0.43", "v0.0.44"}
	f.mu.Unlock()
	if l := listAll(t, c); l.err != nil || len(l.records) != 2 || c.negotiated() != "v0.0.44" {
		t.Errorf("after the upgrade: %+v under %s", l, c.negotiated())
	}
	f.mu.Lock()
	f.versions = nil
	f.mu.Unlock()
	if l := listAll(t, c); l.err == nil || len(l.records) != 0 {
		t.Errorf("a server without any version: %+v", l)
	}
}

func TestARenewedTokenIsTakenUp(t *testing.T) {
	t.Parallel()
	for _, generation := range []int{38, 42, 45} {
		f := newFake(generation, 2)
		f.tokens = map[string]bool{"first": true}
		file := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("SLURM_JWT=first\n")
		old := time.Now().Add(-time.Hour)
		_ = os.Chtimes(file, old, old)
		c := dial(t, f, func(c *Config) { c.Token, c.TokenFile = "", file })
		if l := listAll(t, c); l.err != nil {
			t.Fatalf("%d: %v", generation, l.err)
		}
		// The same size and time: only the refusal shows that it changed.
		f.mu.Lock()
		f.tokens = map[string]bool{"other": true}
		f.mu.Unlock()
		write("SLURM_JWT=other\n")
		_ = os.Chtimes(file, old, old)
		if l := listAll(t, c); l.err != nil || len(l.records) != 2 {
			t.Errorf("%d, after a refusal: %v", generation, l.err)
		}
		write("third-token")
		f.mu.Lock()
		f.tokens = map[string]bool{"third-token": true}
		f.mu.Unlock()
		if l := listAll(t, c); l.err != nil {
			t.Errorf("%d, after a change: %v", generation, l.err)
		}
		write("") // somebody is writing it
		if l := listAll(t, c); l.err != nil {
			t.Errorf("%d, while it is written: %v", generation, l.err)
		}
	}
}

func TestARefusedTokenIsTriedOnceAndSaysSo(t *testing.T) {
	t.Parallel()
	for generation, want := range map[int]sources.Kind{38: sources.KindTransient, 42: sources.KindForbidden, 45: sources.KindForbidden} {
		f := newFake(generation, 2)
		f.tokens = map[string]bool{}
		asked := 0
		c := dial(t, f, func(c *Config) { c.Transport.Retries = -1 })
		if _, err := c.Capabilities(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.before = func(*fake, bool) { asked++ }
		l := listAll(t, c)
		if sources.KindOf(l.err) != want || asked != 1 || !strings.Contains(l.err.Error(), "token") {
			t.Errorf("%d: %v after %d requests", generation, l.err, asked)
		}
	}
	c := dial(t, newFake(42, 1), func(c *Config) { c.Token, c.TokenFile = "", filepath.Join(t.TempDir(), "absent") })
	if l := listAll(t, c); sources.KindOf(l.err) != sources.KindForbidden || !strings.Contains(l.err.Error(), "absent") {
		t.Errorf("no token file: %v", l.err)
	}
	c = dial(t, newFake(42, 1), func(c *Config) { c.Token = "" })
	if l := listAll(t, c); sources.KindOf(l.err) != sources.KindForbidden {
		t.Errorf("no token: %v", l.err)
	}
}

// An expired token looks like a dead controller in a ping: only a real query
// counts, so negotiating decides nothing about either.
func TestUnknownNodesDoNotOpenTheBreakerAndADeadControllerDoes(t *testing.T) {
	t.Parallel()
	f := newFake(38, 1)
	c := dial(t, f, nil)
	for range 12 {
		if _, err := c.Get(t.Context(), "nope"); !errors.Is(err, sources.ErrGone) {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	f.down = true
	f.mu.Unlock()
	var err error
	for range 5 {
		_, err = c.Get(t.Context(), "n0001")
	}
	if sources.KindOf(err) != sources.KindOpen || !strings.Contains(err.Error(), "since") {
		t.Errorf("a controller that stays down: %v", err)
	}
}

func TestASocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var headers atomic.Int64
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-TOKEN") != "" || r.Header.Get("X-SLURM-USER-NAME") != "" {
			headers.Add(1)
		}
		_, _ = io.WriteString(w, `{"pings":[],"nodes":[{"name":"n1","state":["IDLE"]}],"errors":[]}`)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	c, err := New(Config{URL: "unix:" + path}, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if l := listAll(t, c); l.err != nil || len(l.records) != 1 || headers.Load() != 0 {
		t.Errorf("%+v, %d requests with a token", l, headers.Load())
	}
}
