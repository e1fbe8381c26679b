package world

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// site opens a world of one rack by a clock that is moved by hand.
func site(t *testing.T) (*World, *hand) {
	t.Helper()
	h := start()
	return open(t, "", h), h
}

// do makes a change from outside.
func do(t *testing.T, w *World, change func(s *State)) {
	t.Helper()
	if err := w.Do(Effect{Face: FaceIronic, Op: "test", Subject: "test"}, func(s *State) error { change(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

// verb asks for a verb, which the node's state must allow.
func verb(t *testing.T, w *World, key, verb string) {
	t.Helper()
	do(t, w, func(s *State) {
		n := s.Nodes.Edit(key)
		if !n.CanVerb(verb) {
			t.Fatalf("%s is not possible in %s", verb, n.ProvisionState)
		}
		s.Verb(n, verb)
		s.Nodes.Put(key, n)
	})
}

func node(w *World, key string) (n *Node) {
	w.Read(func(s *State) { n = s.Nodes.Get(key) })
	return n
}

// nodeIn gives a node of a machine that the test accepts.
func nodeIn(t *testing.T, w *World, accept func(n *Node, m *Machine) bool) (found *Node) {
	t.Helper()
	w.Read(func(s *State) {
		for _, n := range s.Nodes.Of("sim1") {
			if m := s.MachineOf(n); m != nil && accept(n, m) {
				found = n
			}
		}
	})
	if found == nil {
		t.Fatal("the seed has no such node")
	}
	return found
}

func free(n *Node, _ *Machine) bool { return n.ProvisionState == Available && !n.Maintenance }

func deployed(n *Node, m *Machine) bool { return n.ProvisionState == Active && m.Deployed }

// pass moves time on, a second at a time, and gives the provision states seen.
func pass(w *World, h *hand, key string, limit time.Duration) (states []string) {
	for waited := time.Duration(0); waited < limit; waited += time.Second {
		h.at = h.at.Add(time.Second)
		n := node(w, key)
		if len(states) == 0 || states[len(states)-1] != n.ProvisionState {
			states = append(states, n.ProvisionState)
		}
		if n.Work == "" && n.TargetPower == "" {
			break
		}
	}
	return states
}

// Each verb leads through the states that a real Ironic goes through, and fails
// into the state that the real one fails into.
func TestTheStateMachine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from  string
		verb  string
		fails string
		want  string
	}{
		"manage a new node":       {Enroll, "manage", "", "manageable"},
		"a failed verification":   {Enroll, "manage", WorkVerify, "enroll"},
		"inspect":                 {Manageable, "inspect", "", "inspecting manageable"},
		"a failed inspection":     {Manageable, "inspect", WorkInspect, "inspecting inspect-failed"},
		"provide":                 {Manageable, "provide", "", "cleaning clean-wait cleaning available"},
		"a failed cleaning":       {Manageable, "provide", WorkClean, "cleaning clean-failed"},
		"deploy":                  {Available, "active", "", "deploying wait-call-back deploying active"},
		"a failed deployment":     {Available, "active", WorkDeploy, "deploying deploy-failed"},
		"deploy again":            {DeployFailed, "active", "", "deploying wait-call-back deploying active"},
		"rebuild":                 {Active, "rebuild", "", "deploying wait-call-back deploying active"},
		"delete":                  {Active, "deleted", "", "deleting cleaning clean-wait cleaning available"},
		"delete what failed":      {DeployFailed, "deleted", "", "deleting cleaning clean-wait cleaning available"},
		"a failed deletion":       {Active, "deleted", WorkDelete, "deleting error"},
		"delete again":            {Failed, "deleted", "", "deleting cleaning clean-wait cleaning available"},
		"adopt":                   {Manageable, "adopt", "", "adopting active"},
		"a failed adoption":       {Manageable, "adopt", WorkAdopt, "adopting adopt-failed"},
		"manage what is on offer": {Available, "manage", "", "manageable"},
		"manage what failed":      {CleanFailed, "manage", "", "manageable"},
		"rescue":                  {Active, "rescue", "", "rescuing rescue-wait rescuing rescue"},
		"unrescue":                {Rescue, "unrescue", "", "unrescuing active"},
	} {
		w, h := site(t)
		n := nodeIn(t, w, free)
		do(t, w, func(s *State) {
			c := s.Nodes.Edit(n.Key())
			c.ProvisionState, c.Fails, c.TargetProvision = test.from, test.fails, ""
			s.Nodes.Put(c.Key(), c)
		})
		verb(t, w, n.Key(), test.verb)
		got := pass(w, h, n.Key(), 2*time.Minute)
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], " ", "-")
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: it went through %v", name, got)
		}
		after := node(w, n.Key())
		if failed := test.fails != ""; failed != (after.LastError != "") || after.Fails != "" || after.Reservation != "" || !after.Next.IsZero() {
			t.Errorf("%s: it ends as %+v", name, after)
		}
		if clean := test.fails == WorkClean; clean != (after.Maintenance && after.Fault == FaultClean && after.Reason == after.LastError) {
			t.Errorf("%s: maintenance is %v, the fault %q for %q", name, after.Maintenance, after.Fault, after.Reason)
		}
	}
}

// A deployment puts the machine on with a system on its disk, a deletion takes
// both away, and Ironic knows it. Where nodes are kept on their ramdisk, it stays on.
func TestDeployingDrivesTheMachine(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{false, true} {
		deployAndDelete(t, stays)
	}
}

func deployAndDelete(t *testing.T, stays bool) {
	w, h := site(t)
	n := nodeIn(t, w, free)
	do(t, w, func(s *State) {
		c := s.Sites.Edit(n.Site)
		c.FastTrack = stays
		s.Sites.Put(c.Name, c)
		if m := s.Machines.Edit(Key(n.Site, n.Machine)); !stays {
			m.On = false
			s.Machines.Put(m.Key(), m)
			c := s.Nodes.Edit(n.Key())
			c.PowerState = PowerOff
			s.Nodes.Put(c.Key(), c)
		}
	})
	expect := func(when string, on, system bool) {
		t.Helper()
		w.Read(func(s *State) {
			n, m := s.Nodes.Get(n.Key()), s.MachineOf(n)
			if m.On != on || m.Deployed != system || n.PowerState != powerWord(on) || n.TargetPower != "" || len(m.Moves) != 0 {
				t.Errorf("%s: on %v, deployed %v, Ironic says %q (%q)", when, m.On, m.Deployed, n.PowerState, n.TargetPower)
			}
		})
	}
	expect("at first", stays, false)
	verb(t, w, n.Key(), "active")
	pass(w, h, n.Key(), time.Minute)
	expect("deployed", true, true)
	verb(t, w, n.Key(), "deleted")
	pass(w, h, n.Key(), time.Minute)
	h.at = h.at.Add(2 * PowerDelay)
	expect("cleaned", stays, false)
}

// What a BMC does to a managed node's power is undone; in maintenance it stays.
func TestIronicRestoresThePowerThatItKnows(t *testing.T) {
	t.Parallel()
	w, h := site(t)
	n := nodeIn(t, w, deployed)
	off := func(key string) {
		do(t, w, func(s *State) { s.Switch(s.MachineOf(s.Nodes.Get(key)), "reset ForceOff", false) })
	}
	on := func() (on bool) {
		w.Read(func(s *State) { on = s.MachineOf(n).On })
		return on
	}
	off(n.Key())
	h.at = h.at.Add(PowerDelay)
	if on() {
		t.Fatal("it is on still")
	}
	h.at = h.at.Add(PowerSync + PowerDelay)
	if !on() || node(w, n.Key()).PowerState != PowerOn {
		t.Error("Ironic did not switch it on again")
	}
	do(t, w, func(s *State) {
		c := s.Nodes.Edit(n.Key())
		c.Maintenance = true
		s.Nodes.Put(c.Key(), c)
	})
	off(n.Key())
	h.at = h.at.Add(time.Hour)
	if on() {
		t.Error("Ironic switched on a node in maintenance")
	}
}

// A silent BMC is a fault that Ironic sets and takes back by itself.
func TestASilentBMCIsAPowerFailure(t *testing.T) {
	t.Parallel()
	w, h := site(t)
	n := nodeIn(t, w, deployed)
	silence := func(dead bool) {
		do(t, w, func(s *State) {
			m := s.Machines.Edit(s.MachineOf(n).Key())
			m.BMC.Dead = dead
			s.Machines.Put(m.Key(), m)
			s.BMCChanged(m)
		})
		h.at = h.at.Add(2 * PowerSync)
	}
	silence(true)
	if n := node(w, n.Key()); !n.Maintenance || n.Fault != FaultPower || n.PowerState != "" || !strings.Contains(n.Reason, "Redfish connection failed") {
		t.Errorf("it is %+v", n)
	}
	silence(false)
	if n := node(w, n.Key()); n.Maintenance || n.Fault != "" || n.PowerState != PowerOn {
		t.Errorf("afterwards it is %+v", n)
	}
}

// A start in the middle of a clean goes on with it.
func TestACleanGoesOnAfterAStart(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := open(t, dir, h)
	n := nodeIn(t, w, deployed)
	verb(t, w, n.Key(), "deleted")
	for node(w, n.Key()).ProvisionState != CleanWait {
		h.at = h.at.Add(time.Second)
	}
	again := open(t, dir, h) // the first one was never closed
	if state := node(again, n.Key()).ProvisionState; state != CleanWait {
		t.Fatalf("it begins in %s", state)
	}
	if got := pass(again, h, n.Key(), time.Minute); !slices.Equal(got, []string{CleanWait, Cleaning, Available}) {
		t.Errorf("it goes on with %v", got)
	}
	if n := node(again, n.Key()); n.InstanceUUID != "" || n.Lessee == "" {
		t.Errorf("it is %+v", n)
	}
}

// A server's life is its node's: booting deploys, deleting tears down, and
// Placement's allocation is there in between.
func TestAServerLivesWithItsNode(t *testing.T) {
	t.Parallel()
	w, h := site(t)
	n := nodeIn(t, w, free)
	v := &Server{UUID: "11111111-2222-4333-8444-555555555555", Site: "sim1", Name: "s", Project: "p"}
	look := func() (v *Server, allocated bool, n2 *Node) {
		w.Read(func(s *State) {
			_, allocated = s.Providers.Get(n.Key()).Allocations["11111111-2222-4333-8444-555555555555"]
			v, n2 = s.Servers.Get("sim1/11111111-2222-4333-8444-555555555555"), s.Nodes.Get(n.Key())
		})
		return v, allocated, n2
	}
	do(t, w, func(s *State) {
		if !s.Bootable(s.Nodes.Get(n.Key()), false) {
			t.Error("the node is not offered")
		}
		s.Boot(v, s.Nodes.Get(n.Key()))
	})
	if v, allocated, n := look(); v.Status != "BUILD" || !allocated || n.InstanceUUID != v.UUID || n.ProvisionState != Deploying {
		t.Errorf("at first %+v, %v, %+v", v, allocated, n)
	}
	pass(w, h, n.Key(), time.Minute)
	if v, allocated, n := look(); v.Status != "ACTIVE" || v.Task != "" || !allocated || n.ProvisionState != Active {
		t.Errorf("booted %+v, %v, %+v", v, allocated, n)
	}
	do(t, w, func(s *State) { s.DeleteServer(v.Key()) })
	if v, allocated, n := look(); v.Task != TaskDeleting || !allocated || n.ProvisionState != Deleting {
		t.Errorf("on its way out %+v, %v, %+v", v, allocated, n)
	}
	pass(w, h, n.Key(), time.Minute)
	if v, allocated, n := look(); v != nil || allocated || n.InstanceUUID != "" || n.ProvisionState != Available {
		t.Errorf("at the end %+v, %v, %+v", v, allocated, n)
	}
}

// The seed agrees with itself in every system, and has every use.
func TestTheSeedIsConsistent(t *testing.T) {
	t.Parallel()
	w, err := Open(Options{Shape: Shape{Sites: 4, Racks: 6}, Clock: start().now})
	if err != nil {
		t.Fatal(err)
	}
	w.Read(func(s *State) {
		uses := map[string]int{}
		for _, n := range s.Nodes.All() {
			site, m := s.Sites.Get(n.Site), s.MachineOf(n)
			if m == nil || m.Node != n.UUID || m.Class != ClassCompute || site.InventoryOnly {
				t.Fatalf("the node %+v drives %+v", n, m)
			}
			bound := n.InstanceUUID != ""
			for what, broken := range map[string]bool{
				"bound and not active":                  bound != (n.ProvisionState == Active),
				"deployed and not active":               m.Deployed != (n.ProvisionState == Active),
				"known to be on and is not":             n.PowerState != "" && n.PowerState != powerWord(m.On),
				"ready for customers and ours":          slices.Contains(n.Traits, site.Trait) && n.Lessee != "" && n.Lessee != site.Lessees.Enrol && !slices.Contains(site.Customers, n.Lessee),
				"bound to nobody's server":              site.Placement && bound && s.Servers.Get(Key(n.Site, n.InstanceUUID)) == nil,
				"bound without an allocation":           site.Placement && bound && s.Providers.Get(n.Key()).Used(resourceClass(n)) != 1,
				"published where there is no Placement": !site.Placement && s.Providers.Get(n.Key()) != nil,
			} {
				if broken {
					t.Errorf("%s: it is %s: %+v", n.Name, what, n)
				}
			}
			uses[fmt.Sprintf("%s, maintenance %v", n.ProvisionState, n.Maintenance)]++
		}
		for _, use := range []string{"active, maintenance false", "available, maintenance false", "available, maintenance true", "clean failed, maintenance true", "manageable, maintenance false", "enroll, maintenance false"} {
			if uses[use] == 0 {
				t.Errorf("no node is %s: %v", use, uses)
			}
		}
	})
}

// A request about power ends when the machine has done it, and as a failure
// with its reason when the machine does not.
func TestPowerThroughIronic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		on, reboot bool
		change     func(b *BMC)
		fails      string
		want, says string
		resets     int
	}{
		"off":                {false, false, nil, "", PowerOff, "", 1},
		"on already":         {true, false, nil, "", PowerOn, "", 0},
		"a reboot":           {true, true, nil, "", PowerOn, "", 1},
		"a BMC that is deaf": {false, false, func(b *BMC) { b.Deaf = true }, "", PowerOn, "Failed to change power state to 'power off': Failed to set node power state", 0},
		"a dead BMC":         {false, false, func(b *BMC) { b.Dead = true }, "", PowerOn, "Redfish connection failed", 0},
		"told to fail":       {false, false, nil, WorkPower, PowerOn, "The BMC did not carry it out", 0},
	} {
		w, h := site(t)
		n := nodeIn(t, w, deployed)
		was := 0
		do(t, w, func(s *State) {
			m := s.Machines.Edit(s.MachineOf(n).Key())
			if was = m.Resets; test.change != nil {
				test.change(&m.BMC)
			}
			s.Machines.Put(m.Key(), m)
			c := s.Nodes.Edit(n.Key())
			c.Fails = test.fails
			s.RequestPower(c, test.on, test.reboot)
			s.Nodes.Put(c.Key(), c)
		})
		if n := node(w, n.Key()); n.TargetPower != powerWord(test.on) || n.Reservation == "" {
			t.Errorf("%s: at first it is %+v", name, n)
		}
		pass(w, h, n.Key(), time.Minute)
		w.Read(func(s *State) {
			n, m := s.Nodes.Get(n.Key()), s.MachineOf(n)
			if n.PowerState != test.want || n.TargetPower != "" || n.Reservation != "" || !strings.Contains(n.LastError, test.says) || (n.LastError == "") != (test.says == "") {
				t.Errorf("%s: at the end it is %+v", name, n)
			}
			if m.Resets-was != test.resets {
				t.Errorf("%s: the machine was reset %d times", name, m.Resets-was)
			}
		})
	}
}
