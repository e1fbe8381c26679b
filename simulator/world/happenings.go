package world

import "math/rand/v2"

// happenings are all that life can do.
func happenings() []happening {
	return []happening{
		{
			name: "BMC dies", weight: 2,
			fits:  func(_ *State, m *Machine) bool { return m.BMC == BMC{Reset: m.BMC.Reset} },
			begin: func(s *State, m *Machine, _ *rand.Rand) { s.EditMachine(m, func(m *Machine) { m.BMC.Dead = true }) },
			mend: func(s *State, m *Machine) {
				s.EditMachine(m, func(m *Machine) { m.BMC.Dead, m.BMC.Reset = false, s.Now })
			},
		},
		{
			name: "GPU degrades", weight: 2,
			fits: func(_ *State, m *Machine) bool { return m.Class == ClassCompute && m.Health["gpus"] == "" },
			begin: func(s *State, m *Machine, r *rand.Rand) {
				s.EditMachine(m, func(m *Machine) { m.Health["gpus"] = []string{"Warning", "Warning", "Critical"}[r.IntN(3)] })
			},
			mend: func(s *State, m *Machine) { s.EditMachine(m, func(m *Machine) { delete(m.Health, "gpus") }) },
		},
	}
}

// EditMachine changes a machine as it is now. It may be called inside Do only.
func (s *State) EditMachine(m *Machine, change func(m *Machine)) {
	if c := s.Machines.Edit(m.Key()); c != nil {
		change(c)
		s.Machines.Put(c.Key(), c)
	}
}
