package slurm

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	simulated "github.com/musterhq/muster/simulator/slurm"
	"github.com/musterhq/muster/simulator/world"
)

// simulatedPeer is a cluster of the simulator: nodes that a fleet was seeded with,
// and idle ones for the items.
type simulatedPeer struct {
	generation int
	world      *world.World
	server     *httptest.Server
	count      int
	next       int
}

const (
	simulatedSite = "sim1"
	spareNodes    = 30
)

var simulatedKey = []byte("the key of the suite's cluster")

func newSimulatedPeer(t *testing.T, generation int) *simulatedPeer {
	t.Helper()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 2}})
	if err != nil {
		t.Fatal(err)
	}
	p := &simulatedPeer{generation: generation, world: w}
	p.do(t, func(s *world.State) error {
		for i := range spareNodes {
			n := &world.SlurmNode{Name: fmt.Sprintf("n%04d", i+1), Site: simulatedSite, Base: world.SlurmIdle, Partitions: world.SlurmPartitions(), Boot: s.Now.Add(-time.Hour)}
			s.SlurmNodes.Put(world.Key(simulatedSite, n.Name), n)
		}
		for range s.SlurmNodes.Of(simulatedSite) {
			p.count++
		}
		return nil
	})
	face, err := simulated.New(w, simulatedSite, simulated.Options{Generation: generation, Key: simulatedKey, Patience: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(face)
	t.Cleanup(p.server.Close)
	return p
}

func (p *simulatedPeer) do(t *testing.T, change func(s *world.State) error) {
	t.Helper()
	if err := p.world.Do(world.Effect{Face: world.FaceWorld, Op: "test"}, change); err != nil {
		t.Fatal(err)
	}
}

func (p *simulatedPeer) has(c capability) bool {
	switch c {
	case writes, tellAuth:
		return p.generation > 38
	case sockets:
		return false
	case creates:
		return p.generation > 42
	}
	return true
}

func (p *simulatedPeer) config(t *testing.T) Config {
	return Config{URL: p.server.URL, Token: p.mint(t, "root", time.Hour)}
}

func (p *simulatedPeer) nodes() int      { return p.count }
func (p *simulatedPeer) free() string    { p.next++; return fmt.Sprintf("n%04d", p.next) }
func (p *simulatedPeer) version() string { return fmt.Sprintf("v0.0.%d", p.generation) }
func (p *simulatedPeer) socket() string  { return "" }

func (p *simulatedPeer) mint(_ *testing.T, user string, life time.Duration) string {
	return simulated.Token(simulatedKey, user, time.Now(), life)
}

func (p *simulatedPeer) admin(t *testing.T, node, state, reason string) {
	tokens := map[string]string{"drain": world.SlurmDrain, "resume": "RESUME"}
	p.do(t, func(s *world.State) error {
		return s.UpdateSlurmNode(simulatedSite, node, world.SlurmUpdate{State: []string{tokens[state]}, Reason: reason, User: "root"})
	})
}

func (p *simulatedPeer) dynamic(t *testing.T, name string) {
	p.do(t, func(s *world.State) error {
		if !s.CreateSlurmNode(&world.SlurmNode{Site: simulatedSite, Name: name, Partitions: world.SlurmPartitions()}) {
			return fmt.Errorf("there is a node %s already", name)
		}
		return nil
	})
}

func (p *simulatedPeer) controller(t *testing.T, up bool) {
	p.do(t, func(s *world.State) error { s.SlurmController(simulatedSite, !up, false); return nil })
}

func (p *simulatedPeer) hang(t *testing.T, on bool) {
	p.do(t, func(s *world.State) error { s.SlurmController(simulatedSite, false, on); return nil })
}

func (p *simulatedPeer) live() []string { return []string{p.free(), p.free(), p.free()} }

// slurmd stops or starts one, and moves the world on to where slurmctld knows.
func (p *simulatedPeer) slurmd(t *testing.T, node string, up bool) {
	key := world.Key(simulatedSite, node)
	p.do(t, func(s *world.State) error {
		n := s.SlurmNodes.Edit(key)
		if up {
			n.Up = s.Now.Add(time.Second)
		} else {
			n.Silent, n.Next = s.Now, s.Now.Add(world.SlurmdSilence)
		}
		s.SlurmNodes.Put(key, n)
		return nil
	})
	if err := p.world.Advance(world.SlurmdTimeout + world.SlurmctldPoll); err != nil {
		t.Fatal(err)
	}
}

func (p *simulatedPeer) work(t *testing.T) (string, func()) {
	node, id := p.free(), 0
	p.do(t, func(s *world.State) error {
		id = s.SubmitSlurmJob(&world.SlurmJob{Site: simulatedSite, Name: "work", User: "root", Partition: "main", Required: []string{node}, Run: 10 * time.Minute})
		return nil
	})
	return node, func() {
		p.do(t, func(s *world.State) error { return s.CancelSlurmJob(simulatedSite, id) })
	}
}
