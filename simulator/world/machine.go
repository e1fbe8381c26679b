package world

import (
	"maps"
	"slices"
	"time"
)

// The classes of machines, as NetBox's roles say them.
const (
	ClassCompute    = "gpu-compute"
	ClassNVSwitch   = "nvswitch"
	ClassPowerShelf = "powershelf"
	ClassSwitch     = "switch"
)

// Machine is one piece of hardware as it stands there.
type Machine struct {
	Name     string `json:"name"`
	Site     string `json:"site"`
	Rack     string `json:"rack"`
	Position int    `json:"position"`
	Class    string `json:"class"`
	UUID     string `json:"uuid"`
	Serial   string `json:"serial"`
	Vendor   string `json:"vendor"`
	Model    string `json:"model"`
	MAC      string `json:"mac"`     // of the BMC
	Address  string `json:"address"` // of the BMC, "" where it has none

	On        bool              `json:"on"`
	Moves     []PowerMove       `json:"moves,omitempty"` // that are under way, in their order
	LastReset time.Time         `json:"last_reset,omitzero"`
	Resets    int               `json:"resets"`
	Boot      string            `json:"boot,omitempty"` // the override for the next boot, "" none
	Deployed  bool              `json:"deployed"`       // an operating system is on its disk
	Health    map[string]string `json:"health"`         // subsystem (as the facts of a BMC are called) → OK, Warning, Critical
	Firmware  map[string]string `json:"firmware"`       // component → version
	Update    *Update           `json:"update,omitempty"`
	BMC       BMC               `json:"bmc"`

	// What the systems around it call it; "" where they do not know it.
	Node   string `json:"node,omitempty"`   // uuid in Ironic
	Slurm  string `json:"slurm,omitempty"`  // name in SLURM
	NetBox string `json:"netbox,omitempty"` // key in Objects
}

// PowerMove is a change of power that takes effect at an instant.
type PowerMove struct {
	At time.Time `json:"at"`
	On bool      `json:"on"`
}

// Update is a firmware update under way.
type Update struct {
	Component string    `json:"component"`
	Version   string    `json:"version"`
	Task      string    `json:"task"`
	At        time.Time `json:"at"` // when it is done
	Fails     bool      `json:"fails"`
}

// BMC is how the machine's controller behaves.
type BMC struct {
	Dead     bool      `json:"dead,omitempty"`     // does not answer at all
	NotReady time.Time `json:"not_ready,omitzero"` // until then it answers 503
	Password string    `json:"password,omitempty"` // "" the fleet's
	Slow     int       `json:"slow_ms,omitempty"`  // milliseconds before each answer
	Sessions int       `json:"sessions,omitempty"` // the most at a time, 0 default
}

// PowerDelay is how long a machine takes to switch on or off.
const PowerDelay = 2 * time.Second

func machineKind() kind[Machine] {
	return kind[Machine]{
		clone: cloneMachine,
		due: func(m *Machine) (at time.Time) {
			if len(m.Moves) > 0 {
				at = m.Moves[0].At
			}
			if m.Update != nil && (at.IsZero() || m.Update.At.Before(at)) {
				at = m.Update.At
			}
			return at
		},
		settle: settleMachine,
	}
}

func cloneMachine(m *Machine) *Machine {
	c := *m
	c.Moves, c.Health, c.Firmware = slices.Clone(m.Moves), maps.Clone(m.Health), maps.Clone(m.Firmware)
	if m.Update != nil {
		u := *m.Update
		c.Update = &u
	}
	return &c
}

// Key is the machine's key in Machines.
func (m *Machine) Key() string { return Key(m.Site, m.Name) }

func settleMachine(s *State, key string, row *Machine) {
	m := cloneMachine(row)
	if len(m.Moves) > 0 && !m.Moves[0].At.After(s.Now) {
		was := m.On
		m.On, m.Moves = m.Moves[0].On, m.Moves[1:]
		if m.On && !was {
			m.LastReset = s.Now
		}
		s.Machines.Put(key, m)
		if m.On != was {
			s.powerChanged(m)
		}
		return
	}
	if u := m.Update; u != nil && !u.At.After(s.Now) {
		if !u.Fails {
			m.Firmware[u.Component] = u.Version
		}
		m.Update = nil
	}
	s.Machines.Put(key, m)
}

// Switch has a machine's power changed, as its BMC does on a reset: on, off, or
// off and on again. What was under way is overridden. op is told in the effect of the machine.
func (s *State) Switch(m *Machine, op string, moves ...bool) {
	c := cloneMachine(m)
	c.Moves = c.Moves[:0]
	at := s.Now
	for _, on := range moves {
		at = at.Add(PowerDelay)
		c.Moves = append(c.Moves, PowerMove{At: at, On: on})
	}
	c.Resets++
	s.Machines.Put(c.Key(), c)
	s.Note(Effect{Face: FaceMachine, Site: c.Site, Op: op, Subject: c.Name})
}

// powerChanged tells what hangs on a machine's power that it has changed.
func (s *State) powerChanged(m *Machine) {
	if m.Node != "" {
		s.nodePowerChanged(m)
	}
	if m.Slurm != "" {
		s.slurmdChanged(m)
	}
}
