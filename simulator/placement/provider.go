package placement

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// providers are the paths below /resource_providers.
func (c *call) providers(rest []string) error {
	if len(rest) == 0 {
		switch c.r.Method {
		case http.MethodGet:
			return c.list()
		case http.MethodPost:
			return c.create()
		}
		return c.notAllowed("GET, POST")
	}
	if len(rest) == 1 {
		return c.one(rest[0])
	}
	parts := map[string]struct {
		since  int
		handle func(uuid string, rest []string) error
	}{
		"inventories": {0, c.inventories}, "usages": {0, c.usages}, "aggregates": {1, c.aggregates}, "traits": {6, c.traits}, "allocations": {0, c.allocationsAt},
	}
	part, known := parts[rest[1]]
	if !known || part.since > c.minor || len(rest) > 3 {
		return notFound("")
	}
	return part.handle(rest[0], rest[2:])
}

func (c *call) one(uuid string) error {
	switch c.r.Method {
	case http.MethodGet:
		p, err := c.provider(uuid)
		if err != nil {
			return err
		}
		return c.sendProvider(http.StatusOK, p)
	case http.MethodPut:
		return c.rename(uuid)
	case http.MethodDelete:
		return c.remove(uuid)
	}
	return c.notAllowed("GET, DELETE, PUT")
}

func (c *call) sendProvider(status int, p *world.Provider) error {
	root := p.UUID
	c.world.Read(func(s *world.State) { root = rootOf(s, p) })
	c.write(status, c.document(nil, p, root))
	return nil
}

func rootOf(s *world.State, p *world.Provider) string {
	for range 16 { // a tree is no deeper
		up := s.Providers.Get(world.Key(p.Site, p.Parent))
		if up == nil {
			break
		}
		p = up
	}
	return p.UUID
}

// links are what a provider links to, with the version that brought it.
var links = []struct {
	name  string
	since int
}{{"inventories", 0}, {"usages", 0}, {"aggregates", 1}, {"traits", 6}, {"allocations", 11}}

// document writes a provider.
func (c *call) document(b []byte, p *world.Provider, root string) []byte {
	path := c.Prefix + "/resource_providers/" + p.UUID
	b = append(b, `{"uuid": "`...)
	b = append(b, p.UUID...)
	b = append(b, `", "name": `...)
	b = wire.Quote(b, p.Name)
	b = append(b, `, "generation": `...)
	b = strconv.AppendInt(b, int64(p.Generation), 10)
	b = append(b, `, "links": [{"rel": "self", "href": "`...)
	b = append(b, path...)
	b = append(b, `"}`...)
	for _, l := range links {
		if l.since > c.minor {
			continue
		}
		b = append(b, `, {"rel": "`...)
		b = append(b, l.name...)
		b = append(b, `", "href": "`...)
		b = append(append(append(b, path...), '/'), l.name...)
		b = append(b, `"}`...)
	}
	b = append(b, ']')
	if c.minor >= 14 {
		parent := "null"
		if p.Parent != "" {
			parent = `"` + p.Parent + `"`
		}
		b = append(b, `, "parent_provider_uuid": `...)
		b = append(b, parent...)
		b = append(b, `, "root_provider_uuid": "`...)
		b = append(append(b, root...), '"')
	}
	return append(b, '}')
}

// list answers with the providers that the query asks for, all at once.
func (c *call) list() error {
	query := c.r.URL.Query()
	known := []string{"in_tree", "member_of", "name", "required", "resources", "uuid"}
	for name := range query {
		if !slices.Contains(known, name) {
			return bad("Invalid query string parameters: Additional properties are not allowed ('%s' was unexpected)", name)
		}
	}
	for _, name := range []string{"uuid", "in_tree"} {
		if query.Has(name) && !uuidForm.MatchString(query.Get(name)) {
			return bad("Invalid query string parameters: '%s' is not a 'uuid'", query.Get(name))
		}
	}
	wanted, err := resources(query.Get("resources"))
	if err != nil {
		return err
	}
	b := []byte(`{"resource_providers": [`)
	first := true
	c.world.Read(func(s *world.State) {
		for _, p := range s.Providers.Of(c.site) {
			if query.Has("name") && p.Name != query.Get("name") || query.Has("uuid") && p.UUID != query.Get("uuid") || !has(p, wanted, query.Get("required")) {
				continue
			}
			root := p.UUID
			if p.Parent != "" || query.Has("in_tree") {
				root = rootOf(s, p)
			}
			if query.Has("in_tree") {
				if asked := s.Providers.Get(world.Key(c.site, query.Get("in_tree"))); asked == nil || rootOf(s, asked) != root {
					continue
				}
			}
			if !first {
				b = append(b, ", "...)
			}
			first = false
			b = c.document(b, p, root)
		}
	})
	c.write(http.StatusOK, append(b, "]}"...))
	return nil
}

// resources reads CLASS:amount,CLASS:amount.
func resources(text string) (map[string]int, error) {
	wanted := map[string]int{}
	if text == "" {
		return wanted, nil
	}
	for _, one := range strings.Split(text, ",") {
		class, amount, _ := strings.Cut(one, ":")
		n, err := strconv.Atoi(amount)
		if err != nil || n < 1 {
			return nil, bad("Badly formed resources parameter. Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024. Got: %s.", text)
		}
		wanted[class] = n
	}
	return wanted, nil
}

// has tells whether a provider has room for what is wanted, and the traits.
func has(p *world.Provider, wanted map[string]int, traits string) bool {
	for class, n := range wanted {
		if _, there := p.Inventory[class]; !there || p.Free(class) < n {
			return false
		}
	}
	for _, trait := range strings.FieldsFunc(traits, func(r rune) bool { return r == ',' }) {
		forbidden := strings.HasPrefix(trait, "!")
		if slices.Contains(p.Traits, strings.TrimPrefix(trait, "!")) == forbidden {
			return false
		}
	}
	return true
}

func (c *call) create() error {
	var in struct {
		Name   *string `json:"name"`
		UUID   string  `json:"uuid"`
		Parent *string `json:"parent_provider_uuid"`
	}
	if err := c.read(&in); err != nil {
		return err
	}
	if in.Name == nil {
		return bad("JSON does not validate: 'name' is a required property")
	}
	if in.UUID == "" {
		in.UUID = newUUID()
	}
	if !uuidForm.MatchString(in.UUID) {
		return bad("JSON does not validate: '%s' is not a 'uuid'", in.UUID)
	}
	p := &world.Provider{UUID: in.UUID, Site: c.site, Name: *in.Name, Inventory: map[string]world.Inventory{}, Allocations: map[string]world.Allocation{}}
	if in.Parent != nil {
		p.Parent = *in.Parent
	}
	err := c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "create provider", Subject: p.Name, Detail: p.UUID}, func(s *world.State) error {
		if s.Providers.Get(p.Key()) != nil {
			return conflict("placement.duplicate_name", "Conflicting resource provider uuid: %s already exists.", p.UUID)
		}
		for _, other := range s.Providers.Of(c.site) {
			if other.Name == p.Name {
				return conflict("placement.duplicate_name", "Conflicting resource provider name: %s already exists.", p.Name)
			}
		}
		if p.Parent != "" && s.Providers.Get(world.Key(c.site, p.Parent)) == nil {
			return bad("Unable to create resource provider \"%s\", %s: parent provider UUID does not exist: %s", p.Name, p.UUID, p.Parent)
		}
		s.Providers.Put(p.Key(), p)
		return nil
	})
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "http://"+c.r.Host+c.Prefix+"/resource_providers/"+p.UUID)
	if c.minor < 20 {
		return c.empty(http.StatusCreated)
	}
	return c.sendProvider(http.StatusOK, p)
}

func (c *call) rename(uuid string) error {
	var in struct {
		Name   string  `json:"name"`
		Parent *string `json:"parent_provider_uuid"`
	}
	if err := c.read(&in); err != nil {
		return err
	}
	if in.Name == "" {
		return bad("JSON does not validate: 'name' is a required property")
	}
	p, err := c.change(uuid, "rename provider", func(s *world.State, p *world.Provider) error {
		for _, other := range s.Providers.Of(c.site) {
			if other.Name == in.Name && other.UUID != p.UUID {
				return conflict("placement.duplicate_name", "Conflicting resource provider %s already exists.", in.Name)
			}
		}
		p.Name = in.Name
		return nil
	})
	if err != nil {
		return err
	}
	return c.sendProvider(http.StatusOK, p)
}

func (c *call) remove(uuid string) error {
	p, err := c.provider(uuid)
	if err != nil {
		return notFound("No resource provider with uuid %s found for delete", uuid)
	}
	name := ""
	c.world.Read(func(s *world.State) { name = subject(s, p) })
	err = c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "delete provider", Subject: name, Detail: uuid}, func(s *world.State) error {
		now := s.Providers.Get(p.Key())
		if now == nil {
			return notFound("No resource provider with uuid %s found for delete", uuid)
		}
		if len(now.Allocations) > 0 {
			return conflict("placement.resource_provider.inuse", "Unable to delete resource provider %s: Resource provider has allocations.", uuid)
		}
		for _, other := range s.Providers.Of(c.site) {
			if other.Parent == uuid {
				return conflict("placement.resource_provider.cannot_delete_parent", "Unable to delete parent resource provider %s: It has child resource providers.", uuid)
			}
		}
		s.Providers.Delete(p.Key())
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
