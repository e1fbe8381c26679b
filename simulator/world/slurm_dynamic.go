package world

import "time"

// CreateSlurmNode makes a dynamic node, which is a machine of its name if there
// is one: its slurmd, if it runs, registers at once. False: the name is taken.
func (s *State) CreateSlurmNode(n *SlurmNode) bool {
	key := Key(n.Site, n.Name)
	if s.SlurmNodes.Get(key) != nil {
		return false
	}
	n.Dynamic, n.Base, n.Created = true, SlurmIdle, s.Now
	n.Flags = []string{"CLOUD", "POWERED_DOWN", SlurmDynamic}
	if m := s.Machines.Edit(Key(n.Site, n.Name)); m != nil {
		n.Machine, m.Slurm = m.Name, n.Name
		s.Machines.Put(m.Key(), m)
		if m.slurmd() {
			n.Up, n.Silent = s.Now.Add(time.Second), s.Now
		}
	}
	s.SlurmNodes.Put(key, n)
	return true
}

// DeleteSlurmNode takes a dynamic node away.
func (s *State) DeleteSlurmNode(site, name string) error {
	key := Key(site, name)
	n := s.SlurmNodes.Get(key)
	switch {
	case n == nil:
		return ErrSlurmNode
	case !n.Dynamic, n.Job != 0:
		return ErrSlurmTransition
	}
	if m := s.Machines.Edit(Key(site, n.Machine)); m != nil {
		m.Slurm = ""
		s.Machines.Put(m.Key(), m)
	}
	s.SlurmNodes.Delete(key)
	return nil
}
