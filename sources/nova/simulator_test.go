package nova

import (
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	simnova "github.com/musterhq/muster/simulator/nova"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// hand is a clock that is moved on by looking at it.
type hand struct {
	mu sync.Mutex
	at time.Time
}

func (h *hand) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(500 * time.Millisecond)
	return h.at
}

// A server of the simulated site is found by its node and by its name; after its
// deletion it is gone, and its node is without an instance.
func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	clock := &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(simnova.New(w, "sim1", simnova.Options{Prefix: "/sim1/nova"}))
	t.Cleanup(server.Close)
	c := (&fake{Server: server}).client(t, func(c *Config) { c.URL = server.URL + "/sim1/nova/v2.1" })

	var want *world.Server
	w.Read(func(s *world.State) {
		for _, v := range s.Servers.Of("sim1") {
			want = v
		}
	})
	for name, filter := range map[string]Filter{"node": {Node: want.Node}, "name": {Name: want.Name}} {
		found, err := c.Servers(t.Context(), filter)
		if err != nil || len(found) != 1 || found[0].ID != want.UUID || found[0].Node != want.Node || found[0].Project != want.Project {
			t.Errorf("by %s: %+v, %v", name, found, err)
		}
	}
	if all, err := c.Servers(t.Context(), Filter{Project: want.Project}); err != nil || len(all) < 2 {
		t.Errorf("by project: %d, %v", len(all), err)
	}
	if v, err := c.Server(t.Context(), want.UUID); err != nil || v.Status != "ACTIVE" || v.TaskState != "" || v.VMState != "active" {
		t.Errorf("it is %+v, %v", v, err)
	}
	if err := c.Delete(t.Context(), want.UUID); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitGone(t.Context(), want.UUID, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Server(t.Context(), want.UUID); !errors.Is(err, sources.ErrGone) {
		t.Errorf("after the end: %v", err)
	}
	w.Read(func(s *world.State) {
		n, p := s.Nodes.Get(world.Key("sim1", want.Node)), s.Providers.Get(world.Key("sim1", want.Node))
		if n.InstanceUUID != "" || len(p.Allocations) != 0 || n.Lessee != want.Project {
			t.Errorf("its node is %+v, its provider %+v", n, p)
		}
	})
}

// A server is created on the node that is named, in both ways of naming it, runs,
// and is found again by its name.
func TestAServerIsCreatedOnASimulatedNode(t *testing.T) {
	t.Parallel()
	clock := &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 2}, Clock: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(simnova.New(w, "sim1", simnova.Options{Prefix: "/sim1/nova", Tokens: oneProject{}}))
	t.Cleanup(server.Close)
	c := (&fake{Server: server}).client(t, func(c *Config) { c.URL = server.URL + "/sim1/nova/v2.1" })
	c.api, err = keystone.NewService(keystone.Access{Service: "compute", Name: "Nova", URL: server.URL + "/sim1/nova/v2.1"}, c.config.HTTP, func(sc *gophercloud.ServiceClient) {
		sc.Microversion, sc.MoreHeaders = version, map[string]string{"X-Auth-Token": "slurm"}
	}, c.answered)
	if err != nil {
		t.Fatal(err)
	}
	var free, taken *world.Node
	w.Read(func(s *world.State) {
		for _, n := range s.Nodes.Of("sim1") {
			if s.Bootable(n, true) {
				free = n
			} else if n.InstanceUUID != "" {
				taken = n
			}
		}
	})
	n := NewServer{Name: "muster-" + free.Name, Project: "slurm", Node: free.UUID, Image: "image-1", Flavor: "baremetal.gb200", Network: "none", Key: "k"}
	var made *Server
	for range 2 {
		s, err := c.Create(t.Context(), n)
		if err != nil || made != nil && s.ID != made.ID {
			t.Fatalf("%+v %v", s, err)
		}
		made = s
	}
	s, err := c.Await(t.Context(), made.ID, time.Second)
	if err != nil || s.Node != free.UUID || s.Project != "slurm" {
		t.Errorf("%+v %v", s, err)
	}
	n.Name, n.Node = "muster-"+taken.Name, taken.UUID
	if s, err = c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	_, err = c.Await(t.Context(), s.ID, time.Second)
	wantKind(t, err, sources.KindConflict, "No valid host")
	_, err = c.Create(t.Context(), n)
	wantKind(t, err, sources.KindConflict, "No valid host")
	created := 0
	for _, e := range w.Effects(0) {
		if e.Op == "create server" {
			created++
		}
	}
	if created != 2 {
		t.Errorf("%d servers were created", created)
	}
}

// oneProject knows every token as the project of the same name.
type oneProject struct{}

func (oneProject) Check(string) bool           { return true }
func (oneProject) Project(token string) string { return token }
