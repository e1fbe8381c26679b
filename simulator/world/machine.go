package world

import (
	"fmt"
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

	On         bool              `json:"on"`
	Moves      []PowerMove       `json:"moves,omitempty"` // that are under way, in their order
	LastReset  time.Time         `json:"last_reset,omitzero"`
	Resets     int               `json:"resets"`
	Boot       string            `json:"boot,omitempty"`       // the override for the next boot, "" none
	BootStays  bool              `json:"boot_stays,omitempty"` // for every boot
	AssetTag   string            `json:"asset_tag,omitempty"`
	LED        string            `json:"led,omitempty"`         // IndicatorLED, "" Off
	Deployed   bool              `json:"deployed"`              // an operating system is on its disk
	SlurmdDown bool              `json:"slurmd_down,omitempty"` // its slurmd has ended, whatever else runs
	Health     map[string]string `json:"health"`                // subsystem (as the facts of a BMC are called) → OK, Warning, Critical
	Firmware   map[string]string `json:"firmware"`              // component → version
	Update     *Update           `json:"update,omitempty"`
	Tasks      []Task            `json:"tasks,omitempty"` // of the BMC, the newest last, see tasksKept
	BMC        BMC               `json:"bmc"`

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

// BMC is how the machine's controller behaves.
type BMC struct {
	Dead     bool      `json:"dead,omitempty"`      // closes what it accepts
	Hangs    bool      `json:"hangs,omitempty"`     // accepts and never answers
	NotReady time.Time `json:"not_ready,omitzero"`  // until then it answers 503
	Full     bool      `json:"full,omitempty"`      // others hold all its sessions
	Own      string    `json:"own,omitempty"`       // its account's password; "" the fleet's
	Password string    `json:"password,omitempty"`  // what somebody changed it to whom nobody knows; "" nobody did
	Slow     int       `json:"slow_ms,omitempty"`   // milliseconds before each answer
	Sessions int       `json:"sessions,omitempty"`  // the most at a time, 0 default
	Deaf     bool      `json:"deaf,omitempty"`      // accepts resets, and nothing happens
	BadImage bool      `json:"bad_image,omitempty"` // the next update fails
	Keeps    bool      `json:"keeps,omitempty"`     // updates end well, and the versions stay
	PushOnly bool      `json:"push_only,omitempty"` // fetches no image, it has to be sent along
	Loses    bool      `json:"loses,omitempty"`     // does the next act, and its answer is lost
	Says     string    `json:"says,omitempty"`      // of its power, whatever is so: On, Off, or null for nothing; "" the truth
	Reset    time.Time `json:"reset,omitzero"`      // when it last began
}

// secret is the password that lets in; "" the fleet's.
func (b *BMC) secret() string {
	if b.Password != "" {
		return b.Password
	}
	return b.Own
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
	c.Moves, c.Tasks, c.Health, c.Firmware = slices.Clone(m.Moves), slices.Clone(m.Tasks), maps.Clone(m.Health), maps.Clone(m.Firmware)
	if m.Update != nil {
		u := *m.Update
		c.Update = &u
	}
	return &c
}

// slurmd tells whether the machine's slurmd runs.
func (m *Machine) slurmd() bool { return m.On && m.Deployed && !m.SlurmdDown }

// EditMachine changes a machine as it is now. It may be called inside Do only.
func (s *State) EditMachine(m *Machine, change func(m *Machine)) {
	if c := s.Machines.Edit(m.Key()); c != nil {
		change(c)
		s.Machines.Put(c.Key(), c)
	}
}

// EditBMC changes how a machine's BMC behaves, and tells who depends on it.
func (s *State) EditBMC(m *Machine, change func(b *BMC)) {
	s.EditMachine(m, func(m *Machine) { change(&m.BMC) })
	if m.Node != "" {
		s.BMCChanged(s.Machines.Get(m.Key()))
	}
}

// SetSlurmd ends a machine's slurmd, or starts it where the machine lets it.
func (s *State) SetSlurmd(m *Machine, up bool) {
	s.EditMachine(m, func(m *Machine) { m.SlurmdDown = !up })
	if m.Slurm != "" {
		s.slurmdChanged(s.Machines.Get(m.Key()))
	}
}

// Key is the machine's key in Machines.
func (m *Machine) Key() string { return Key(m.Site, m.Name) }

func settleMachine(s *State, key string, row *Machine) {
	m := cloneMachine(row)
	if len(m.Moves) > 0 && !m.Moves[0].At.After(s.Now) {
		was := m.On
		m.On, m.Moves = m.Moves[0].On && s.Fed(m), m.Moves[1:]
		if m.On && !was {
			m.booted(s.Now)
		}
		s.Machines.Put(key, m)
		if m.On != was {
			s.powerChanged(m)
		}
		return
	}
	if u := m.Update; u != nil && !u.At.After(s.Now) {
		m.endUpdate(s.Now)
	}
	s.Machines.Put(key, m)
}

// booted notes that the machine has come on.
func (m *Machine) booted(at time.Time) {
	m.LastReset = at
	if !m.BootStays {
		m.Boot = ""
	}
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

// Fed tells whether a machine has power to be switched on with: a rack has it
// while one of its shelves is on. A shelf has its own.
func (s *State) Fed(m *Machine) bool {
	if m.Class == ClassPowerShelf {
		return true
	}
	for n := 1; n <= powerShelves; n++ {
		if shelf := s.Machines.Get(shelfKey(m, n)); shelf == nil || shelf.On {
			return true
		}
	}
	return false
}

// shelfKey is the key of the nth power shelf of a machine's rack.
func shelfKey(m *Machine, n int) string { return Key(m.Site, fmt.Sprintf("%s-p%02d", m.Rack, n)) }

// shelfChanged takes the power from all that stands in a shelf's rack, if it was
// the last shelf that was on. With the power coming back BMCs answer again, and
// nothing comes on by itself.
func (s *State) shelfChanged(shelf *Machine) {
	var rack []string
	for key, m := range s.Machines.Of(shelf.Site) {
		if m.Rack == shelf.Rack && m.Class != ClassPowerShelf && (shelf.On || !s.Fed(m)) {
			rack = append(rack, key)
		}
	}
	for _, key := range rack {
		m := s.Machines.Edit(key)
		if !shelf.On && (m.On || len(m.Moves) > 0) {
			m.On, m.Moves = false, nil
			s.Machines.Put(key, m)
			s.powerChanged(m)
		}
		if m.Node != "" {
			s.BMCChanged(m)
		}
	}
}

// powerChanged tells what hangs on a machine's power that it has changed.
func (s *State) powerChanged(m *Machine) {
	if m.Class == ClassPowerShelf {
		s.shelfChanged(m)
	}
	if m.Node != "" {
		s.nodePowerChanged(m)
	}
	if m.Slurm != "" {
		s.slurmdChanged(m)
	}
}
