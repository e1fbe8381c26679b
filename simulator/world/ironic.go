package world

import (
	"maps"
	"slices"
	"time"
)

// FaceIronic is the face of Ironic's API.
const FaceIronic = "ironic"

// Node is a node of Ironic, in the words of its API.
type Node struct {
	ID      int    `json:"id"` // order of creation within the site
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
	Description     string            `json:"description,omitempty"`
	ResourceClass   string            `json:"resource_class,omitempty"`
	ConductorGroup  string            `json:"conductor_group,omitempty"`
	Shard           string            `json:"shard,omitempty"`
	AutomatedClean  *bool             `json:"automated_clean,omitempty"` // never changed in place
	Protected       bool              `json:"protected,omitempty"`
	ProtectedReason string            `json:"protected_reason,omitempty"`
	Retired         bool              `json:"retired,omitempty"`
	RetiredReason   string            `json:"retired_reason,omitempty"`
	Driver          string            `json:"driver"`
	Traits          []string          `json:"traits,omitempty"` // ascending
	DriverInfo      map[string]any    `json:"driver_info"`
	Properties      map[string]any    `json:"properties"`
	InstanceInfo    map[string]any    `json:"instance_info"`
	Extra           map[string]any    `json:"extra"`
	NetworkData     map[string]any    `json:"network_data"`
	Interfaces      map[string]string `json:"interfaces"` // deploy, power, …
	BootDevice      string            `json:"boot_device,omitempty"`
	BootPersistent  bool              `json:"boot_persistent,omitempty"`
	Reservation     string            `json:"reservation,omitempty"`
	Created         time.Time         `json:"created_at"`
	Updated         time.Time         `json:"updated_at,omitzero"`
	Provisioned     time.Time         `json:"provision_updated_at,omitzero"`
	InspectStarted  time.Time         `json:"inspection_started_at,omitzero"`
	InspectFinished time.Time         `json:"inspection_finished_at,omitzero"`
	Inventoried     bool              `json:"inventoried,omitempty"` // a ramdisk has told what the machine has

	Work   string    `json:"work,omitempty"`   // what it is at: one of the Work…
	Steps  []Step    `json:"steps,omitempty"`  // of a manual clean
	Ahead  []Phase   `json:"ahead,omitempty"`  // passing states to come
	Next   time.Time `json:"next,omitzero"`    // when the passing state goes on; zero: somebody has to come
	SyncAt time.Time `json:"sync_at,omitzero"` // when Ironic next compares the machine's power with what it wants
	Fails  string    `json:"fails,omitempty"`  // the Work that will fail the next time
}

// Step is a step of a manual clean.
type Step struct {
	Interface string         `json:"interface"`
	Step      string         `json:"step"`
	Args      map[string]any `json:"args,omitempty"`
}

// Phase is a passing provision state and how long it lasts.
type Phase struct {
	State string        `json:"state"`
	Takes time.Duration `json:"takes"` // 0: until somebody ends it
}

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
	c.NetworkData, c.Ahead, c.Steps = deepMap(n.NetworkData), slices.Clone(n.Ahead), slices.Clone(n.Steps)
	return &c
}

// Key is the node's key in Nodes.
func (n *Node) Key() string { return Key(n.Site, n.UUID) }

// Subject is the name under which effects tell of the node: its machine's where
// it drives one.
func (n *Node) Subject() string {
	switch {
	case n.Machine != "":
		return n.Machine
	case n.Name != "":
		return n.Name
	}
	return n.UUID
}

// MachineOf gives the machine that a node drives, or nil.
func (s *State) MachineOf(n *Node) *Machine {
	if n.Machine == "" {
		return nil
	}
	return s.Machines.Get(Key(n.Site, n.Machine))
}

// FindNode gives a site's node by its uuid or name, or nil.
func (s *State) FindNode(site, ident string) *Node {
	if n := s.Nodes.Get(Key(site, ident)); n != nil || ident == "" {
		return n
	}
	for _, n := range s.Nodes.Of(site) {
		if n.Name == ident {
			return n
		}
	}
	return nil
}

// AddNode stores a new node, the last of its site.
func (s *State) AddNode(n *Node) {
	n.ID = 1
	for _, other := range s.Nodes.Of(n.Site) {
		n.ID = max(n.ID, other.ID+1)
	}
	s.Bind(n)
	s.Nodes.Put(n.Key(), n)
}

// DropNode forgets a node, with its ports.
func (s *State) DropNode(n *Node) {
	s.unbind(n)
	var ports []string
	for key, p := range s.Ports.Of(n.Site) {
		if p.Node == n.UUID {
			ports = append(ports, key)
		}
	}
	for _, key := range ports {
		s.Ports.Delete(key)
	}
	s.Nodes.Delete(n.Key())
}

// Bind finds the machine that a node's interfaces and driver_info lead to. The
// node is to be Put afterwards.
func (s *State) Bind(n *Node) {
	name := ""
	if n.Interfaces["power"] == "redfish" {
		if m := s.machineAt(n.Site, redfishHost(n.DriverInfo)); m != nil {
			name = m.Name
		}
	}
	if name != n.Machine {
		s.unbind(n)
	}
	n.Machine = name
	if m := s.MachineOf(n); m != nil && m.Node != n.UUID && s.Nodes.Get(Key(n.Site, m.Node)) == nil {
		m = s.Machines.Edit(m.Key())
		m.Node = n.UUID
		s.Machines.Put(m.Key(), m)
	}
}

func (s *State) unbind(n *Node) {
	if m := s.MachineOf(n); m != nil && m.Node == n.UUID {
		m = s.Machines.Edit(m.Key())
		m.Node = ""
		s.Machines.Put(m.Key(), m)
	}
}

func (s *State) machineAt(site, address string) *Machine {
	if address == "" {
		return nil
	}
	for _, m := range s.Machines.Of(site) {
		if m.Address == address {
			return m
		}
	}
	return nil
}
