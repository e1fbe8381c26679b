package control_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/world"
)

const tray = "sim1-r01-c01"

func command(t *testing.T) (*control.Client, *world.World, *faultproxy.Rules, string) {
	t.Helper()
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: func() time.Time { return began }})
	if err != nil {
		t.Fatal(err)
	}
	rules := &faultproxy.Rules{}
	server := httptest.NewServer(control.New(control.Options{World: w, Rules: rules, Token: "s3cret"}))
	t.Cleanup(server.Close)
	return control.Dial(server.URL, "s3cret"), w, rules, server.URL
}

func machine(w *world.World, name string) (m *world.Machine) {
	w.Read(func(s *world.State) { m = s.Machines.Get("sim1/" + name) })
	return m
}

// Each kind does to a machine what it says, and is told as an effect.
func TestWhatBecomesOfAMachine(t *testing.T) {
	t.Parallel()
	c, w, _, _ := command(t)
	w.Read(func(*world.State) {})
	for _, one := range []struct {
		fault control.Fault
		is    func(*world.Machine) bool
	}{
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-dead"}}, func(m *world.Machine) bool { return m.BMC.Dead }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-well"}}, func(m *world.Machine) bool { return !m.BMC.Dead }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-hangs"}}, func(m *world.Machine) bool { return m.BMC.Hangs }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-slow", For: 2 * time.Second}}, func(m *world.Machine) bool { return m.BMC.Slow == 2000 }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-refuses"}}, func(m *world.Machine) bool { return m.BMC.Password != "" }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-full"}}, func(m *world.Machine) bool { return m.BMC.Full }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-deaf"}}, func(m *world.Machine) bool { return m.BMC.Deaf }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "bmc-not-ready"}}, func(m *world.Machine) bool { return m.BMC.NotReady.Equal(w.Now().Add(time.Minute)) }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "health"}, Part: "gpus", State: "Critical"}, func(m *world.Machine) bool { return m.Health["gpus"] == "Critical" }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "health"}, Part: "gpus", State: "OK"}, func(m *world.Machine) bool { return m.Health["gpus"] == "" }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "power-off"}}, func(m *world.Machine) bool { return len(m.Moves) == 1 && !m.Moves[0].On }},
		{control.Fault{Rule: faultproxy.Rule{Kind: "power-on"}}, func(m *world.Machine) bool { return len(m.Moves) == 1 && m.Moves[0].On }},
	} {
		one.fault.Device = tray
		before, err := c.Effects(t.Context(), 0, world.FaceControl)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Fault(t.Context(), one.fault); err != nil || !one.is(machine(w, tray)) {
			t.Errorf("%s: %v, the machine is %+v", one.fault.Kind, err, machine(w, tray))
		}
		after, err := c.Effects(t.Context(), before.Next, world.FaceControl)
		if err != nil || len(after.Effects) != 1 || after.Effects[0].Op != string(one.fault.Kind) || after.Effects[0].Subject != tray {
			t.Errorf("%s is told as %+v, %v", one.fault.Kind, after, err)
		}
	}
}

// What becomes of a machine in Ironic and SLURM is seen there.
func TestWhatBecomesOfANode(t *testing.T) {
	t.Parallel()
	c, w, _, _ := command(t)
	var name string
	w.Read(func(s *world.State) {
		for _, m := range s.Machines.All() {
			if m.Slurm != "" && m.Node != "" && !s.SlurmNodes.Get(world.Key(m.Site, m.Slurm)).Has(world.SlurmDrain) {
				name = m.Name
			}
		}
	})
	if name == "" {
		t.Fatal("no machine is in both")
	}
	for _, one := range []struct {
		kind string
		is   func(*world.State, *world.Machine, *world.SlurmNode, *world.Node) bool
	}{
		{"drain", func(_ *world.State, _ *world.Machine, sn *world.SlurmNode, _ *world.Node) bool {
			return sn.Has(world.SlurmDrain) && sn.Reason == "because"
		}},
		{"resume", func(_ *world.State, _ *world.Machine, sn *world.SlurmNode, _ *world.Node) bool {
			return !sn.Has(world.SlurmDrain)
		}},
		{"slurmd-down", func(_ *world.State, m *world.Machine, sn *world.SlurmNode, _ *world.Node) bool {
			return m.SlurmdDown && !sn.Silent.IsZero()
		}},
		{"slurmd-up", func(_ *world.State, m *world.Machine, sn *world.SlurmNode, _ *world.Node) bool {
			return !m.SlurmdDown && !sn.Up.IsZero()
		}},
		{"clean-fails", func(_ *world.State, _ *world.Machine, _ *world.SlurmNode, n *world.Node) bool {
			return n.Fails == world.WorkClean
		}},
		{"deploy-fails", func(_ *world.State, _ *world.Machine, _ *world.SlurmNode, n *world.Node) bool {
			return n.Fails == world.WorkDeploy
		}},
	} {
		_, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: faultproxy.Kind(one.kind)}, Device: name, Reason: "because"})
		w.Read(func(s *world.State) {
			m := s.Machines.Get("sim1/" + name)
			if n, sn := s.Nodes.Get(world.Key("sim1", m.Node)), s.SlurmNodes.Get(world.Key("sim1", m.Slurm)); err != nil || !one.is(s, m, sn, n) {
				t.Errorf("%s: %v, it is %+v, %+v, %+v", one.kind, err, m, sn, n)
			}
		})
	}
	for _, kind := range []string{"drain", "slurmd-down", "clean-fails"} {
		if _, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: faultproxy.Kind(kind)}, Device: "sim1-r01-p01"}); err == nil {
			t.Errorf("%s befalls a power shelf", kind)
		}
	}
}

// A site's controller ends and starts again; a machine has none.
func TestWhatBecomesOfASite(t *testing.T) {
	t.Parallel()
	c, w, _, _ := command(t)
	for _, one := range []struct {
		kind       string
		down, hung bool
	}{{"slurmctld-down", true, false}, {"slurmctld-hangs", false, true}, {"slurmctld-up", false, false}} {
		if _, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: faultproxy.Kind(one.kind)}, Device: "sim1"}); err != nil {
			t.Fatal(err)
		}
		w.Read(func(s *world.State) {
			if is := s.SlurmClusterOf("sim1"); is.Down != one.down || is.Hung != one.hung {
				t.Errorf("after %s it is %+v", one.kind, is)
			}
		})
	}
	if _, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: "slurmctld-down"}, Device: tray}); err == nil {
		t.Error("a tray has a slurmctld")
	}
}

// What cannot be is refused and leaves nothing.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	c, w, _, url := command(t)
	for name, f := range map[string]control.Fault{
		"no such machine": {Rule: faultproxy.Rule{Kind: "bmc-dead"}, Device: "sim9-r01-c01"},
		"no such kind":    {Rule: faultproxy.Rule{Kind: "gone"}, Device: tray},
		"no such part":    {Rule: faultproxy.Rule{Kind: "health"}, Device: tray, Part: "wings", State: "OK"},
		"no such state":   {Rule: faultproxy.Rule{Kind: "health"}, Device: tray, Part: "gpus", State: "Sad"},
		"no BMC":          {Rule: faultproxy.Rule{Kind: "bmc-dead"}, Device: "sim1-r01-s01"},
		"no such rule":    {Rule: faultproxy.Rule{Kind: "flood"}},
	} {
		var refused *control.RefusedError
		if _, err := c.Fault(t.Context(), f); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Advance(t.Context(), -time.Second); err == nil {
		t.Error("time went back")
	}
	var refused *control.RefusedError
	if _, err := control.Dial(url, "guess").World(t.Context()); !errors.As(err, &refused) || refused.Code != 401 {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := control.Dial("http://127.0.0.1:1", "x").World(t.Context()); !errors.Is(err, control.ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
	if n := len(w.Effects(0)); n != 0 {
		t.Errorf("%d effects are told", n)
	}
}

// Time moves on; rules of faces are listed and taken away.
func TestTimeAndRules(t *testing.T) {
	t.Parallel()
	c, w, rules, _ := command(t)
	before := w.Now()
	if now, err := c.Advance(t.Context(), time.Hour); err != nil || now.Sub(before) != time.Hour {
		t.Errorf("it is %s, %v", now, err)
	}
	told, err := c.World(t.Context())
	if err != nil || !told.Now.Equal(w.Now()) || told.Devices != 37 || len(told.Sites) != 1 || told.Effects != 1 {
		t.Errorf("the world is %+v, %v", told, err)
	}
	for want := 1; want <= 3; want++ {
		rule, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: faultproxy.Status, Face: "ironic"}})
		if err != nil || rule.ID != want || rule.Code != 503 {
			t.Errorf("the rule is %+v, %v", rule, err)
		}
	}
	if n, err := c.Clear(t.Context(), 2); n != 1 || err != nil {
		t.Errorf("%d cleared, %v", n, err)
	}
	if list, err := c.Faults(t.Context()); err != nil || len(list) != 2 || len(rules.List()) != 2 {
		t.Errorf("the rules are %+v, %v", list, err)
	}
	if n, err := c.Clear(t.Context(), 0); n != 2 || err != nil {
		t.Errorf("%d cleared, %v", n, err)
	}
}
