package world

import (
	"maps"
	"slices"
)

// Provider is a resource provider of Placement.
type Provider struct {
	UUID        string                `json:"uuid"`
	Site        string                `json:"site"`
	Name        string                `json:"name"`
	Parent      string                `json:"parent,omitempty"` // uuid
	Generation  int                   `json:"generation"`
	Inventory   map[string]Inventory  `json:"inventory"`        // by resource class
	Traits      []string              `json:"traits,omitempty"` // ascending
	Aggregates  []string              `json:"aggregates,omitempty"`
	Allocations map[string]Allocation `json:"allocations"` // by consumer
}

// Inventory is what a provider has of a resource class.
type Inventory struct {
	Total    int     `json:"total"`
	Reserved int     `json:"reserved"`
	MinUnit  int     `json:"min_unit"`
	MaxUnit  int     `json:"max_unit"`
	StepSize int     `json:"step_size"`
	Ratio    float64 `json:"allocation_ratio"`
}

// Allocation is what a consumer has of a provider. What concerns the consumer is
// the same at each of its providers.
type Allocation struct {
	Resources  map[string]int `json:"resources"`
	Project    string         `json:"project_id"`
	User       string         `json:"user_id"`
	Type       string         `json:"consumer_type"`
	Generation int            `json:"consumer_generation"`
}

// Custom is a trait or resource class that somebody made up.
type Custom struct {
	Site string `json:"site"`
	Kind string `json:"kind"` // trait, class
	Name string `json:"name"`
}

// CustomKey is the key of a custom trait or class in Customs.
func CustomKey(site, kind, name string) string { return Key(site, kind+"/"+name) }

func providerKind() kind[Provider] {
	return kind[Provider]{clone: cloneProvider}
}

func customKind() kind[Custom] { return kind[Custom]{clone: copied[Custom]} }

func cloneProvider(p *Provider) *Provider {
	c := *p
	c.Inventory, c.Traits, c.Aggregates, c.Allocations = maps.Clone(p.Inventory), slices.Clone(p.Traits), slices.Clone(p.Aggregates), maps.Clone(p.Allocations)
	for consumer, a := range c.Allocations {
		a.Resources = maps.Clone(a.Resources)
		c.Allocations[consumer] = a
	}
	return &c
}

// Used is how much of a resource class is allocated.
func (p *Provider) Used(class string) (used int) {
	for _, a := range p.Allocations {
		used += a.Resources[class]
	}
	return used
}

// Free is how much of a resource class is left to be allocated.
func (p *Provider) Free(class string) int {
	i := p.Inventory[class]
	return int(float64(i.Total-i.Reserved)*max(i.Ratio, 1)) - p.Used(class)
}

// Key is the provider's key in Providers.
func (p *Provider) Key() string { return Key(p.Site, p.UUID) }

// AllocationsOf gives the providers at which a consumer has something.
func (s *State) AllocationsOf(site, consumer string) (at []*Provider) {
	for _, p := range s.Providers.Of(site) {
		if _, has := p.Allocations[consumer]; has {
			at = append(at, p)
		}
	}
	return at
}

// Release takes all that a consumer has, and tells whether that was anything.
func (s *State) Release(site, consumer string) bool {
	at := s.AllocationsOf(site, consumer)
	for _, p := range at {
		c := s.Providers.Edit(p.Key())
		delete(c.Allocations, consumer) // the generation stays: the real one raises it for a new allocation alone
		s.Providers.Put(c.Key(), c)
	}
	return len(at) > 0
}

// resourceClass is Placement's name for a node's resource class.
func resourceClass(n *Node) string {
	class := []byte("CUSTOM_" + n.ResourceClass)
	for i, b := range class {
		switch {
		case b >= 'a' && b <= 'z':
			class[i] = b - 'a' + 'A'
		case b >= 'A' && b <= 'Z' || b >= '0' && b <= '9':
		default:
			class[i] = '_'
		}
	}
	return string(class)
}

// offered has the site's nova-compute publish a node that became available.
func (s *State) offered(n *Node) {
	site := s.Sites.Get(n.Site)
	if site == nil || !site.Placement || n.ResourceClass == "" || n.Machine == "" {
		return
	}
	if s.Providers.Get(n.Key()) == nil {
		s.publish(n)
	}
}

func (s *State) publish(n *Node) *Provider {
	p := &Provider{
		UUID: n.UUID, Site: n.Site, Name: n.UUID, Generation: 2, Traits: slices.Clone(n.Traits),
		Inventory:   map[string]Inventory{resourceClass(n): {Total: 1, MinUnit: 1, MaxUnit: 1, StepSize: 1, Ratio: 1}},
		Allocations: map[string]Allocation{},
	}
	s.Providers.Put(p.Key(), p)
	s.custom(n.Site, "class", resourceClass(n))
	for _, trait := range n.Traits {
		s.custom(n.Site, "trait", trait)
	}
	return p
}

func (s *State) custom(site, kind, name string) {
	if key := CustomKey(site, kind, name); s.Customs.Get(key) == nil {
		s.Customs.Put(key, &Custom{Site: site, Kind: kind, Name: name})
	}
}
