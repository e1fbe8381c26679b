package world

import (
	"maps"
	"slices"
	"time"
)

// Provider is a resource provider of Placement.
type Provider struct {
	UUID        string                    `json:"uuid"`
	Site        string                    `json:"site"`
	Name        string                    `json:"name"`
	Generation  int                       `json:"generation"`
	Inventory   map[string]int            `json:"inventory,omitempty"`   // resource class → total
	Traits      []string                  `json:"traits,omitempty"`      //
	Allocations map[string]map[string]int `json:"allocations,omitempty"` // consumer uuid → resource class → amount
}

// Server is a server of Nova.
type Server struct {
	UUID    string    `json:"uuid"`
	Site    string    `json:"site"`
	Name    string    `json:"name"`
	Project string    `json:"project"`
	Node    string    `json:"node"` // uuid of the Ironic node it is on
	Status  string    `json:"status"`
	Task    string    `json:"task,omitempty"` // task_state
	Fault   string    `json:"fault,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Next    time.Time `json:"next,omitzero"`
}

func providerKind() kind[Provider] {
	return kind[Provider]{clone: cloneProvider}
}

func cloneProvider(p *Provider) *Provider {
	c := *p
	c.Inventory, c.Traits, c.Allocations = maps.Clone(p.Inventory), slices.Clone(p.Traits), maps.Clone(p.Allocations)
	for consumer, resources := range c.Allocations {
		c.Allocations[consumer] = maps.Clone(resources)
	}
	return &c
}

func serverKind() kind[Server] {
	return kind[Server]{
		clone:  copied[Server],
		due:    func(v *Server) time.Time { return v.Next },
		settle: settleServer,
	}
}

func settleServer(s *State, key string, row *Server) {
	v := copied(row)
	v.Next = time.Time{}
	s.Servers.Put(key, v)
}
