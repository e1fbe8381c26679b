package world

import (
	"maps"
	"slices"
	"time"
)

// Node is a node of Ironic, in the words of its API.
type Node struct {
	UUID    string `json:"uuid"`
	Site    string `json:"site"`
	Name    string `json:"name"`
	Machine string `json:"machine,omitempty"` // name of the machine that it drives; "": a fake one

	ProvisionState  string            `json:"provision_state"`
	TargetProvision string            `json:"target_provision_state,omitempty"`
	PowerState      string            `json:"power_state,omitempty"` // "power on", "power off", "" unknown
	TargetPower     string            `json:"target_power_state,omitempty"`
	Maintenance     bool              `json:"maintenance"`
	Reason          string            `json:"maintenance_reason,omitempty"`
	Fault           string            `json:"fault,omitempty"`
	LastError       string            `json:"last_error,omitempty"`
	InstanceUUID    string            `json:"instance_uuid,omitempty"`
	Lessee          string            `json:"lessee,omitempty"`
	Owner           string            `json:"owner,omitempty"`
	ResourceClass   string            `json:"resource_class,omitempty"`
	Driver          string            `json:"driver"`
	Traits          []string          `json:"traits,omitempty"`
	DriverInfo      map[string]any    `json:"driver_info,omitempty"`
	Properties      map[string]any    `json:"properties,omitempty"`
	InstanceInfo    map[string]any    `json:"instance_info,omitempty"`
	Extra           map[string]any    `json:"extra,omitempty"`
	Interfaces      map[string]string `json:"interfaces,omitempty"` // deploy_interface, …
	Reservation     string            `json:"reservation,omitempty"`
	Created         time.Time         `json:"created_at"`
	Updated         time.Time         `json:"updated_at,omitzero"`
	Provisioned     time.Time         `json:"provision_updated_at,omitzero"`

	Next   time.Time `json:"next,omitzero"`    // when the passing state goes on
	SyncAt time.Time `json:"sync_at,omitzero"` // when Ironic next compares the machine's power with what it wants
	Fails  string    `json:"fails,omitempty"`  // the step that will fail the next time: deploy, clean, inspect, …
}

// PowerSync is how long Ironic takes at most to notice a change of power that it
// did not make.
const PowerSync = 10 * time.Second

func nodeKind() kind[Node] {
	return kind[Node]{
		clone: cloneNode,
		due: func(n *Node) time.Time {
			if n.Next.IsZero() || !n.SyncAt.IsZero() && n.SyncAt.Before(n.Next) {
				return n.SyncAt
			}
			return n.Next
		},
		settle: settleNode,
	}
}

func cloneNode(n *Node) *Node {
	c := *n
	c.Traits, c.Interfaces = slices.Clone(n.Traits), maps.Clone(n.Interfaces)
	c.DriverInfo, c.Properties, c.InstanceInfo, c.Extra = deepMap(n.DriverInfo), deepMap(n.Properties), deepMap(n.InstanceInfo), deepMap(n.Extra)
	return &c
}

// MachineOf gives the machine that a node drives, or nil.
func (s *State) MachineOf(n *Node) *Machine {
	if n.Machine == "" {
		return nil
	}
	return s.Machines.Get(Key(n.Site, n.Machine))
}

// settleNode lets the node's state go on, and Ironic compare its power.
func settleNode(s *State, key string, row *Node) {
	n := cloneNode(row)
	if !n.SyncAt.IsZero() && !n.SyncAt.After(s.Now) {
		n.SyncAt = time.Time{}
		s.syncPower(n)
	}
	if !n.Next.IsZero() && !n.Next.After(s.Now) {
		n.Next = time.Time{}
		s.nextState(n)
	}
	s.Nodes.Put(key, n)
}

// powerWord is Ironic's word for a machine's power.
func powerWord(on bool) string {
	if on {
		return "power on"
	}
	return "power off"
}

// syncPower has Ironic restore the power that it knows of: a change behind its
// back is undone.
func (s *State) syncPower(n *Node) {
	m := s.MachineOf(n)
	if m == nil || m.BMC.Dead || len(m.Moves) > 0 || powerWord(m.On) == n.PowerState {
		return
	}
	if n.PowerState == "" || n.TargetPower != "" || n.Maintenance {
		n.PowerState, n.TargetPower = powerWord(m.On), ""
		return
	}
	s.Switch(m, "reset by Ironic's power sync", n.PowerState == "power on")
	n.SyncAt = s.Now.Add(PowerSync)
}

// nodePowerChanged lets a node's own power change end, or has Ironic notice one
// that it did not make.
func (s *State) nodePowerChanged(m *Machine) {
	key := Key(m.Site, m.Node)
	n := s.Nodes.Edit(key)
	if n == nil {
		return
	}
	if n.TargetPower != "" {
		if len(m.Moves) == 0 && powerWord(m.On) == n.TargetPower {
			n.PowerState, n.TargetPower, n.Updated = n.TargetPower, "", s.Now
		}
	} else {
		n.SyncAt = s.Now.Add(PowerSync)
	}
	s.Nodes.Put(key, n)
}

// nextState lets a passing provision state go on.
func (s *State) nextState(*Node) {}
