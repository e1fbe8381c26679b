package faultproxy_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/faultproxy"
)

// listing serves two pages of an Ironic.
var listing = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if q.URL.Query().Get("marker") == "" {
		_, _ = io.WriteString(w, `{"nodes":[{"uuid":"a"}],"next":"/v1/nodes?marker=a"}`)
		return
	}
	_, _ = io.WriteString(w, `{"nodes":[{"uuid":"b"}]}`)
})

// TestEachFaultIsSeen asks through the middleware and through the reverse proxy.
func TestEachFaultIsSeen(t *testing.T) {
	t.Parallel()
	real := httptest.NewServer(listing)
	t.Cleanup(real.Close)
	target, err := url.Parse(real.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, mount := range map[string]func(*faultproxy.Rules) http.Handler{
		"before a handler": func(r *faultproxy.Rules) http.Handler { return r.Wrap("ironic", "sim1", listing) },
		"before a system":  func(r *faultproxy.Rules) http.Handler { return r.Proxy("ironic", "sim1", target, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				name string
				rule faultproxy.Rule
				want func(*http.Response, string, error) bool
			}{
				{"status", faultproxy.Rule{Kind: "status", Code: 429, RetryAfter: 1500 * time.Millisecond}, func(r *http.Response, _ string, err error) bool {
					return err == nil && r.StatusCode == 429 && r.Header.Get("Retry-After") == "2"
				}},
				{"delay", faultproxy.Rule{Kind: "delay", For: time.Millisecond}, func(_ *http.Response, body string, err error) bool {
					return err == nil && strings.Contains(body, `"b"`)
				}},
				{"stall", faultproxy.Rule{Kind: "stall", For: time.Millisecond}, func(_ *http.Response, _ string, err error) bool { return err != nil }},
				{"reset", faultproxy.Rule{Kind: "reset"}, func(_ *http.Response, _ string, err error) bool { return err != nil }},
				{"truncate", faultproxy.Rule{Kind: "truncate"}, func(r *http.Response, body string, err error) bool {
					return r != nil && errors.Is(err, io.ErrUnexpectedEOF) && strings.HasPrefix(body, `{"nodes"`)
				}},
				{"html", faultproxy.Rule{Kind: "html"}, func(r *http.Response, body string, _ error) bool {
					return r != nil && r.StatusCode == 200 && strings.HasPrefix(body, "<!DOCTYPE")
				}},
				{"empty", faultproxy.Rule{Kind: "empty"}, func(_ *http.Response, body string, _ error) bool { return body == `{"nodes":[]}` }},
				{"drip", faultproxy.Rule{Kind: "drip", For: 32 * time.Millisecond}, func(_ *http.Response, body string, err error) bool {
					return err == nil && body == `{"nodes":[{"uuid":"b"}]}`
				}},
				{"skew", faultproxy.Rule{Kind: "skew", For: time.Hour}, func(r *http.Response, _ string, _ error) bool {
					at, err := http.ParseTime(r.Header.Get("Date"))
					return err == nil && time.Until(at) > 50*time.Minute
				}},
			} {
				var rules faultproxy.Rules
				c.rule.Times = 1
				if _, err := rules.Add(c.rule); err != nil {
					t.Fatal(err)
				}
				server := httptest.NewServer(mount(&rules))
				response, body, err := get(server.URL + "/v1/nodes?marker=a")
				if !c.want(response, body, err) {
					t.Errorf("%s: %+v %q %v", c.name, response, body, err)
				}
				if c.name != "skew" {
					if _, body, err := get(server.URL + "/v1/nodes?marker=a"); err != nil || body != `{"nodes":[{"uuid":"b"}]}` {
						t.Errorf("%s: after the only time it is %q, %v", c.name, body, err)
					}
				}
				server.Close()
			}
		})
	}
}

func get(from string) (*http.Response, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Get(from)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// A duplicated page is the first one for every marker; other paths are right.
func TestADuplicatedPageIsTheFirstOne(t *testing.T) {
	t.Parallel()
	var rules faultproxy.Rules
	if _, err := rules.Add(faultproxy.Rule{Kind: faultproxy.Duplicate, Path: "/nodes"}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(rules.Wrap("ironic", "sim1", listing))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{"/v1/nodes": `"a"`, "/v1/other?marker=a": `"b"`} {
		if _, body, err := get(server.URL + path); err != nil || !strings.Contains(body, want) {
			t.Errorf("%s is %s, %v", path, body, err)
		}
	}
	if _, body, _ := get(server.URL + "/v1/nodes?marker=a"); !strings.Contains(body, `"a"`) {
		t.Errorf("the second page is %s", body)
	}
	if hits := rules.List()[0].Hits; hits != 2 {
		t.Errorf("%d hits", hits)
	}
}

// NetBox's listing counts itself, Redfish's too, SLURM's brings its errors.
func TestAListingOfAnySystemIsEmptied(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"count":3,"next":"http://x/?offset=1","previous":null,"results":[{"id":1}]}`: `{"count":0,"next":null,"previous":null,"results":[]}`,
		`{"Members":[{"a":1}],"Members@odata.count":1,"Name":"x"}`:                     `{"Members":[],"Members@odata.count":0,"Name":"x"}`,
		`{"nodes":[1],"errors":[{"error":"x"}],"warnings":[]}`:                         `{"errors":[{"error":"x"}],"nodes":[],"warnings":[]}`,
		`{"uuid":"a","traits":["CUSTOM_X"]}`:                                           `{"uuid":"a","traits":["CUSTOM_X"]}`, // one thing by itself
		`no json`:                                                                      `no json`,
	} {
		var rules faultproxy.Rules
		if _, err := rules.Add(faultproxy.Rule{Kind: faultproxy.Empty}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		rules.Wrap("", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })).
			ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := r.Body.String(); got != want {
			t.Errorf("%s becomes %s", body, got)
		}
	}
}

// A rule meets what it names, and one that cannot be is refused.
func TestARuleMeetsWhatItNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule faultproxy.Rule
		want int
	}{
		{faultproxy.Rule{}, 503},
		{faultproxy.Rule{Face: "ironic", Site: "sim1", Method: "get", Path: "nodes", Code: 418}, 418},
		{faultproxy.Rule{Face: "slurm"}, 200},
		{faultproxy.Rule{Site: "sim2"}, 200},
		{faultproxy.Rule{Method: "POST"}, 200},
		{faultproxy.Rule{Path: "ports"}, 200},
		{faultproxy.Rule{Path: "v1/nodes$"}, 503},
		{faultproxy.Rule{Path: "v1$"}, 200},
	} {
		c.rule.Kind = faultproxy.Status
		var rules faultproxy.Rules
		if _, err := rules.Add(c.rule); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		rules.Wrap("ironic", "sim1", listing).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/v1/nodes", nil))
		if r.Code != c.want {
			t.Errorf("%+v answers %d", c.rule, r.Code)
		}
	}
	for _, wrong := range []faultproxy.Rule{{}, {Kind: "flood"}, {Kind: "status", Code: 99}, {Kind: "delay", For: -1}, {Kind: "stall", For: 2 * time.Hour}, {Kind: "reset", Times: -1}, {Kind: "html", Share: 1.5}, {Kind: "skew", For: 10000 * time.Hour}} {
		if _, err := (&faultproxy.Rules{}).Add(wrong); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

// What waits by a rule ends with it.
func TestATakenRuleLetsGoWhatItHolds(t *testing.T) {
	t.Parallel()
	for kind, well := range map[faultproxy.Kind]bool{faultproxy.Stall: false, faultproxy.Delay: true, faultproxy.Drip: true} {
		var rules faultproxy.Rules
		rule, err := rules.Add(faultproxy.Rule{Kind: kind, For: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(rules.Wrap("ironic", "sim1", listing))
		t.Cleanup(server.Close)
		done := make(chan error, 1)
		go func() { _, _, err := get(server.URL + "/v1/nodes"); done <- err }()
		for rules.List()[0].Hits == 0 {
			runtime.Gosched()
		}
		rules.Remove(rule.ID)
		select {
		case err := <-done:
			if (err == nil) != well {
				t.Errorf("%s: %v", kind, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s still holds", kind)
		}
	}
}

// Rules are listed, removed one by one and cleared.
func TestRulesAreTakenAway(t *testing.T) {
	t.Parallel()
	var rules faultproxy.Rules
	for range 3 {
		if _, err := rules.Add(faultproxy.Rule{Kind: faultproxy.Reset}); err != nil {
			t.Fatal(err)
		}
	}
	if !rules.Remove(2) || rules.Remove(2) || len(rules.List()) != 2 || rules.Clear() != 2 || len(rules.List()) != 0 {
		t.Errorf("left are %v", rules.List())
	}
}

// What pages hold and where they lead is wrong in three ways.
func TestPagesRepeatOrLeadToThemselves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind      faultproxy.Kind
		elements  string
		first     bool // the page leads to a next one, by the first page's own word
		leadsHere bool
	}{
		{faultproxy.Duplicate, `"a"`, true, false},
		{faultproxy.Repeat, `"a"`, false, false},
		{faultproxy.Loop, `"b"`, false, true},
	} {
		var rules faultproxy.Rules
		if _, err := rules.Add(faultproxy.Rule{Kind: c.kind}); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(rules.Wrap("ironic", "sim1", listing))
		t.Cleanup(server.Close)
		second := server.URL + "/v1/nodes?marker=a"
		if _, _, err := get(server.URL + "/v1/nodes"); err != nil {
			t.Fatal(err)
		}
		_, body, err := get(second)
		if err != nil || !strings.Contains(body, c.elements) || strings.Contains(body, `"next":"/v1`) != c.first || strings.Contains(body, `"next":"`+second+`"`) != c.leadsHere {
			t.Errorf("%s: %s, %v", c.kind, body, err)
		}
	}
}

// A clock that is off shows in every instant of an answer, however it is written.
func TestAWrongClockShowsInTheBody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"updated_at":"2026-03-01T23:30:00+00:00","name":"1600000000"}`:   `{"updated_at":"2026-03-02T02:30:00Z","name":"1600000000"}`,
		`{"created":"2026-03-01T10:00:00.000000Z","n":3}`:                  `{"created":"2026-03-01T13:00:00Z","n":3}`,
		`{"issued":"2026-03-01T10:00:00"}`:                                 `{"issued":"2026-03-01T13:00:00"}`,
		`{"boot_time":1772359200,"t":{"set":true,"number": 1772359200}}`:   `{"boot_time":1772370000,"t":{"set":true,"number": 1772370000}}`,
		`{"memory":190000,"serial":"1312345678901","long":15000000000000}`: `{"memory":190000,"serial":"1312345678901","long":15000000000000}`,
	} {
		var rules faultproxy.Rules
		if _, err := rules.Add(faultproxy.Rule{Kind: faultproxy.Skew, For: 3 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		rules.Wrap("", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })).
			ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := r.Body.String(); got != want {
			t.Errorf("%s becomes %s", body, got)
		}
	}
}

// Chance meets the same requests again for the same seed, about the share of them.
func TestChanceFollowsTheSeed(t *testing.T) {
	t.Parallel()
	met := func(seed uint64) (codes []int) {
		var rules faultproxy.Rules
		if _, err := rules.Add(faultproxy.Rule{Kind: faultproxy.Status, Share: 0.3, Seed: seed}); err != nil {
			t.Fatal(err)
		}
		h := rules.Wrap("", "", listing)
		for range 200 {
			r := httptest.NewRecorder()
			h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/v1/nodes", nil))
			codes = append(codes, r.Code)
		}
		if hits := rules.List()[0].Hits; hits < 30 || hits > 90 {
			t.Errorf("%d of 200 are met", hits)
		}
		return codes
	}
	if first := met(1); !slices.Equal(first, met(1)) || slices.Equal(first, met(2)) {
		t.Error("the seed does not decide")
	}
}
