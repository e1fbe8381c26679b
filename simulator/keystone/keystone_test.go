package keystone

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

type hand struct{ at time.Time }

func (h *hand) now() time.Time { return h.at }

type caller struct {
	t      *testing.T
	server *httptest.Server
	world  *world.World
	clock  *hand
	key    *Keystone
}

func newCaller(t *testing.T, dir string) *caller {
	t.Helper()
	c := &caller{t: t, clock: &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	var err error
	if c.world, err = world.Open(world.Options{Dir: dir, Shape: world.Shape{Sites: 2, Racks: 1}, Clock: c.clock.now}); err != nil {
		t.Fatal(err)
	}
	c.key = New(c.world, Options{Prefix: "/keystone", User: "muster", Password: "secret"})
	c.server = httptest.NewServer(c.key)
	t.Cleanup(func() {
		c.server.Close()
		if err := c.world.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *caller) send(method, path, body string, status int, headers ...string) (http.Header, map[string]any) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+"/keystone/v3"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := c.server.Client().Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	if closed := answer.Body.Close(); err != nil || closed != nil {
		c.t.Fatal(err, closed)
	}
	if answer.StatusCode != status {
		c.t.Fatalf("%s %s %s: %d, not %d: %s", method, path, body, answer.StatusCode, status, got)
	}
	value := map[string]any{}
	if len(got) > 0 && json.Unmarshal(got, &value) != nil {
		c.t.Fatalf("%s %s: %s", method, path, got)
	}
	return answer.Header, value
}

func password(scope string) string {
	return `{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "muster", "domain": {"id": "default"}, "password": "secret"}}}` + scope + `}}`
}

const adminScope = `, "scope": {"project": {"name": "admin", "domain": {"name": "Default"}}}`

func (c *caller) token(body string) string {
	c.t.Helper()
	header, _ := c.send(http.MethodPost, "/auth/tokens", body, http.StatusCreated)
	return header.Get("X-Subject-Token")
}

// A token is good for an hour, over a start of the process, and until somebody
// ends it.
func TestHowLongATokenIsGood(t *testing.T) {
	t.Parallel()
	c := newCaller(t, "")
	token, ended := c.token(password(adminScope)), c.token(password(adminScope))
	c.send(http.MethodDelete, "/auth/tokens", "", http.StatusNoContent, "X-Auth-Token", token, "X-Subject-Token", ended)
	if c.key.Check(ended) || c.key.Check("") || c.key.Check(token+"x") {
		t.Error("a bad token is good")
	}
	again := New(c.world, c.key.Options)
	other := New(c.world, Options{User: "muster", Password: "another"})
	if !again.Check(token) || other.Check(token) {
		t.Errorf("after a start it is good: %v; with another password: %v", again.Check(token), other.Check(token))
	}
	if c.key.Check(c.token(password(""))) {
		t.Error("a token of no project is good for a service")
	}
	c.clock.at = c.clock.at.Add(lifetime - time.Second)
	if !c.key.Check(token) {
		t.Error("it ends too early")
	}
	c.clock.at = c.clock.at.Add(time.Second)
	if c.key.Check(token) {
		t.Error("it does not end")
	}
	c.send(http.MethodGet, "/auth/catalog", "", http.StatusUnauthorized, "X-Auth-Token", token)
}

// An application credential lets in without a password, to its own project,
// over a start, and no longer than it is there.
func TestAnApplicationCredential(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newCaller(t, dir)
	slurm := ""
	c.world.Read(func(s *world.State) { slurm = s.Sites.Get("sim1").Lessees.Slurm })
	token := c.token(password(`, "scope": {"project": {"id": "` + slurm + `"}}`))
	path := "/users/" + c.key.UserID() + "/application_credentials"
	body := `{"application_credential": {"name": "n", "secret": "s"}}`
	_, made := c.send(http.MethodPost, path, body, http.StatusCreated, "X-Auth-Token", token)
	c.send(http.MethodPost, path, body, http.StatusConflict, "X-Auth-Token", token)
	credential, _ := made["application_credential"].(map[string]any)
	id, _ := credential["id"].(string)

	again := newCaller(t, dir)
	login := func(secret string) string {
		return fmt.Sprintf(`{"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"id": %q, "secret": %q}}}}`, id, secret)
	}
	again.send(http.MethodPost, "/auth/tokens", login("wrong"), http.StatusUnauthorized)
	mine := again.token(login("s"))
	if again.key.Project(mine) != slurm {
		t.Errorf("it is for the project %q, not %q", again.key.Project(mine), slurm)
	}
	again.send(http.MethodDelete, path+"/"+id, "", http.StatusNoContent, "X-Auth-Token", token)
	again.send(http.MethodPost, "/auth/tokens", login("s"), http.StatusNotFound)
	if again.key.Check(mine) {
		t.Error("a token outlives its credential")
	}
}

// The catalog has a region for each site, with what the site has.
func TestTheCatalog(t *testing.T) {
	t.Parallel()
	c := newCaller(t, "")
	_, got := c.send(http.MethodGet, "/auth/catalog", "", http.StatusOK, "X-Auth-Token", c.token(password(adminScope)))
	regions := map[string]map[string]string{}
	for _, one := range got["catalog"].([]any) {
		service := one.(map[string]any)
		at := map[string]string{}
		for _, e := range service["endpoints"].([]any) {
			if endpoint := e.(map[string]any); endpoint["interface"] == "public" {
				at[endpoint["region"].(string)] = strings.TrimPrefix(endpoint["url"].(string), c.server.URL)
			}
		}
		regions[service["type"].(string)] = at
	}
	want := map[string]map[string]string{
		"identity": {"sim1": "/keystone/v3", "sim2": "/keystone/v3"}, "baremetal": {"sim1": "/sim1/ironic", "sim2": "/sim2/ironic"},
		"placement": {"sim1": "/sim1/placement"}, "compute": {"sim1": "/sim1/nova/v2.1"},
	}
	if fmt.Sprint(regions) != fmt.Sprint(want) {
		t.Errorf("it has %v, not %v", regions, want)
	}
}
