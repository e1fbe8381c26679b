package placement

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// classes are the resource classes that everybody knows.
var classes = []string{"VCPU", "MEMORY_MB", "DISK_GB", "PCI_DEVICE", "SRIOV_NET_VF", "NUMA_SOCKET", "NUMA_CORE", "NUMA_THREAD", "NUMA_MEMORY_MB", "IPV4_ADDRESS", "VGPU", "PCPU", "FPGA"}

// traitsKnown are some of the traits that everybody knows.
var traitsKnown = []string{"HW_CPU_X86_VMX", "HW_CPU_X86_AVX2", "HW_GPU_CUDA_SDK", "HW_NIC_SRIOV", "COMPUTE_STATUS_DISABLED", "COMPUTE_TRUSTED_CERTS"}

func standard(kind string) []string {
	if kind == "class" {
		return classes
	}
	return traitsKnown
}

func (c *call) known(s *world.State, kind, name string) bool {
	return slices.Contains(standard(kind), name) || s.Customs.Get(world.CustomKey(c.site, kind, name)) != nil
}

const concurrent = "placement.concurrent_update"

// number reads a count that may be left out.
func number(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

// inventory is an inventory as it is written.
type inventory struct {
	Total    *int     `json:"total"`
	Reserved *int     `json:"reserved"`
	MinUnit  *int     `json:"min_unit"`
	MaxUnit  *int     `json:"max_unit"`
	StepSize *int     `json:"step_size"`
	Ratio    *float64 `json:"allocation_ratio"`
}

func (i *inventory) read() (world.Inventory, error) {
	if i.Total == nil || *i.Total < 1 {
		return world.Inventory{}, bad("JSON does not validate: 'total' is a required property")
	}
	ratio := 1.0
	if i.Ratio != nil {
		ratio = *i.Ratio
	}
	return world.Inventory{
		Total: *i.Total, Reserved: number(i.Reserved, 0), MinUnit: number(i.MinUnit, 1), MaxUnit: number(i.MaxUnit, 2147483647), StepSize: number(i.StepSize, 1), Ratio: ratio,
	}, nil
}

func (c *call) sendInventories(p *world.Provider) error {
	return c.send(http.StatusOK, map[string]any{"resource_provider_generation": p.Generation, "inventories": p.Inventory})
}

// inventories are what a provider has.
func (c *call) inventories(uuid string, rest []string) error {
	if len(rest) == 1 {
		return c.inventoryOf(uuid, rest[0])
	}
	switch c.r.Method {
	case http.MethodGet:
		p, err := c.provider(uuid)
		if err != nil {
			return notFound("No resource provider with uuid %s found : No resource provider with uuid %s found", uuid, uuid)
		}
		return c.sendInventories(p)
	case http.MethodPut:
		var in struct {
			Generation  *int                 `json:"resource_provider_generation"`
			Inventories map[string]inventory `json:"inventories"`
		}
		if err := c.read(&in); err != nil {
			return err
		}
		if in.Generation == nil || in.Inventories == nil {
			return bad("JSON does not validate: 'resource_provider_generation' and 'inventories' are required properties")
		}
		return c.setInventories(uuid, *in.Generation, in.Inventories)
	case http.MethodDelete:
		_, err := c.change(uuid, "delete inventories", func(_ *world.State, p *world.Provider) error {
			if class := inUse(p, nil); class != "" {
				return conflict("placement.inventory.inuse", "Inventory for '%s' on resource provider '%s' in use.", class, uuid)
			}
			p.Inventory = map[string]world.Inventory{}
			p.Generation++
			return nil
		})
		if err != nil {
			return err
		}
		return c.empty(http.StatusNoContent)
	}
	return c.notAllowed("GET, PUT, POST, DELETE")
}

// inUse gives a class that is allocated and would be gone.
func inUse(p *world.Provider, next map[string]world.Inventory) string {
	for _, class := range slices.Sorted(maps.Keys(p.Inventory)) {
		if _, stays := next[class]; !stays && p.Used(class) > 0 {
			return class
		}
	}
	return ""
}

func (c *call) setInventories(uuid string, generation int, wanted map[string]inventory) error {
	p, err := c.change(uuid, "set inventories", func(s *world.State, p *world.Provider) error {
		if p.Generation != generation {
			return conflict(concurrent, "resource provider generation conflict")
		}
		next := map[string]world.Inventory{}
		for class, one := range wanted {
			if !c.known(s, "class", class) {
				return bad("Unknown resource class in inventory for resource provider %s: No such resource class %s.", uuid, class)
			}
			read, err := one.read()
			if err != nil {
				return err
			}
			next[class] = read
		}
		if class := inUse(p, next); class != "" {
			return conflict("placement.inventory.inuse", "update conflict: Inventory for '%s' on resource provider '%s' in use.", class, uuid)
		}
		p.Inventory = next
		p.Generation++
		return nil
	})
	if err != nil {
		return err
	}
	return c.sendInventories(p)
}

// inventoryOf is what a provider has of one class.
func (c *call) inventoryOf(uuid, class string) error {
	switch c.r.Method {
	case http.MethodGet:
		p, err := c.provider(uuid)
		if err != nil {
			return err
		}
		if _, has := p.Inventory[class]; !has {
			return notFound("No inventory of class %s for %s", class, uuid)
		}
		return c.sendInventory(p, class)
	case http.MethodPut:
		var in struct {
			Generation *int `json:"resource_provider_generation"`
			inventory
		}
		if err := c.read(&in); err != nil {
			return err
		}
		read, err := in.read()
		if err != nil {
			return err
		}
		p, err := c.change(uuid, "set inventory "+class, func(_ *world.State, p *world.Provider) error {
			if in.Generation == nil || p.Generation != *in.Generation {
				return conflict(concurrent, "resource provider generation conflict")
			}
			if _, has := p.Inventory[class]; !has {
				return bad("No inventory record with resource class for resource provider %s: Inventory of resource class %s on resource provider %s does not exist", uuid, class, uuid)
			}
			p.Inventory[class] = read
			p.Generation++
			return nil
		})
		if err != nil {
			return err
		}
		return c.sendInventory(p, class)
	case http.MethodDelete:
		_, err := c.change(uuid, "delete inventory "+class, func(_ *world.State, p *world.Provider) error {
			if _, has := p.Inventory[class]; !has {
				return notFound("No inventory of class %s found for delete: No inventory of class %s found for delete", class, class)
			}
			if p.Used(class) > 0 {
				return conflict("placement.inventory.inuse", "Unable to delete inventory of class %s: Inventory for '%s' on resource provider '%s' in use.", class, class, uuid)
			}
			delete(p.Inventory, class)
			p.Generation++
			return nil
		})
		if err != nil {
			return err
		}
		return c.empty(http.StatusNoContent)
	}
	return c.notAllowed("GET, PUT, DELETE")
}

func (c *call) sendInventory(p *world.Provider, class string) error {
	body, err := json.Marshal(p.Inventory[class])
	if err != nil {
		return err
	}
	doc := map[string]any{}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	doc["resource_provider_generation"] = p.Generation
	return c.send(http.StatusOK, doc)
}

// traits are a provider's.
func (c *call) traits(uuid string, rest []string) error {
	if len(rest) > 0 {
		return notFound("")
	}
	var p *world.Provider
	var err error
	switch c.r.Method {
	case http.MethodGet:
		p, err = c.provider(uuid)
	case http.MethodPut:
		var in struct {
			Generation *int     `json:"resource_provider_generation"`
			Traits     []string `json:"traits"`
		}
		if err := c.read(&in); err != nil {
			return err
		}
		if in.Generation == nil || in.Traits == nil {
			return bad("JSON does not validate: 'resource_provider_generation' and 'traits' are required properties")
		}
		p, err = c.change(uuid, "set traits "+strings.Join(in.Traits, ","), func(s *world.State, p *world.Provider) error {
			if p.Generation != *in.Generation {
				return conflict(concurrent, "Resource provider's generation already changed. Please update the generation and try again.")
			}
			for _, trait := range in.Traits {
				if !c.known(s, "trait", trait) {
					return bad("No such trait %s", trait)
				}
			}
			p.Traits = slices.Compact(slices.Sorted(slices.Values(in.Traits)))
			p.Generation++
			return nil
		})
	case http.MethodDelete:
		_, err = c.change(uuid, "delete traits", func(_ *world.State, p *world.Provider) error {
			p.Traits = nil
			p.Generation++
			return nil
		})
		if err == nil {
			return c.empty(http.StatusNoContent)
		}
	default:
		return c.notAllowed("GET, PUT, DELETE")
	}
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"traits": append([]string{}, p.Traits...), "resource_provider_generation": p.Generation})
}

// aggregates are the groups that a provider is in.
func (c *call) aggregates(uuid string, rest []string) error {
	if len(rest) > 0 {
		return notFound("")
	}
	var p *world.Provider
	var err error
	switch c.r.Method {
	case http.MethodGet:
		p, err = c.provider(uuid)
	case http.MethodPut:
		var in struct {
			Generation *int     `json:"resource_provider_generation"`
			Aggregates []string `json:"aggregates"`
		}
		if err := c.read(&in); err != nil {
			return err
		}
		p, err = c.change(uuid, "set aggregates", func(_ *world.State, p *world.Provider) error {
			if in.Generation == nil || p.Generation != *in.Generation {
				return conflict(concurrent, "Resource provider's generation already changed. Please update the generation and try again.")
			}
			p.Aggregates = in.Aggregates
			p.Generation++
			return nil
		})
	default:
		return c.notAllowed("GET, PUT")
	}
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"aggregates": append([]string{}, p.Aggregates...), "resource_provider_generation": p.Generation})
}

// names are the traits or the resource classes that there are.
func (c *call) names(kind string, rest []string) error {
	list := map[string]string{"trait": "traits", "class": "resource_classes"}[kind]
	if len(rest) == 0 && c.r.Method == http.MethodGet {
		return c.listNames(kind, list)
	}
	if len(rest) != 1 {
		return c.notAllowed("GET")
	}
	name := rest[0]
	key, there := world.CustomKey(c.site, kind, name), false
	c.world.Read(func(s *world.State) { there = c.known(s, kind, name) })
	switch c.r.Method {
	case http.MethodGet:
		switch {
		case !there && kind == "trait":
			return notFound("No such trait(s): %s.", name)
		case !there:
			return notFound("Cannot get resource class %s: No such resource class %s.", name, name)
		case kind == "trait":
			return c.empty(http.StatusNoContent)
		}
		return c.send(http.StatusOK, c.class(name))
	case http.MethodPut:
		if !world.CustomTrait(name) {
			return bad("The %s is invalid. A valid %s must be no longer than 255 characters, start with the prefix \"CUSTOM_\" and use following characters: \"A\"-\"Z\", \"0\"-\"9\" and \"_\"", kind, kind)
		}
		c.w.Header().Set("Location", "http://"+c.r.Host+c.Prefix+"/"+list+"/"+name)
		if there {
			return c.empty(http.StatusNoContent)
		}
		err := c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "create " + kind, Subject: name}, func(s *world.State) error {
			s.Customs.Put(key, &world.Custom{Site: c.site, Kind: kind, Name: name})
			return nil
		})
		if err != nil {
			return err
		}
		return c.empty(http.StatusCreated)
	case http.MethodDelete:
		return c.deleteName(kind, name, key)
	}
	return c.notAllowed("GET, PUT, DELETE")
}

func (c *call) deleteName(kind, name, key string) error {
	err := c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "delete " + kind, Subject: name}, func(s *world.State) error {
		if s.Customs.Get(key) == nil {
			return notFound("No such %s %s.", kind, name)
		}
		for _, p := range s.Providers.Of(c.site) {
			if _, has := p.Inventory[name]; has || slices.Contains(p.Traits, name) {
				return conflict("", "The %s %s is in use by a resource provider.", kind, name)
			}
		}
		s.Customs.Delete(key)
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

func (c *call) class(name string) map[string]any {
	return map[string]any{"name": name, "links": []map[string]string{{"rel": "self", "href": c.Prefix + "/resource_classes/" + name}}}
}

func (c *call) listNames(kind, list string) error {
	names := slices.Clone(standard(kind))
	c.world.Read(func(s *world.State) {
		for _, one := range s.Customs.Of(c.site) {
			if one.Kind == kind {
				names = append(names, one.Name)
			}
		}
	})
	if prefix, asked := strings.CutPrefix(c.r.URL.Query().Get("name"), "startswith:"); asked {
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	}
	if kind == "trait" {
		return c.send(http.StatusOK, map[string]any{list: names})
	}
	all := make([]any, 0, len(names))
	for _, name := range names {
		all = append(all, c.class(name))
	}
	return c.send(http.StatusOK, map[string]any{list: all})
}
