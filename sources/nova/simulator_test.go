package nova

import (
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	simnova "github.com/musterhq/muster/simulator/nova"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
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
