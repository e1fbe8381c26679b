package world

import (
	"math/rand/v2"
	"slices"
)

// happenings are all that life can do.
func happenings() []happening {
	return slices.Concat(tenancies(), hardwareTroubles(), clusterTroubles())
}

// tenancies are what customers do, as they do it: through Nova where the site
// has it, else through Ironic.
func tenancies() []happening {
	return []happening{
		{
			name: "a customer leaves", weight: 5,
			fits:  func(s *State, m *Machine) bool { return s.rented(m) != nil },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.leave(cloneNode(s.rented(m)), "") },
		},
		{
			name: "a customer comes", weight: 6,
			fits: func(s *State, m *Machine) bool { return s.vacant(m) != nil },
			begin: func(s *State, m *Machine, r *rand.Rand) {
				customers := s.Sites.Get(m.Site).Customers
				s.come(cloneNode(s.vacant(m)), customers[r.IntN(len(customers))], newUUID(r))
			},
		},
		{
			name: "a cleaning fails", weight: 2,
			fits:  func(s *State, m *Machine) bool { return s.rented(m) != nil },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.leave(cloneNode(s.rented(m)), WorkClean) },
			mend:  func(s *State, m *Machine) { s.cleanAgain(s.Nodes.Edit(Key(m.Site, m.Node))) },
		},
		{
			name: "a person looks after a failure", weight: 3,
			fits:  func(s *State, m *Machine) bool { return s.stranded(m) != nil },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.unstrand(cloneNode(s.stranded(m))) },
		},
	}
}

// stranded gives the node of a machine whose work failed for something that has
// passed since, such as a silent BMC, or nil.
func (s *State) stranded(m *Machine) *Node {
	for _, state := range []string{CleanFailed, DeployFailed} {
		if n := s.quiet(m, state); n != nil && s.Now.Sub(n.Provisioned) >= troubleLeast {
			return n
		}
	}
	return nil
}

func (s *State) unstrand(n *Node) {
	if n.ProvisionState == DeployFailed {
		s.leave(n, "")
		return
	}
	s.Verb(n, "manage")
	s.Verb(n, "provide")
	s.Nodes.Put(n.Key(), n)
}

// quiet gives the node of a machine that nothing is under way on, or nil.
func (s *State) quiet(m *Machine, state string) *Node {
	n := s.Nodes.Get(Key(m.Site, m.Node))
	if m.Node == "" || n == nil || n.ProvisionState != state || n.Maintenance || n.Reservation != "" || n.Work != "" || n.Protected || n.Retired || m.BMC.unwell() {
		return nil
	}
	return n
}

// rented gives the node of a machine that a customer has, or nil.
func (s *State) rented(m *Machine) *Node {
	n := s.quiet(m, Active)
	if n == nil || n.InstanceUUID == "" || !slices.Contains(s.Sites.Get(m.Site).Customers, n.Lessee) {
		return nil
	}
	if v := s.Servers.Get(Key(n.Site, n.InstanceUUID)); v != nil && v.Task != "" {
		return nil
	}
	return n
}

// vacant gives the node of a machine that a customer can have, or nil.
func (s *State) vacant(m *Machine) *Node {
	site, n := s.Sites.Get(m.Site), s.quiet(m, Available)
	switch {
	case n == nil || n.InstanceUUID != "",
		n.Lessee != "" && !(site.TraitBased && n.Lessee == site.Lessees.Enrol),
		site.TraitBased && !slices.Contains(n.Traits, site.Trait),
		site.Placement && !s.Bootable(n, false):
		return nil
	}
	return n
}

// leave has a customer's instance deleted; the work that is named fails.
func (s *State) leave(n *Node, fails string) {
	n.Fails, n.Lessee = fails, s.Sites.Get(n.Site).freeLessee()
	server := Key(n.Site, n.InstanceUUID)
	if s.Servers.Get(server) == nil {
		s.Verb(n, "deleted")
		s.Nodes.Put(n.Key(), n)
		return
	}
	s.Nodes.Put(n.Key(), n)
	s.DeleteServer(server)
}

// come has a customer's instance deployed.
func (s *State) come(n *Node, customer, instance string) {
	n.Lessee = customer
	if s.Sites.Get(n.Site).Placement {
		s.Nodes.Put(n.Key(), n)
		s.Boot(&Server{UUID: instance, Site: n.Site, Name: "i-" + instance[:8], Project: customer, Flavor: "baremetal." + trayClass}, n)
		return
	}
	n.InstanceUUID = instance
	n.InstanceInfo = map[string]any{"display_name": "i-" + instance[:8], "image_source": "http://images.example/ubuntu-24.04.raw", "image_checksum": "d41d8cd98f00b204e9800998ecf8427e"}
	s.Verb(n, "active")
	s.Nodes.Put(n.Key(), n)
}

// cleanAgain has a person mend a node whose cleaning failed.
func (s *State) cleanAgain(n *Node) {
	if n == nil || n.ProvisionState != CleanFailed || n.Fault != FaultClean {
		return
	}
	n.Maintenance, n.Reason, n.Fault = false, "", ""
	s.Verb(n, "manage")
	s.Verb(n, "provide")
	s.Nodes.Put(n.Key(), n)
}

// hardwareTroubles are what breaks and is mended in a machine.
func hardwareTroubles() []happening {
	return []happening{
		{
			name: "a BMC dies", weight: 2,
			fits:  func(_ *State, m *Machine) bool { return !m.BMC.unwell() },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.EditBMC(m, func(b *BMC) { b.Dead = true }) },
			mend:  func(s *State, m *Machine) { s.EditBMC(m, func(b *BMC) { b.Dead, b.Reset = false, s.Now }) },
		},
		{
			name: "a GPU degrades", weight: 2,
			fits: func(_ *State, m *Machine) bool { return m.Class == ClassCompute && m.Health["gpus"] == "" },
			begin: func(s *State, m *Machine, r *rand.Rand) {
				s.EditMachine(m, func(m *Machine) { m.Health["gpus"] = []string{"Warning", "Warning", "Critical"}[r.IntN(3)] })
			},
			mend: func(s *State, m *Machine) { s.EditMachine(m, func(m *Machine) { delete(m.Health, "gpus") }) },
		},
	}
}

// unwell tells whether something is wrong with a BMC already.
func (b *BMC) unwell() bool {
	return b.Dead || b.Hangs || b.Full || b.Password != "" || b.Slow != 0 || b.Deaf || b.BadImage || b.Keeps || b.PushOnly || b.Loses || b.Says != "" || !b.NotReady.IsZero()
}

// drainedFor is why a person drains.
const drainedFor = "NHC: check_hw_gpus failed"

// clusterTroubles are what happens to the nodes of SLURM.
func clusterTroubles() []happening {
	member := func(s *State, m *Machine) *SlurmNode {
		n := s.SlurmNodes.Get(Key(m.Site, m.Slurm))
		if m.Slurm == "" || n == nil || n.Base == SlurmDown || n.Has(SlurmDrain) || n.Has(SlurmFail) || n.Has(SlurmNotResponding) || !m.slurmd() {
			return nil
		}
		return n
	}
	return []happening{
		{
			name: "a person drains", weight: 2,
			fits: func(s *State, m *Machine) bool { return member(s, m) != nil },
			begin: func(s *State, m *Machine, _ *rand.Rand) {
				_ = s.UpdateSlurmNode(m.Site, m.Slurm, SlurmUpdate{State: []string{SlurmDrain}, Reason: drainedFor, User: "root"})
			},
			mend: func(s *State, m *Machine) {
				if n := s.SlurmNodes.Get(Key(m.Site, m.Slurm)); n != nil && n.Has(SlurmDrain) && n.Reason == drainedFor {
					_ = s.UpdateSlurmNode(m.Site, m.Slurm, SlurmUpdate{State: []string{"RESUME"}, User: "root"})
				}
			},
		},
		{
			name: "a slurmd dies", weight: 1,
			fits:  func(s *State, m *Machine) bool { return member(s, m) != nil },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.SetSlurmd(m, false) },
			mend:  func(s *State, m *Machine) { s.SetSlurmd(m, true) },
		},
	}
}
