package world

import (
	"maps"
	"slices"
)

// Site is one simulated data centre.
type Site struct {
	Name          string `json:"name"`
	Index         int    `json:"index"` // from 1
	Mode          string `json:"mode"`  // muster's engagement mode
	TraitBased    bool   `json:"trait_based"`
	Trait         string `json:"trait"` // that hands a node to customers
	Placement     bool   `json:"placement"`
	Slurm         bool   `json:"slurm"`
	InventoryOnly bool   `json:"inventory_only"` // no Ironic, no BMC access
	// CredentialStore says that the site keeps each device's credential for its BMC
	// in a service: it has one.
	CredentialStore bool `json:"credential_store,omitempty"`

	FastTrack bool     `json:"fast_track"` // its Ironic leaves clean nodes running on their ramdisk, so that their BMCs tell all
	Lessees   Lessees  `json:"lessees"`
	Customers []string `json:"customers"` // projects
}

// Lessees are the projects of our own leases.
type Lessees struct {
	Enrol       string `json:"enrol"`
	Slurm       string `json:"slurm"`
	Maintenance string `json:"maintenance"`
}

// freeLessee is whom a node is leased to that customers may have: where a trait
// offers nodes nobody clears the lease, elsewhere the lessee is what keeps a node
// from customers.
func (s *Site) freeLessee() string {
	if s.TraitBased {
		return s.Lessees.Enrol
	}
	return ""
}

// Rack is a rack as it stands there, whatever NetBox says.
type Rack struct {
	Name string `json:"name"`
	Site string `json:"site"`
}

func siteKind() kind[Site] {
	return kind[Site]{clone: cloneSite}
}

func cloneSite(s *Site) *Site {
	c := *s
	c.Customers = slices.Clone(s.Customers)
	return &c
}

func rackKind() kind[Rack] {
	return kind[Rack]{clone: copied[Rack]}
}

func clockKind() kind[clock] {
	return kind[clock]{clone: copied[clock]}
}

// copied clones a row that holds no maps and slices.
func copied[T any](row *T) *T {
	c := *row
	return &c
}

// Key is a row's key of a site.
func Key(site, name string) string { return site + "/" + name }

// deep clones a JSON-like value.
func deep(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return deepMap(v)
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = deep(v[i])
		}
		return c
	}
	return value
}

func deepMap(m map[string]any) map[string]any {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = deep(v)
	}
	return c
}
