package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// quick lets failures come at once.
func quick(c *Config) {
	c.HTTP.Retries = -1
	c.HTTP.BreakerFailures = -1
	c.HTTP.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
}

func (f *fake) peer() *peer { return &peer{config: Config{URL: f.URL}, admin: administrator(f.URL)} }

// allocationReads counts the providers that were asked.
func allocationReads(requests []string) (n int) {
	for _, r := range requests {
		if strings.HasSuffix(r, "/allocations") {
			n++
		}
	}
	return n
}

func TestAnIdleProviderIsNotAskedAgainWhileItsGenerationStays(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 20 {
		f.add(fmt.Sprintf("%08d-idle", i))
		f.add(fmt.Sprintf("%08d-taken", i), "c")
	}
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	c, err := New(Config{URL: f.URL}, clock)
	must(t, err)
	t.Cleanup(c.Close)
	expect := func(when string, want int) {
		t.Helper()
		if records, _ := list(t, c); len(records) != 40 {
			t.Errorf("%s: %d records", when, len(records))
		}
		if got := allocationReads(f.requests()); got != want {
			t.Errorf("%s: %d providers were asked, not %d", when, got, want)
		}
	}
	expect("at first", 40)
	expect("then", 20)
	f.mu.Lock()
	f.providers["00000003-idle"].generation++ // its inventory changed
	f.mu.Unlock()
	expect("after a change", 21)
	expect("after that", 20)

	// One that is made anew starts over: it is found out in time.
	f.mu.Lock()
	f.providers["00000005-idle"].held["c"] = map[string]any{}
	f.mu.Unlock()
	mu.Lock()
	now = now.Add(trustIdle)
	mu.Unlock()
	records, _ := list(t, c)
	wantAllocated(t, records, "00000005-idle", facts.True)
	if got := allocationReads(f.requests()); got != 40 {
		t.Errorf("after five minutes %d providers were asked", got)
	}
}

func TestABadRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("a", "c")
	f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/resource_providers":
			_, _ = io.WriteString(w, `{"resource_providers": [{"uuid": 7}, "x", {"uuid": "../a"}, {"name": "n"},
				{"uuid": "a", "name": 3, "generation": "x"}, {"uuid": "a"}, {"uuid": "b", "generation": 4}, {"uuid": "c"}, {"uuid": "d"}]}`)
		case "/resource_providers/b/allocations":
			_, _ = io.WriteString(w, `{"allocations": null}`)
		case "/resource_providers/c/allocations":
			_, _ = io.WriteString(w, `{"allocations": {"i1": {"resources": "odd"}}}`)
		case "/resource_providers/d/allocations":
			refuse(w, 404, "", "Resource provider 'd' not found: No resource provider with uuid d found")
		default:
			return false
		}
		return true
	}
	c := f.peer().client(t, quick)
	records, end := list(t, c)
	if end.Dropped != 4 || len(records) != 3 {
		t.Errorf("%d dropped, %d records", end.Dropped, len(records))
	}
	wantAllocated(t, records, "a", facts.True)
	wantAllocated(t, records, "c", facts.True)
	if r := records["b"]; r.Undecodable == "" || r.Placement != nil {
		t.Errorf("what holds no allocations gave %+v", r)
	}
}

func TestWhatIsNoAnswerFailsTheListing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path   string
		status int
		body   string
		kind   sources.Kind
		says   string
	}{
		"a page of HTML":               {"/resource_providers", 200, "<html>hello</html>", sources.KindTransient, "hello"},
		"errors with status 200":       {"/resource_providers", 200, `{"resource_providers": [], "errors": [{"detail": "down"}]}`, sources.KindTransient, "down"},
		"no list":                      {"/resource_providers", 200, `{"resource_providers": {}}`, sources.KindTransient, ""},
		"null":                         {"/resource_providers", 200, `{"resource_providers": null}`, sources.KindTransient, ""},
		"HTML in place of allocations": {"/resource_providers/a/allocations", 200, "<html>busy</html>", sources.KindTransient, "busy"},
		"a failure in the middle":      {"/resource_providers/a/allocations", 500, `{"errors": [{"detail": "boom\n\n database is locked"}]}`, sources.KindTransient, "database is locked"},
		"no role":                      {"/resource_providers", 403, `{"errors": [{"title": "Forbidden", "detail": "Access was denied.\n\n Policy does not allow it.  "}]}`, sources.KindForbidden, "Policy does not allow"},
		"not acceptable":               {"/resource_providers", 406, `{"errors": [{"detail": "x\n\n Unacceptable version header: 1.28"}]}`, sources.KindRefused, "1.28"},
		"another service":              {"/resource_providers", 404, "404 page not found", sources.KindTransient, "no Placement answers there"},
		"a proxy's not found":          {"/resource_providers/a/allocations", 404, "<html>No resource provider with uuid a</html>", sources.KindTransient, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.add("a", "c")
			f.add("b")
			f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != test.path {
					return false
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
				return true
			}
			_, err := f.peer().client(t, quick).List(t.Context(), func([]sources.Record) error { return nil })
			wantKind(t, err, test.kind)
			if !strings.Contains(err.Error(), test.says) || errors.Is(err, sources.ErrGone) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestSoManyAreAskedAtATime(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 40 {
		f.add(fmt.Sprintf("%08d", i))
	}
	var at, most atomic.Int64
	full := make(chan struct{})
	f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/allocations") {
			return false
		}
		now := at.Add(1)
		defer at.Add(-1)
		if most.Load() < now {
			most.Store(now)
		}
		if now == 4 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		select { // until so many are there at once
		case <-full:
		case <-time.After(10 * time.Second):
		}
		return false
	}
	list(t, f.peer().client(t, func(c *Config) { c.HTTP.InFlight = 4 }))
	if most.Load() != 4 {
		t.Errorf("%d were asked at a time, not 4", most.Load())
	}
}

// What is read is given on while another provider keeps its answer back, and
// whoever gives up is not held.
func TestRecordsComeBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("quick")
	f.add("slow")
	ctx, cancel := context.WithCancel(t.Context())
	f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "slow") {
			<-ctx.Done()
		}
		return false
	}
	var given []string
	_, err := f.peer().client(t, quick).List(ctx, func(page []sources.Record) error {
		for _, r := range page {
			given = append(given, r.Ref)
		}
		cancel()
		return nil
	})
	if err == nil || len(given) != 1 || given[0] != "quick" {
		t.Errorf("given %v, then %v", given, err)
	}
	full := errors.New("the taker is full")
	f.mu.Lock()
	f.intercept = nil
	f.mu.Unlock()
	if _, err := f.peer().client(t).List(t.Context(), func([]sources.Record) error { return full }); !errors.Is(err, full) {
		t.Errorf("the taker's error became %v", err)
	}
}

// A deletion whose answer is lost has happened or not: it is looked at.
func TestALostAnswerIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, happened := range map[string]bool{"it happened": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.add("a", "c1")
			f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete {
					return false
				}
				if happened {
					f.mu.Lock()
					delete(f.providers["a"].held, "c1")
					f.mu.Unlock()
				}
				panic(http.ErrAbortHandler)
			}
			err := f.peer().client(t, quick).DeleteAllocations(t.Context(), "c1")
			if happened && err != nil {
				t.Error(err)
			}
			if !happened {
				wantKind(t, err, sources.KindTransient)
			}
		})
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"no url":                  {},
		"no scheme":               {URL: "placement:8778"},
		"unknown auth":            {URL: "http://h", Auth: "oauth"},
		"basic without password":  {URL: "http://h", Auth: "http_basic", User: "u"},
		"keystone without a url":  {Auth: "keystone", User: "u", Password: "p"},
		"keystone without a user": {Auth: "keystone"},
	} {
		if _, err := New(config, time.Now); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
