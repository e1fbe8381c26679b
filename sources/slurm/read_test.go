package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// counter is a Meter that remembers.
type counter struct {
	mu      sync.Mutex
	strange []string
	failed  []string
}

func (m *counter) Unmodelled(node, token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.strange = append(m.strange, node+" "+token)
}

func (m *counter) DecodeFailed(fact string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = append(m.failed, fact)
}

// dial gives a client of a handler, without waits between retries.
func dial(t *testing.T, h http.Handler, change func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	config := Config{URL: server.URL, Token: "good"}
	config.Transport.Wait = func(context.Context, time.Duration) error { return nil }
	if change != nil {
		change(&config)
	}
	c, err := New(config, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// listing is what List gave.
type listing struct {
	end     sources.End
	records map[string]sources.Record
	err     error
}

func listAll(t *testing.T, c *Client) listing {
	t.Helper()
	l := listing{records: map[string]sources.Record{}}
	l.end, l.err = c.List(t.Context(), func(page []sources.Record) error {
		if len(page) > pageSize {
			t.Errorf("a page of %d records", len(page))
		}
		for _, r := range page {
			if _, twice := l.records[r.Ref]; twice {
				t.Errorf("%s is given twice", r.Ref)
			}
			l.records[r.Ref] = r
		}
		return nil
	})
	return l
}

func (l listing) tokens(ref string) string {
	if r := l.records[ref]; r.Slurm != nil {
		return strings.Join(r.Slurm.States.Tokens(), " ")
	}
	return "none"
}

// recorded is one answer of a real slurmrestd, trimmed.
type recorded struct {
	Request string          `json:"request"`
	Status  int             `json:"status"`
	Type    string          `json:"type"`
	Body    json.RawMessage `json:"body"` // a JSON string for text/plain
}

var generations = map[string]string{"22.05.8": "v0.0.38", "24.11.5": "v0.0.42", "26.05.5": "v0.0.45"}

func recordings(t *testing.T, release string) map[string]recorded {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", release+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]recorded
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (r recorded) write(w http.ResponseWriter) {
	body := []byte(r.Body)
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		body = []byte(text)
	}
	w.Header().Set("Content-Type", r.Type)
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}

// replay answers pings as recorded, other versions with 404 as recorded, and
// everything else with one recording.
func replay(all map[string]recorded, version, answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/slurm/"+version+"/"):
			all["wrong-version"].write(w)
		case strings.HasSuffix(r.URL.Path, "/ping"):
			all["ping"].write(w)
		default:
			all[answer].write(w)
		}
	})
}

func TestRecordedNodesAreReadAlikeInEveryGeneration(t *testing.T) {
	t.Parallel()
	for release, version := range generations {
		all := recordings(t, release)
		for answer, want := range map[string]string{
			"node-n0001": "IDLE", "node-n0004-invalreg": "IDLE DRAIN INVALID_REG", "node-n0030-maint-drain": "IDLE RESERVED DRAIN MAINTENANCE",
			"node-dyn1-created-cloud": "IDLE CLOUD POWERED_DOWN DYNAMIC_NORM",
		} {
			t.Run(release+" "+answer, func(t *testing.T) {
				t.Parallel()
				c := dial(t, replay(all, version, answer), nil)
				name := strings.Split(answer, "-")[1]
				if strings.HasPrefix(name, "dyn1") {
					name = "dyn1"
				}
				r, err := c.Get(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(r.Slurm.States.Tokens(), " "); got != want || r.Slurm.Unmodelled || r.Slurm.Listed != facts.True || len(r.Slurm.Unreadable) > 0 {
					t.Errorf("%s %+v, want %s", got, r.Slurm, want)
				}
				if want == "IDLE" && (!r.Slurm.Reason.Known || r.Slurm.Reason.Value != "" || !r.Slurm.ReasonChangedAt.IsZero()) {
					t.Errorf("a node without a reason: %+v", r.Slurm)
				}
			})
		}
		t.Run(release+" listing", func(t *testing.T) {
			t.Parallel()
			l := listAll(t, dial(t, replay(all, version, "nodes"), nil))
			if l.err != nil || !l.end.Complete || l.end.Records != 5 || len(l.records) != 5 || l.end.Dropped != 0 || l.tokens("n0001") != "IDLE" {
				t.Errorf("%+v", l)
			}
			if lost := strings.Join(l.end.Lost, " "); (lost == "node_writes") != (version == "v0.0.38") {
				t.Errorf("lost %q under %s", lost, version)
			}
			if got := strings.Join(l.records["n0001"].Slurm.Partitions, " "); got != "main live" {
				t.Errorf("partitions %q", got)
			}
		})
	}
}

func TestRecordedFailuresAreToldByMeaning(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string]map[string]sources.Kind{
		"tok-expired-nodes": {"22.05.8": sources.KindTransient, "24.11.5": sources.KindForbidden, "26.05.5": sources.KindForbidden},
		"ctld-down-nodes":   {"22.05.8": sources.KindTransient, "24.11.5": sources.KindTransient, "26.05.5": sources.KindTransient},
		"node-unknown":      {"22.05.8": sources.KindMissing, "24.11.5": sources.KindMissing, "26.05.5": sources.KindMissing},
		"wrong-version":     {"22.05.8": sources.KindTransient, "24.11.5": sources.KindTransient, "26.05.5": sources.KindTransient},
		"alice-drain":       {"22.05.8": sources.KindRefused, "24.11.5": sources.KindForbidden, "26.05.5": sources.KindForbidden},
		"resume-on-idle":    {"24.11.5": sources.KindConflict, "26.05.5": sources.KindConflict},
		"bogus-state":       {"24.11.5": sources.KindConflict, "26.05.5": sources.KindConflict},
		"node-post-unknown": {"24.11.5": sources.KindMissing, "26.05.5": sources.KindMissing},
	} {
		for release, kind := range kinds {
			t.Run(name+" "+release, func(t *testing.T) {
				t.Parallel()
				all := recordings(t, release)
				c := dial(t, replay(all, generations[release], name), nil)
				if strings.Contains(all[name].Request, "GET") {
					if l := listAll(t, c); l.err == nil || len(l.records) != 0 || l.end.Complete {
						t.Errorf("a failed listing gives %+v", l)
					}
					_, err := c.Get(t.Context(), "nope")
					if sources.KindOf(err) != kind || errors.Is(err, sources.ErrGone) != (name == "node-unknown") {
						t.Errorf("reading a node: %v, want %s", err, kind)
					}
					return
				}
				_, fault := c.call(t.Context(), "write", "POST", "/node/nope", update{})
				if fault == nil || fault.Kind != kind || errors.Is(fault, ErrNotCapable) != (release == "22.05.8") {
					t.Errorf("writing a node: %v, want %s", fault, kind)
				}
			})
		}
	}
}

// A failed or foreign answer is never an empty cluster and never a node's end.
func TestNoFailureIsAnAbsence(t *testing.T) {
	t.Parallel()
	const meta = `"meta":{"slurm":{"release":"x"}}`
	for name, c := range map[string]struct {
		status     int
		kind, body string
	}{
		"errors beside an empty list":          {200, "application/json", `{"nodes":[],"errors":[{"error_number":1007,"error":"Protocol authentication error"}],` + meta + `}`},
		"errors beside a full list":            {200, "application/json", `{"nodes":[{"name":"n1","state":["IDLE"]}],"errors":[{"error_number":5,"error":"x"}],` + meta + `}`},
		"errors of an unknown form":            {200, "application/json", `{"nodes":[],"errors":"bad",` + meta + `}`},
		"an error without a number":            {200, "application/json", `{"errors":[{"description":"No error"}],` + meta + `}`},
		"an error in a string":                 {200, "application/json", `{"nodes":[],"errors":["bad"],` + meta + `}`},
		"unknown node with a list":             {200, "application/json", `{"nodes":[],"errors":[{"error_number":0,"error":"No error"}],` + meta + `}`},
		"unknown node beside another error":    {200, "application/json", `{"errors":[{"error_number":0},{"error_number":1800}],` + meta + `}`},
		"no list":                              {200, "application/json", `{"errors":[],` + meta + `}`},
		"a null list":                          {200, "application/json", `{"nodes":null,"errors":[],` + meta + `}`},
		"an object for a list":                 {200, "application/json", `{"nodes":{},"errors":[],` + meta + `}`},
		"HTML of a proxy":                      {200, "text/html", `<html>Please log in</html>`},
		"HTML with 502":                        {502, "text/html", `<html>bad gateway</html>`},
		"JSON cut short":                       {200, "application/json", `{"nodes":[{"name":"n1","state":["ID`},
		"two documents":                        {200, "application/json", `{"nodes":[]}{"nodes":[]}`},
		"a bare list":                          {200, "application/json", `[]`},
		"an empty body":                        {200, "application/json", ``},
		"500 without a body":                   {500, "text/plain", ``},
		"not modified":                         {304, "", ``},
		"404 of the collection":                {404, "text/plain", `Unable to find requested URL`},
		"404 in JSON, with another error":      {404, "application/json", `{"errors":[{"error_number":2017,"error":"Invalid job id"}],` + meta + `}`},
		"410":                                  {410, "text/plain", `gone`},
		"a redirect":                           {302, "text/html", ``},
		"missing, but not only":                {500, "application/json", `{"nodes":[],"errors":[{"errno":2018},{"errno":-1}],` + meta + `}`},
		"other nodes than the one asked for":   {200, "application/json", `{"nodes":[{"name":"n2","state":["IDLE"]}],"errors":[{"x":1}],` + meta + `}`},
		"204":                                  {204, "", ``},
		"201 with a list":                      {201, "application/json", `{"nodes":[],"errors":[]}`},
		"errors nested where a list should be": {200, "application/json", `{"nodes":[],"errors":[{"error_number":{"set":true}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/ping") {
					_, _ = io.WriteString(w, `{"pings":[],"errors":[]}`)
					return
				}
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}), nil)
			if l := listAll(t, client); l.err == nil || l.end.Complete || len(l.records) > 0 {
				t.Errorf("listing: %+v", l)
			}
			if r, err := client.Get(t.Context(), "n1"); err == nil || errors.Is(err, sources.ErrGone) || sources.KindOf(err) == sources.KindMissing {
				t.Errorf("reading n1: %+v %v", r, err)
			}
		})
	}
}

func TestGetGivesOnlyTheNodeAskedFor(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]string{
		"another": `[{"name":"n2","state":["IDLE"]}]`, "two": `[{"name":"n1","state":["IDLE"]},{"name":"n2","state":["IDLE"]}]`,
		"none": `[]`, "one without a name": `[{"state":["IDLE"]}]`,
	} {
		client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"pings":[],"nodes":`+nodes+`,"errors":[]}`)
		}), nil)
		if r, err := client.Get(t.Context(), "n1"); err == nil || errors.Is(err, sources.ErrGone) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

func TestOneBadNodeCostsOneNode(t *testing.T) {
	t.Parallel()
	const body = `{"pings":[],"errors":[],"warnings":[{"description":"odd"}],"nodes":[
		{"name":"n1","state":["IDLE"]}, 7, {"state":["IDLE"]}, null,
		{"name":"n2","state":{"x":1},"reason":"r"},
		{"name":"n3","state":["IDLE","SHINY"]}, {"name":"n3","state":["IDLE","SHINY"]},
		{"name":"n4","state":["IDLE"]}, {"name":"n4","state":["DOWN"]}]}`
	meter := &counter{}
	var log bytes.Buffer
	client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }),
		func(c *Config) { c.Meter = meter })
	client.log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})
	for range 2 {
		l := listAll(t, client)
		if l.err != nil || !l.end.Complete || l.end.Dropped != 3 || l.end.Records != 4 || len(l.records) != 4 {
			t.Fatalf("%+v", l)
		}
		if l.tokens("n1") != "IDLE" || l.tokens("n2") != "" || l.records["n2"].Slurm.Reason.Value != "r" || l.tokens("n3") != "IDLE" {
			t.Errorf("%+v", l.records)
		}
		if n3 := l.records["n3"].Slurm; !n3.Unmodelled || strings.Join(n3.UnknownTokens, " ") != "SHINY" {
			t.Errorf("n3: %+v", n3)
		}
		if n4 := l.records["n4"]; n4.Slurm != nil || n4.Undecodable == "" {
			t.Errorf("a node of two minds is believed: %+v", n4)
		}
	}
	if n := strings.Count(log.String(), "node=n3"); n != 1 || !strings.Contains(log.String(), "token=SHINY") {
		t.Errorf("warned %d times of n3:\n%s", n, &log)
	}
	if len(meter.strange) == 0 || meter.strange[0] != "n3 SHINY" || len(meter.failed) == 0 || meter.failed[0] != "states" {
		t.Errorf("counted %v and %v", meter.strange, meter.failed)
	}
}

func TestAListingComesInPagesAndStopsWhenAsked(t *testing.T) {
	t.Parallel()
	var nodes []string
	for i := range 1234 {
		nodes = append(nodes, fmt.Sprintf(`{"name":"n%d","state":["IDLE"]}`, i))
	}
	client := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"pings":[],"errors":[],"nodes":[`+strings.Join(nodes, ",")+`]}`)
	}), nil)
	before := time.Now()
	l := listAll(t, client)
	if len(l.records) != 1234 || l.end.Records != 1234 || l.end.At.Before(before) || !l.records["n7"].At.Equal(l.end.At) {
		t.Errorf("%d records, end %+v", len(l.records), l.end)
	}
	stop := errors.New("enough")
	pages := 0
	end, err := client.List(t.Context(), func([]sources.Record) error { pages++; return stop })
	if !errors.Is(err, stop) || pages != 1 || end.Complete {
		t.Errorf("%d pages, %+v, %v", pages, end, err)
	}
}

func TestTheInstantIsThatBeforeTheRequest(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tick := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	f := newFake(42, 2)
	f.before = func(*fake, bool) { mu.Lock(); now = now.Add(time.Minute); mu.Unlock() }
	client := dial(t, f, nil)
	client.clock = tick
	if _, err := client.Capabilities(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := tick()
	r, err := client.Get(t.Context(), "n0001")
	if err != nil || !r.At.Equal(before) || tick().Equal(before) {
		t.Errorf("%v %v, want %v", r, err, before)
	}
}

func TestNamesThatSLURMWouldExpandAreRefusedUnsent(t *testing.T) {
	t.Parallel()
	f := newFake(42, 3)
	asked := 0
	f.before = func(*fake, bool) { asked++ }
	client := dial(t, f, nil)
	for _, name := range []string{"", "n[0001-0003]", "n0001,n0002", "n%5B1-2%5D", "ALL", "all", "DEFAULT", "../jobs", "n1/..", "n1?x=1", "n1#", "n1 n2", "n{1}", "..", ".", "-n1", "n\x00", "né", strings.Repeat("n", 300)} {
		if _, err := client.Get(t.Context(), name); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("reading %q: %v", name, err)
		}
		if _, err := client.Drain(t.Context(), name, "muster:1", "x"); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("draining %q: %v", name, err)
		}
		if _, err := client.Resume(t.Context(), name, "muster:1"); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("resuming %q: %v", name, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d requests were sent", asked)
	}
}
