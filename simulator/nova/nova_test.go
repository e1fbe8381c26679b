package nova

import (
	"encoding/json"
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

// tokens are those of two projects.
type tokens struct{}

func (tokens) Check(token string) bool     { return token == "p" || token == "q" }
func (tokens) Project(token string) string { return token }

type caller struct {
	t      *testing.T
	server *httptest.Server
	world  *world.World
	clock  *hand
}

func newCaller(t *testing.T) *caller {
	t.Helper()
	c := &caller{t: t, clock: &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	var err error
	if c.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: c.clock.now}); err != nil {
		t.Fatal(err)
	}
	c.server = httptest.NewServer(New(c.world, "sim1", Options{Prefix: "/sim1/nova", Tokens: tokens{}}))
	t.Cleanup(c.server.Close)
	return c
}

// send asks with a project's token and wants a status.
func (c *caller) send(token, method, path, body string, status int) map[string]any {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+"/sim1/nova/v2.1/"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", token)
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
	return value
}

func (c *caller) server1(token, id string) map[string]any {
	c.t.Helper()
	shown, _ := c.send(token, http.MethodGet, "servers/"+id, "", http.StatusOK)["server"].(map[string]any)
	return shown
}

// A server is booted on a node that is on offer, belongs to the project of the
// token, and is gone some time after its deletion.
func TestTheLifeOfAServer(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	body := `{"server": {"name": "mine", "flavorRef": "baremetal.gb200", "imageRef": "image-1", "networks": "none", "key_name": "k"}}`
	made, _ := c.send("p", http.MethodPost, "servers", body, http.StatusAccepted)["server"].(map[string]any)
	id, _ := made["id"].(string)
	if v := c.server1("p", id); v["status"] != "BUILD" || v["OS-EXT-STS:task_state"] != "spawning" || v["tenant_id"] != "p" {
		t.Errorf("at first it is %v", v)
	}
	c.clock.at = c.clock.at.Add(time.Minute)
	v := c.server1("p", id)
	if v["status"] != "ACTIVE" || v["OS-EXT-STS:power_state"] != 1.0 {
		t.Errorf("after a minute it is %v", v)
	}
	for token, want := range map[string]int{"p": 1, "q": 0} {
		if list, _ := c.send(token, http.MethodGet, "servers?name=^mine$", "", http.StatusOK)["servers"].([]any); len(list) != want {
			t.Errorf("the project %s has %v", token, list)
		}
	}
	node, _ := v["OS-EXT-SRV-ATTR:hypervisor_hostname"].(string)
	if list, _ := c.send("q", http.MethodGet, "servers/detail?all_tenants=1&node="+node, "", http.StatusOK)["servers"].([]any); len(list) != 1 {
		t.Errorf("on its node are %v", list)
	}
	c.send("p", http.MethodPost, "servers/"+id+"/action", `{"os-stop": null}`, http.StatusAccepted)
	c.clock.at = c.clock.at.Add(time.Minute)
	if v := c.server1("p", id); v["status"] != "SHUTOFF" || v["OS-EXT-STS:power_state"] != 4.0 {
		t.Errorf("stopped it is %v", v)
	}
	for range 2 { // the second time it is on its way
		c.send("p", http.MethodDelete, "servers/"+id, "", http.StatusNoContent)
	}
	if v := c.server1("p", id); v["OS-EXT-STS:task_state"] != "deleting" {
		t.Errorf("on its way out it is %v", v)
	}
	c.clock.at = c.clock.at.Add(time.Minute)
	c.send("p", http.MethodGet, "servers/"+id, "", http.StatusNotFound)
	c.send("p", http.MethodDelete, "servers/"+id, "", http.StatusNotFound)
	deleted := 0
	for _, e := range c.world.Effects(0) {
		if e.Face == world.FaceNova && e.Op == "delete server" {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("it was deleted %d times", deleted)
	}
}

// A node that is asked for by its name is taken or refused, a deployment that
// fails is told with its reason, and deleting heals it.
func TestAServerOnANodeThatFails(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	var n, taken *world.Node
	c.world.Read(func(s *world.State) {
		for _, one := range s.Nodes.Of("sim1") {
			if s.Bootable(one, true) {
				n = one
			} else if one.InstanceUUID != "" {
				taken = one
			}
		}
	})
	err := c.world.Do(world.Effect{Face: "test", Op: "test", Subject: n.Name}, func(s *world.State) error {
		broken := s.Nodes.Edit(n.Key())
		broken.Fails = world.WorkDeploy
		s.Nodes.Put(n.Key(), broken)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	boot := func(node string) string {
		made, _ := c.send("p", http.MethodPost, "servers", `{"server": {"name": "s", "flavorRef": "baremetal.gb200", "availability_zone": "nova::`+node+`"}}`, http.StatusAccepted)["server"].(map[string]any)
		c.clock.at = c.clock.at.Add(time.Minute)
		id, _ := made["id"].(string)
		return id
	}
	failed := boot(n.UUID)
	for id, want := range map[string]string{failed: "Failed to provision instance", boot(taken.UUID): "No valid host was found"} {
		v := c.server1("p", id)
		fault, _ := v["fault"].(map[string]any)
		if text, _ := fault["message"].(string); v["status"] != "ERROR" || !strings.HasPrefix(text, want) {
			t.Errorf("it is %v", v)
		}
	}
	c.send("p", http.MethodPost, "servers/"+failed+"/action", `{"forceDelete": null}`, http.StatusAccepted)
	c.clock.at = c.clock.at.Add(time.Minute)
	c.send("p", http.MethodGet, "servers/"+failed, "", http.StatusNotFound)
	c.world.Read(func(s *world.State) {
		if now := s.Nodes.Get(n.Key()); now.ProvisionState != world.Available || now.InstanceUUID != "" || s.Providers.Get(n.Key()).Used("CUSTOM_GB200") != 0 {
			t.Errorf("the node is %+v", now)
		}
	})
}

// What cannot be meant is refused as Nova refuses it.
func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for name, test := range map[string]struct {
		token, method, path, body string
		status                    int
		kind                      string
	}{
		"no token":                   {"", "GET", "servers", "", 401, "error"},
		"a server that is not there": {"p", "GET", "servers/11111111-2222-4333-8444-555555555555", "", 404, "itemNotFound"},
		"no name":                    {"p", "POST", "servers", `{"server": {"flavorRef": "baremetal.gb200"}}`, 400, "badRequest"},
		"another flavor":             {"p", "POST", "servers", `{"server": {"name": "s", "flavorRef": "m1.tiny"}}`, 400, "badRequest"},
		"a node that is not there":   {"p", "POST", "servers", `{"server": {"name": "s", "flavorRef": "baremetal.gb200", "availability_zone": "nova::x"}}`, 400, "badRequest"},
		"a field of 2.74 before it":  {"p", "POST", "servers", `{"server": {"name": "s", "flavorRef": "baremetal.gb200", "hypervisor_hostname": "x"}}`, 400, "badRequest"},
		"a marker of nothing":        {"p", "GET", "servers?marker=x", "", 400, "badRequest"},
		"no such path":               {"p", "GET", "nothing", "", 404, "itemNotFound"},
		"a method that is not there": {"p", "PUT", "servers", "{}", 405, "badMethod"},
	} {
		got := c.send(test.token, test.method, test.path, test.body, test.status)
		problem, _ := got[test.kind].(map[string]any)
		if problem["code"] != float64(test.status) || problem["message"] == "" {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := len(c.world.Effects(0)); n != 0 {
		t.Errorf("%d effects came of it", n)
	}
}
