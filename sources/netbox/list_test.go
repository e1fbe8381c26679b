package netbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources"
)

// scripted answers the requests for devices with given bodies, one after the
// other, the last one again and again; SELF in them is the server's address. It
// has no racks.
func scripted(t *testing.T, pages ...string) *Client {
	t.Helper()
	asked := 0
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"count":0,"next":null,"results":[]}`
		if strings.HasSuffix(r.URL.Path, "/devices/") && r.URL.Query().Get("limit") != "1" {
			body = strings.ReplaceAll(pages[min(asked, len(pages)-1)], "SELF", server.URL)
			body = strings.ReplaceAll(body, "PORT", server.URL[strings.LastIndex(server.URL, ":")+1:])
			asked++
		}
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return endpoint{url: server.URL, token: "x", site: "s"}.connect(t, nil)
}

// page gives a page with devices of our site.
func pageOf(count int, next string, ids ...int) string {
	if next == "" {
		next = "null"
	} else {
		next = `"` + next + `"`
	}
	var devices []string
	for _, id := range ids {
		devices = append(devices, fmt.Sprintf(`{"id":%d,"name":"n%d","site":{"slug":"s"},"role":{"id":3,"url":"x","display":"Compute","name":"Compute","slug":"compute"},"status":{"value":"active"}}`, id, id))
	}
	return fmt.Sprintf(`{"count":%d,"next":%s,"results":[%s]}`, count, next, strings.Join(devices, ","))
}

func ids(from, to int) (all []int) {
	for id := from; id <= to; id++ {
		all = append(all, id)
	}
	return all
}

func TestAListingIsCompleteOrFails(t *testing.T) {
	t.Parallel()
	const next = "SELF/api/dcim/devices/?limit=50&offset=50"
	broken := strings.Replace(pageOf(3, "", 1, 2), `{"id":1,`, `{"id":{},`, 1)
	for name, c := range map[string]struct {
		pages   []string
		records int // given, of a listing that fails too
		dropped int
		fails   string // what its error says, "" for none
	}{
		"one brief object":                 {[]string{pageOf(1, "", 1)}, 1, 0, ""},
		"none at all":                      {[]string{pageOf(0, "")}, 0, 0, ""},
		"pages of NetBox's own size":       {[]string{pageOf(80, next, ids(1, 50)...), pageOf(80, "", ids(51, 80)...)}, 80, 0, ""},
		"an id on two pages":               {[]string{pageOf(3, next, 1, 2), pageOf(3, "", 2, 3)}, 3, 0, ""},
		"an element without an id":         {[]string{strings.Replace(pageOf(2, "", 1, 2), `{"id":1,`, `{"id":"x",`, 1)}, 1, 1, ""},
		"more than it counts":              {[]string{pageOf(1, "", 1, 2)}, 2, 0, ""},
		"a list that moved once":           {[]string{pageOf(4, next, 1, 2), pageOf(3, "", 4), pageOf(3, next, 1, 3), pageOf(3, "", 4)}, 4, 0, ""},
		"the first page as if it were all": {[]string{pageOf(10296, "", 1)}, 1, 0, "10296"},
		"a page missing":                   {[]string{pageOf(5, next, 1, 2), pageOf(5, "", 5)}, 3, 0, "counts 5"},
		"one element lost, one missing":    {[]string{broken}, 1, 0, "counts 3"},
		"a count that always moves":        {[]string{pageOf(3, next, 1), pageOf(4, "", 2), pageOf(5, next, 3), pageOf(6, "", 4), pageOf(7, next, 5), pageOf(8, "", 6)}, 6, 0, "changes"},
		"a page that leads to itself":      {[]string{pageOf(3, next, 1), pageOf(3, next, 2)}, 2, 0, "read before"},
		"an empty page with a next":        {[]string{pageOf(3, next, 1), pageOf(3, next+"&x=1")}, 1, 0, "empty page"},
		"a cursor, which counts none":      {[]string{`{"count":null,"next":null,"results":[]}`}, 0, 0, "count"},
		"no results":                       {[]string{`{"count":3,"next":null}`}, 0, 0, "results"},
		"results that are none":            {[]string{`{"count":3,"next":null,"results":{}}`}, 0, 0, "results"},
		"a single device":                  {[]string{`{"id":4,"name":"x"}`}, 0, 0, "no page"},
		"a page of HTML":                   {[]string{"<!DOCTYPE html><title>Sign in</title>"}, 0, 0, "check the url"},
		"HTML after the first page":        {[]string{pageOf(3, next, 1), "<html>"}, 1, 0, "check the url"},
		"cut short":                        {[]string{pageOf(3, "", 1, 2)[:90]}, 0, 0, "in place of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listAll(t, scripted(t, c.pages...))
			if len(l.records) != c.records || (l.err == nil) != (c.fails == "") || l.end.Complete != (c.fails == "") || l.end.Dropped != c.dropped {
				t.Fatalf("%d records, %+v, %v", len(l.records), l.end, l.err)
			}
			if c.fails != "" && (sources.KindOf(l.err) != sources.KindTransient || !strings.Contains(l.err.Error(), c.fails)) {
				t.Errorf("%v, want %q", l.err, c.fails)
			}
		})
	}
}

func TestTheNextPageIsReadFromNetBoxOnly(t *testing.T) {
	t.Parallel()
	stolen := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stolen <- r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	for name, next := range map[string]string{
		"another host": "http://netbox.example:PORT/api/dcim/devices/?offset=1", "another port": other.URL + "/api/dcim/devices/?offset=1",
		"another scheme": "https://127.0.0.1/api/", "no address": "?offset=1", "rubbish": "http://[::1/", "a user": "http://u:p@SELF/",
	} {
		l := listAll(t, scripted(t, pageOf(2, next, 1), pageOf(2, "", 2)))
		if sources.KindOf(l.err) != sources.KindRefused || l.end.Complete || len(l.records) != 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	select {
	case token := <-stolen:
		t.Errorf("the token went elsewhere: %q", token)
	default:
	}
	for ours, next := range map[string]string{
		"https://netbox.example": "https://netbox.example:443/api/x", "https://NetBox.example:443/nb/": "https://netbox.example/nb/api/x", "http://netbox.example/api/": "http://netbox.example:80/x",
	} {
		if err := (endpoint{url: ours, token: "x", site: "s"}).connect(t, nil).onward(next); err != nil {
			t.Errorf("%s then %s: %v", ours, next, err)
		}
	}
}

// A filter that NetBox does not know is ignored: all devices come.
func TestDevicesOfOtherSitesAreNotGivenWhateverIsAsked(t *testing.T) {
	t.Parallel()
	page := strings.Replace(pageOf(3, "", 1, 2, 3), `"n2","site":{"slug":"s"}`, `"n2","site":{"slug":"elsewhere"}`, 1)
	page = strings.Replace(page, `"n3","site":{"slug":"s"}`, `"n3","site":{"id":7}`, 1)
	l := listAll(t, scripted(t, page))
	if l.err != nil || !l.end.Complete || l.end.Elsewhere != 1 || l.end.Records != 2 || l.records["1"].Netbox == nil {
		t.Fatalf("%+v", l)
	}
	if r := l.records["3"]; r.Netbox != nil || r.Undecodable == "" {
		t.Errorf("a device whose site cannot be read: %+v", r)
	}
}

// A rack that is not among those that NetBox shows may share its name with
// another one: it is not known, and the device keeps the one it has.
func TestTheRackOfADeviceThatNoListOfRacksHasIsNotKnown(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	hidden := true
	f.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if hidden && strings.Contains(r.URL.Path, "/racks/") {
			reply(w, 200, map[string]any{"count": 1, "next": nil, "results": f.racks[1:2]})
			return true
		}
		return false
	}
	c := endpoint{url: f.server.URL, token: "good", site: "site-a"}.connect(t, nil)
	l := listAll(t, c)
	if l.err != nil || l.records["3"].Netbox.Rack.Known || l.records["4"].Netbox.Rack != known("R02") {
		t.Errorf("%+v %+v %v", l.records["3"].Netbox, l.records["4"].Netbox, l.err)
	}
	f.mu.Lock()
	hidden = false
	f.mu.Unlock()
	if r, err := c.Get(t.Context(), "3"); err != nil || r.Netbox.Rack != known("R01 (Hall 1)") {
		t.Errorf("read on its own once the rack can be seen: %+v %v", r, err)
	}
}

// Nor do their racks make those of ours share a name.
func TestRacksOfOtherSitesDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	f.racks[3]["name"] = "R02"
	f.before = func(_ *fake, r *http.Request) {
		if strings.Contains(r.URL.Path, "/racks/") {
			r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "site=", "nosuch=")
		}
	}
	l := listAll(t, endpoint{url: f.server.URL, token: "good", site: "site-a"}.connect(t, nil))
	if l.err != nil || l.records["4"].Netbox.Rack != known("R02") {
		t.Errorf("%+v %v", l.records["4"].Netbox, l.err)
	}
}

func TestAnAnswerOfAnotherDeviceIsNone(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	f.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/9/") {
			reply(w, 200, f.wire(f.devices[10]))
			return true
		}
		return false
	}
	c := endpoint{url: f.server.URL, token: "good", site: "site-a"}.connect(t, nil)
	if _, err := c.Get(t.Context(), "9"); sources.KindOf(err) != sources.KindTransient || errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestRecordsKeepTheInstantBeforeTheirPage(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(time.Second); return now }
	c, err := New(Config{URL: f.server.URL, Token: "good", PageSize: 10, Sites: []string{"site-a"}}, clock, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var last time.Time
	end, err := c.List(t.Context(), func(page []sources.Record) error {
		for _, r := range page {
			if r.At != page[0].At {
				t.Errorf("two instants within a page")
			}
		}
		if !page[0].At.After(last) {
			t.Errorf("page of %s after %s", page[0].At, last)
		}
		last = page[0].At
		return nil
	})
	if err != nil || !end.At.Before(last) {
		t.Errorf("%+v %v", end, err)
	}
	stop := errors.New("enough")
	if _, err := c.List(t.Context(), func([]sources.Record) error { return stop }); err != stop {
		t.Errorf("what stops a listing is not what it ends with: %v", err)
	}
}

func TestRacksThatMayNotBeSeenAreSaid(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	f.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/racks/") {
			detail(w, 403, "You do not have permission to perform this action.")
			return true
		}
		return false
	}
	c := endpoint{url: f.server.URL, token: "good", site: "site-a"}.connect(t, nil)
	l := listAll(t, c)
	if l.err != nil || fmt.Sprint(l.end.Lost) != "[racks]" || l.records["3"].Netbox.Rack != known("R01") {
		t.Errorf("%+v %v", l.end, l.err)
	}
	f.mu.Lock()
	f.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/racks/") {
			detail(w, 503, "busy")
			return true
		}
		return false
	}
	f.mu.Unlock()
	// Else every device of two racks of one name would move for a moment.
	if l := listAll(t, c); sources.KindOf(l.err) != sources.KindTransient || len(l.records) > 0 {
		t.Errorf("racks that cannot be read now: %+v", l)
	}
}

func TestASilentNetBoxFailsTheListingInTime(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(server.Close)
	defer close(stop)
	c := endpoint{url: server.URL, token: "x", site: "s"}.connect(t, func(c *Config) { c.HTTP.HeaderTimeout = 50 * time.Millisecond })
	if l := listAll(t, c); sources.KindOf(l.err) != sources.KindTransient {
		t.Errorf("%v", l.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, "1"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("a caller that gave up: %v", err)
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	good := Config{URL: "https://netbox.example/api/", Token: "x", Sites: []string{"a"}}
	if _, err := New(good, time.Now, nil); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no url": func(c *Config) { c.URL = "" }, "another scheme": func(c *Config) { c.URL = "ftp://x" }, "a query": func(c *Config) { c.URL = "http://x/?a=b" },
		"no token": func(c *Config) { c.Token = "" }, "no site": func(c *Config) { c.Sites = nil }, "an empty site": func(c *Config) { c.Sites = []string{"a", ""} },
		"a page of less than none": func(c *Config) { c.PageSize = -1 }, "no CA": func(c *Config) { c.HTTP.TLS.CAFile = filepath.Join(t.TempDir(), "none") },
	} {
		c := good
		change(&c)
		if _, err := New(c, time.Now, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := New(good, nil, nil); err == nil {
		t.Error("no clock is accepted")
	}
}

func TestATokenFileThatIsNoneSaysSo(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	file := filepath.Join(t.TempDir(), "token")
	c := endpoint{url: f.server.URL, site: "site-a"}.connect(t, func(c *Config) { c.TokenFile = file })
	for _, text := range []string{"", "two words", " \n"} {
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(t.Context(), "1"); sources.KindOf(err) != sources.KindForbidden || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(file, []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "1"); err != nil {
		t.Errorf("the token from before does not stand: %v", err)
	}
}

// What stays as it is is said once, whoever drops the client between two
// listings because something else was forbidden.
func TestWhatNetBoxIsLikeIsLoggedWhenItChanges(t *testing.T) {
	t.Parallel()
	f := newFake(t, 47)
	hide := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/racks/") {
			return false
		}
		detail(w, 403, "You do not have permission to perform this action.")
		return true
	}
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
	told := &Told{}
	list := func(instead func(http.ResponseWriter, *http.Request) bool) {
		t.Helper()
		f.mu.Lock()
		f.instead = instead
		f.mu.Unlock()
		c, err := New(Config{URL: f.server.URL, Token: "good", Sites: []string{"site-a"}, HTTP: sources.Options{Retries: -1, BreakerFailures: -1}, Told: told}, time.Now, logger)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 2 {
			if l := listAll(t, c); l.err != nil {
				t.Fatal(l.err)
			}
		}
	}
	said := func(answers, hidden, shown int) {
		t.Helper()
		for text, want := range map[string]int{"NetBox answers": answers, "shows no racks": hidden, "shows its racks": shown} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, got, want, &log)
			}
		}
	}
	list(hide)
	list(hide)
	said(1, 1, 0)
	list(nil)
	list(nil)
	said(1, 1, 1)
	list(hide)
	said(1, 2, 1)
	f.generation = 46
	list(hide)
	said(2, 2, 1)
}
