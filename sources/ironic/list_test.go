package ironic

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// answering gives a client of a server that answers listings with body, after
// a good negotiation; {URL} in it is the server's.
func answering(t *testing.T, status int, body func(marker string) string) (*Client, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerMax, "1.82")
		if r.URL.Path == "/v1/" {
			fmt.Fprint(w, "{}")
			return
		}
		calls.Add(1)
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(body(r.URL.Query().Get("marker")), "{URL}", server.URL))
	}))
	t.Cleanup(server.Close)
	return (&peer{config: Config{URL: server.URL + "/v1/"}}).client(t, quick), &calls
}

// quick takes the waiting out of a client.
func quick(c *Config) {
	c.Poll = 2 * time.Second
	c.HTTP.Retries = -1
	c.HTTP.BreakerFailures = -1
	c.HTTP.Wait = noWait
}

func TestAWalkThatDoesNotEndIsAFailedRead(t *testing.T) {
	t.Parallel()
	node := `{"nodes": [{"uuid": "a"}], "next": "%s"}`
	for name, test := range map[string]struct {
		next func(marker string) string
		says string
	}{
		"the same page again": {func(string) string { return "{URL}/v1/nodes?marker=a" }, "read already"},
		"two pages in turn": {func(m string) string {
			return "{URL}/v1/nodes?marker=" + map[string]string{"": "a", "a": "b", "b": "a"}[m]
		}, "read already"},
		"another host":         {func(string) string { return "http://ironic.example:6385/v1/nodes?marker=a" }, "public_endpoint"},
		"another port":         {func(string) string { return "http://127.0.0.1:1/v1/nodes?marker=a" }, "public_endpoint"},
		"no marker":            {func(string) string { return "{URL}/v1/nodes?limit=1" }, "no marker"},
		"no link but its word": {func(string) string { return "::" }, "cannot be read"},
	} {
		c, calls := answering(t, 200, func(m string) string { return fmt.Sprintf(node, test.next(m)) })
		end, err := c.List(t.Context(), func([]sources.Record) error { return nil })
		wantKind(t, err, sources.KindTransient)
		if !strings.Contains(err.Error(), test.says) || calls.Load() > 3 || end.Complete {
			t.Errorf("%s: %v after %d calls, end %+v", name, err, calls.Load(), end)
		}
	}
	c, _ := answering(t, 200, func(string) string { return `{"nodes": [], "next": "{URL}/v1/nodes?marker=a"}` })
	_, err := c.List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindTransient)
}

func TestTheNumberOfPagesIsBounded(t *testing.T) {
	t.Parallel()
	s := at(newest)
	c, _ := answering(t, 200, func(string) string { return "" })
	must(t, errOf(c.session(t.Context())))
	s.sc = c.current.sc
	l := listing{client: c, session: s, markers: map[string]bool{}}
	for i := range maxPages {
		if _, err := l.follow(s.sc.Endpoint+fmt.Sprintf("v1/nodes?marker=m%d", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.follow(s.sc.Endpoint+"v1/nodes?marker=last", 1); err == nil {
		t.Error("one page more was followed")
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestTheNextLinkMayShowWhatAProxyChanged(t *testing.T) {
	t.Parallel()
	c, _ := answering(t, 200, func(m string) string {
		if m == "" {
			return `{"nodes": [{"uuid": "a"}], "next": "{URL}/baremetal/v1/nodes?marker=a"}`
		}
		return `{"nodes": [{"uuid": "b"}]}`
	})
	records, _ := list(t, c)
	if len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
	for own, link := range map[string]string{"https://h:6385/": "http://h:6385/v1?marker=x", "https://h/": "http://h/v1?marker=x", "https://h:443/": "https://H/v1?marker=x"} {
		s := at(newest)
		service := *c.current.sc
		service.Endpoint, s.sc = own, &service
		l := listing{session: s, markers: map[string]bool{}}
		if _, err := l.follow(link, 1); err != nil {
			t.Errorf("%s from %s: %v", link, own, err)
		}
	}
}

func TestWhatIsNoListingIsAFailedRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		kind   sources.Kind
	}{
		"an HTML page":             {200, "<html><body>Please log in</body></html>", sources.KindTransient},
		"an empty body":            {200, "", sources.KindTransient},
		"cut short":                {200, `{"nodes": [{"uuid": "a"}, {"uu`, sources.KindTransient},
		"no nodes":                 {200, `{}`, sources.KindTransient},
		"null nodes":               {200, `{"nodes": null}`, sources.KindTransient},
		"nodes of another type":    {200, `{"nodes": {"a": 1}}`, sources.KindTransient},
		"a list":                   {200, `[]`, sources.KindTransient},
		"errors beside nodes":      {200, `{"nodes": [], "errors": [{"title": "boom"}]}`, sources.KindTransient},
		"an error with status 200": {200, `{"error_message": "{\"faultstring\": \"boom\"}"}`, sources.KindTransient},
		"a next that is no text":   {200, `{"nodes": [], "next": 7}`, sources.KindTransient},
		"503 as HTML":              {503, "<html>Resource temporarily unavailable, please retry.</html>", sources.KindTransient},
		"503 as JSON":              {503, `{"error_message": "{\"faultstring\": \"no conductor\"}"}`, sources.KindTransient},
		"404 of a proxy":           {404, "<html>not here</html>", sources.KindTransient},
		"401":                      {401, `{"error": {"code": 401, "message": "no"}}`, sources.KindForbidden},
		"403":                      {403, `{"error_message": "{\"faultstring\": \"Access was denied\"}"}`, sources.KindForbidden},
		"a redirect elsewhere":     {301, "", sources.KindRefused},
	} {
		c, _ := answering(t, test.status, func(string) string { return test.body })
		end, err := c.List(t.Context(), func([]sources.Record) error { return nil })
		if err == nil || sources.KindOf(err) != test.kind || end.Complete {
			t.Errorf("%s: %v, end %+v", name, err, end)
		}
	}
}

// One bad record costs that record: the others are given, and the end says
// that there was one, so that nothing counts as missing.
func TestABadRecordCostsOneRecord(t *testing.T) {
	t.Parallel()
	c, _ := answering(t, 200, func(string) string {
		return `{"nodes": [{"uuid": "a", "maintenance": false}, 7, null, {"name": "no uuid"}, {"uuid": null}, {"uuid": 5}, {"uuid": "x/y"}, [],
			{"uuid": "b", "maintenance": "yes"}, {"uuid": "a", "maintenance": true}]}`
	})
	records, end := list(t, c)
	if len(records) != 2 || end.Dropped != 7 {
		t.Fatalf("%d records, %d dropped", len(records), end.Dropped)
	}
	if records["a"].Ironic.Maintenance != facts.False || records["b"].Ironic.Unreadable["maintenance"] != sources.ReasonDecodeFailed {
		t.Errorf("%+v, %+v", records["a"].Ironic, records["b"].Ironic)
	}
}

func TestAListingThatFailsOnTheWayHasNoEnd(t *testing.T) {
	t.Parallel()
	c, _ := answering(t, 200, func(m string) string {
		if m == "" {
			return `{"nodes": [{"uuid": "a"}], "next": "{URL}/v1/nodes?marker=a"}`
		}
		return "<html>"
	})
	given := 0
	end, err := c.List(t.Context(), func(page []sources.Record) error { given += len(page); return nil })
	wantKind(t, err, sources.KindTransient)
	if given != 1 || end.Complete || end.Records != 0 {
		t.Errorf("%d given, end %+v", given, end)
	}
	stop := errors.New("stop")
	if _, err := c.List(t.Context(), func([]sources.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the taker's error became %v", err)
	}
}

func TestARecordIsAsOldAsTheRequestOfItsPage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 6 {
		f.add(fmt.Sprintf("u%d", i), "active", nil)
	}
	var now atomic.Int64
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	now.Store(1000)
	f.intercept = func(_ http.ResponseWriter, r *http.Request) bool { now.Add(1); return false }
	c, err := New(Config{URL: f.URL, PageSize: 2}, clock, hclog.NewNullLogger())
	must(t, err)
	defer c.Close()
	var instants []int64
	end, err := c.List(t.Context(), func(page []sources.Record) error {
		for _, r := range page {
			instants = append(instants, r.At.Unix())
		}
		return nil
	})
	must(t, err)
	// 1000 before the negotiation, which takes it to 1001; each page takes one.
	if want := []int64{1000, 1000, 1002, 1002, 1003, 1003}; !slices.Equal(instants, want) || end.At.Unix() != 1000 {
		t.Errorf("instants %v, want %v; end %s", instants, want, end.At)
	}
}

func TestANodeDeletedAtThePagesEdgeFailsTheListing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("a", "active", nil)
	f.add("b", "active", nil)
	c := (&peer{config: Config{URL: f.URL}}).client(t, quick, func(c *Config) { c.PageSize = 1 })
	_, err := c.List(t.Context(), func([]sources.Record) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.nodes = f.nodes[1:]
		return nil
	})
	wantKind(t, err, sources.KindTransient)
	if errors.Is(err, sources.ErrGone) {
		t.Error("a listing is never gone")
	}
}

func TestHostPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"http://h": "h:80", "https://h": "h:443", "http://h:6385": "h:6385"} {
		u, err := url.Parse(address)
		must(t, err)
		if got := hostPort(u); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
