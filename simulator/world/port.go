package world

import "time"

// Port is a network port of a node, in the words of Ironic's API.
type Port struct {
	ID        int            `json:"id"`
	UUID      string         `json:"uuid"`
	Site      string         `json:"site"`
	Node      string         `json:"node"` // uuid
	Address   string         `json:"address"`
	PXE       bool           `json:"pxe_enabled"`
	Network   string         `json:"physical_network,omitempty"`
	Link      map[string]any `json:"local_link_connection,omitempty"`
	Extra     map[string]any `json:"extra,omitempty"`
	SmartNIC  bool           `json:"is_smartnic,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at,omitzero"`
}

func (p *Port) key() string { return Key(p.Site, p.UUID) }

func portKind() kind[Port] {
	return kind[Port]{clone: func(p *Port) *Port {
		c := *p
		c.Link, c.Extra = deepMap(p.Link), deepMap(p.Extra)
		return &c
	}}
}

// AddPort stores a new port, the last of its site.
func (s *State) AddPort(p *Port) {
	p.ID = 1
	for _, other := range s.Ports.Of(p.Site) {
		p.ID = max(p.ID, other.ID+1)
	}
	s.Ports.Put(p.key(), p)
}

// PortAt gives a site's port with a MAC address, or nil.
func (s *State) PortAt(site, address string) *Port {
	for _, p := range s.Ports.Of(site) {
		if p.Address == address {
			return p
		}
	}
	return nil
}
