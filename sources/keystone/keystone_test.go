package keystone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// fake is a Keystone with one user, and a service that takes its tokens.
type fake struct {
	*httptest.Server
	service *httptest.Server

	mu      sync.Mutex
	issued  int
	valid   string
	catalog string // "" names the service
	refusal func(w http.ResponseWriter)
	seen    []string // Authorization and token headers of the service's calls
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.identity))
	f.service = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	t.Cleanup(f.service.Close)
	return f
}

func (f *fake) identity(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method == http.MethodGet {
		_, _ = fmt.Fprintf(w, `{"version": {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": "http://%s/v3/"}]}}`, r.Host)
		return
	}
	if f.refusal != nil {
		f.refusal(w)
		return
	}
	f.issued++
	f.valid = fmt.Sprintf("token-%d", f.issued)
	w.Header().Set("X-Subject-Token", f.valid)
	w.WriteHeader(201)
	catalog := f.catalog
	if catalog == "" {
		catalog = entry("placement", "here", "public", f.service.URL)
	}
	_, _ = fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": [%s]}}`, catalog)
}

func entry(service, region, availability, address string) string {
	return fmt.Sprintf(`{"type": %q, "endpoints": [{"interface": %q, "region": %q, "region_id": %q, "url": %q}]}`, service, availability, region, region, address)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token := r.Header.Get("X-Auth-Token")
	f.seen = append(f.seen, strings.TrimSpace(r.Header.Get("Authorization")+" "+token))
	if token != f.valid {
		w.WriteHeader(401)
		return
	}
	_, _ = io.WriteString(w, "{}")
}

func (f *fake) end() { f.mu.Lock(); defer f.mu.Unlock(); f.valid = "ended" }

func (f *fake) tokens() int { f.mu.Lock(); defer f.mu.Unlock(); return f.issued }

func (f *fake) config() Config {
	return Config{URL: f.URL + "/v3", User: "u", Password: "p", Project: "x"}
}

// bounds make failures come at once.
func bounds() sources.Options {
	return sources.Options{Retries: -1, BreakerFailures: -1, Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

func open(t *testing.T, a Access) *Service {
	t.Helper()
	a.Name = "Placement"
	if a.Service == "" {
		a.Service = "placement"
	}
	s, err := NewService(a, bounds(), func(*gophercloud.ServiceClient) {}, func(op string, answer gophercloud.ErrUnexpectedResponseCode) *sources.Error {
		return &sources.Error{Kind: sources.KindRefused, Op: op, Message: fmt.Sprint(answer.Actual), Err: Bare(answer)}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func call(t *testing.T, s *Service) error {
	t.Helper()
	_, err := s.Call(t.Context(), http.MethodGet, "ask", nil, "thing")
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestServicesOfOneUserShareOneToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pool := NewPool()
	var services []*Service
	for _, region := range []string{"", "here"} {
		config := f.config()
		config.Region = region
		login, err := pool.Open(config, bounds())
		must(t, err)
		services = append(services, open(t, Access{Auth: AuthKeystone, Keystone: config, Login: login}))
	}
	all := func() {
		t.Helper()
		var wg sync.WaitGroup
		for range 4 {
			for _, s := range services {
				wg.Go(func() {
					if err := call(t, s); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
	all()
	if f.tokens() != 1 {
		t.Errorf("%d tokens were asked for, not 1", f.tokens())
	}
	f.end()
	all()
	if f.tokens() != 2 {
		t.Errorf("after its end %d tokens were asked for, not 2", f.tokens())
	}
}

func TestAPoolTellsUsersApartAndLetsGo(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pool := NewPool()
	get := func(change func(*Config)) *Login {
		t.Helper()
		config := f.config()
		change(&config)
		l, err := pool.Open(config, bounds())
		must(t, err)
		return l
	}
	first, second := get(func(*Config) {}), get(func(c *Config) { c.Interface = "internal" })
	other, rotated := get(func(c *Config) { c.User = "v" }), get(func(c *Config) { c.Password = "new" })
	if first != second || first == other || first == rotated {
		t.Error("logins are not shared by user and secret")
	}
	first.Close()
	if get(func(*Config) {}) != second {
		t.Error("a login in use was let go")
	}
	for range 2 {
		second.Close()
	}
	if get(func(*Config) {}) == second {
		t.Error("a login that nobody uses was kept")
	}
	if _, err := pool.Open(Config{URL: f.URL}, bounds()); err == nil {
		t.Error("a login without a user is accepted")
	}
}

func TestTheCatalogNamesTheEndpoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		service, region, availability string
		catalog                       func(address string) string
		refusal                       string
	}{
		"the first of any region": {"placement", "", "", func(a string) string { return entry("placement", "one", "public", a) }, ""},
		"the region's": {"placement", "two", "", func(a string) string {
			return entry("placement", "one", "public", "http://127.0.0.1:1") + "," + entry("placement", "two", "public", a)
		}, ""},
		"the interface's": {"placement", "", "internal", func(a string) string {
			return entry("placement", "one", "public", "http://127.0.0.1:1") + "," + entry("placement", "one", "internal", a)
		}, ""},
		"under an older name": {"baremetal", "", "", func(a string) string { return entry("bare-metal", "one", "public", a) }, ""},
		"not another region":  {"placement", "three", "", func(a string) string { return entry("placement", "one", "public", a) }, `region "three"`},
		"no such service":     {"compute", "", "", func(a string) string { return entry("placement", "one", "public", a) }, "compute"},
		"an odd one":          {"placement", "", "", func(string) string { return entry("placement", "one", "public", "placement.example") }, "no http"},
	} {
		f := newFake(t)
		f.catalog = test.catalog(f.service.URL)
		config := f.config()
		config.Region, config.Interface = test.region, test.availability
		err := call(t, open(t, Access{Service: test.service, Auth: AuthKeystone, Keystone: config}))
		switch {
		case test.refusal == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.refusal != "" && (err == nil || sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), test.refusal)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An endpoint that moved is found again when the old one is dead.
func TestADeadEndpointIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.catalog = entry("placement", "one", "public", "http://127.0.0.1:1")
	s := open(t, Access{Auth: AuthKeystone, Keystone: f.config()})
	if err := call(t, s); sources.KindOf(err) != sources.KindTransient {
		t.Fatalf("a dead endpoint: %v", err)
	}
	f.mu.Lock()
	f.catalog = ""
	f.mu.Unlock()
	must(t, call(t, s))
}

func TestWhatKeystoneRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		kind   sources.Kind
		says   string
	}{
		"a wrong password":   {401, `{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}`, sources.KindForbidden, "check the user"},
		"a lost credential":  {404, `{"error": {"code": 404, "message": "Could not find Application Credential: x.", "title": "Not Found"}}`, sources.KindForbidden, "Application Credential"},
		"a proxy":            {404, `<html>nothing</html>`, sources.KindTransient, "not Keystone's answer"},
		"a failure":          {500, `{"error": {"code": 500, "message": "An unexpected error"}}`, sources.KindTransient, "unexpected"},
		"too many requests":  {429, ``, sources.KindTransient, "429"},
		"a redirect":         {302, ``, sources.KindRefused, "redirects"},
		"a wrong form of it": {400, `{"error": {"code": 400, "message": "Expecting to find domain in user."}}`, sources.KindForbidden, "domain"},
	} {
		f := newFake(t)
		f.refusal = func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://elsewhere.example/")
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}
		err := call(t, open(t, Access{Auth: AuthKeystone, Keystone: f.config()}))
		if err == nil || sources.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) || errors.Is(err, sources.ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), `"p"`) {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

// Credentials that end while the token lives are refused when it ends, not asked
// about for ever within one call.
func TestALoginThatEndsIsSaid(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := open(t, Access{Auth: AuthKeystone, Keystone: f.config()})
	must(t, call(t, s))
	f.end()
	f.mu.Lock()
	f.refusal = func(w http.ResponseWriter) { w.WriteHeader(401) }
	f.mu.Unlock()
	if err := call(t, s); sources.KindOf(err) != sources.KindForbidden {
		t.Errorf("got %v", err)
	}
}

func TestWithoutKeystone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.valid = "admin"
	must(t, call(t, open(t, Access{URL: f.service.URL, Token: "admin"})))
	f.valid = ""
	must(t, call(t, open(t, Access{URL: f.service.URL, Auth: AuthHTTPBasic, User: "u", Password: "p"})))
	if want := []string{"admin", "Basic dTpw"}; fmt.Sprint(f.seen) != fmt.Sprint(want) {
		t.Errorf("the service saw %q, not %q", f.seen, want)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://h": "http://h/", " https://h:1/a// ": "https://h:1/a/", "ftp://h": "", "h:1": "", "http://u:p@h": "", "http://h?x=1": "", "": "",
	} {
		got, err := Endpoint(text)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error shows the credentials: %v", err)
		}
	}
}

// A real Keystone gives a token and a catalog, and tells a wrong password.
func TestConformanceOnARealKeystone(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_KEYSTONE")
	if address == "" {
		t.Skip("no real Keystone: set MUSTER_PEER_KEYSTONE to http://USER:PASSWORD@HOST:PORT/v3, with an identity service in its catalog and the project admin")
	}
	u, err := url.Parse(address)
	must(t, err)
	config := Config{User: u.User.Username(), Project: "admin", Region: "RegionOne"}
	config.Password, _ = u.User.Password()
	u.User = nil
	config.URL = u.String()
	conform(t, config)
}

// conform runs the suite against one Keystone.
func conform(t *testing.T, config Config) {
	s := open(t, Access{Service: "identity", Auth: AuthKeystone, Keystone: config})
	ask := func() error {
		t.Helper()
		sc, err := s.Connected(t.Context())
		must(t, err)
		sc.ResourceBase = config.URL + "/"
		body, err := s.Call(t.Context(), http.MethodGet, "list projects", nil, "projects")
		var answer struct{ Projects []struct{ Name string } }
		if err == nil && (json.Unmarshal(body, &answer) != nil || len(answer.Projects) == 0) {
			t.Errorf("the projects are %s", body)
		}
		return err
	}
	must(t, ask())
	sc, err := s.Connected(t.Context())
	must(t, err)
	sc.SetToken("not-a-token")
	must(t, ask())
	if sc.Token() == "not-a-token" {
		t.Error("the token was not replaced")
	}
	for name, change := range map[string]func(*Config){
		"a wrong password": func(c *Config) { c.Password += "x" },
		"no such user":     func(c *Config) { c.User += "x" },
		"no such project":  func(c *Config) { c.Project += "x" },
		"no such domain":   func(c *Config) { c.UserDomain = "nowhere" },
	} {
		wrong := config
		change(&wrong)
		if err := call(t, open(t, Access{Service: "identity", Auth: AuthKeystone, Keystone: wrong})); sources.KindOf(err) != sources.KindForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := config
	wrong.Region = "nowhere"
	if err := call(t, open(t, Access{Service: "identity", Auth: AuthKeystone, Keystone: wrong})); sources.KindOf(err) != sources.KindRefused {
		t.Errorf("a region that is not there: %v", err)
	}
}
