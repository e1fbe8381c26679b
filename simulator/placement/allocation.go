package placement

import (
	"net/http"
	"strconv"

	"github.com/musterhq/muster/simulator/world"
)

// usages are how much of a provider is used.
func (c *call) usages(uuid string, rest []string) error {
	if len(rest) > 0 || c.r.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	p, err := c.provider(uuid)
	if err != nil {
		return notFound("No resource provider with uuid %s found: No resource provider with uuid %s found", uuid, uuid)
	}
	used := map[string]int{}
	for class := range p.Inventory {
		used[class] = p.Used(class)
	}
	return c.send(http.StatusOK, map[string]any{"resource_provider_generation": p.Generation, "usages": used})
}

// allocationsAt are who holds something of a provider.
func (c *call) allocationsAt(uuid string, rest []string) error {
	if len(rest) > 0 || c.r.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	p, err := c.provider(uuid)
	if err != nil {
		return notFound("Resource provider '%s' not found: No resource provider with uuid %s found", uuid, uuid)
	}
	held := map[string]any{}
	for consumer, a := range p.Allocations {
		one := map[string]any{"resources": a.Resources}
		if c.minor >= 28 {
			one["consumer_generation"] = a.Generation
		}
		held[consumer] = one
	}
	return c.send(http.StatusOK, map[string]any{"allocations": held, "resource_provider_generation": p.Generation})
}

// claim is what a consumer shall have, as it is written.
type claim struct {
	Allocations map[string]struct {
		Resources  map[string]int `json:"resources"`
		Generation *int           `json:"generation"`
	} `json:"allocations"`
	Project    string         `json:"project_id"`
	User       string         `json:"user_id"`
	Generation *int           `json:"consumer_generation"`
	Type       string         `json:"consumer_type"`
	Mappings   map[string]any `json:"mappings"`
}

// allocations are what consumers have.
func (c *call) allocations(rest []string) error {
	if len(rest) == 0 && c.r.Method == http.MethodPost && c.minor >= 13 {
		var in map[string]claim
		if err := c.read(&in); err != nil {
			return err
		}
		return c.claim(in)
	}
	if len(rest) != 1 {
		return notFound("")
	}
	switch c.r.Method {
	case http.MethodGet:
		return c.held(rest[0])
	case http.MethodPut:
		if c.minor < 12 {
			return bad("JSON does not validate: the simulated Placement takes allocations in the form of version 1.12")
		}
		var in claim
		if err := c.read(&in); err != nil {
			return err
		}
		return c.claim(map[string]claim{rest[0]: in})
	case http.MethodDelete:
		return c.release(rest[0])
	}
	return c.notAllowed("GET, PUT, DELETE")
}

func (c *call) held(consumer string) error {
	answer, held := map[string]any{}, map[string]any{}
	c.world.Read(func(s *world.State) {
		for _, p := range s.AllocationsOf(c.site, consumer) {
			a := p.Allocations[consumer]
			held[p.UUID] = map[string]any{"generation": p.Generation, "resources": a.Resources}
			if c.minor >= 12 {
				answer["project_id"], answer["user_id"] = a.Project, a.User
			}
			if c.minor >= 28 {
				answer["consumer_generation"] = a.Generation
			}
			if c.minor >= 38 {
				answer["consumer_type"] = a.Type
			}
		}
	})
	answer["allocations"] = held
	return c.send(http.StatusOK, answer)
}

func (c *call) release(consumer string) error {
	name := consumer
	c.world.Read(func(s *world.State) {
		if at := s.AllocationsOf(c.site, consumer); len(at) > 0 {
			name = subject(s, at[0])
		}
	})
	err := c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "delete allocations", Subject: name, Detail: consumer}, func(s *world.State) error {
		if !s.Release(c.site, consumer) {
			return notFound("No allocations for consumer '%s'", consumer)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

// claim gives consumers what they shall have, all of it or nothing.
func (c *call) claim(claims map[string]claim) error {
	name := "allocations"
	for consumer, in := range claims {
		if !uuidForm.MatchString(consumer) {
			return bad("JSON does not validate: '%s' is not a 'uuid'", consumer)
		}
		if in.Project == "" || in.User == "" {
			return bad("JSON does not validate: 'project_id' and 'user_id' are required properties")
		}
		if c.minor >= 38 && in.Type == "" {
			return bad("JSON does not validate: 'consumer_type' is a required property")
		}
		c.world.Read(func(s *world.State) {
			for uuid := range in.Allocations {
				if p := s.Providers.Get(world.Key(c.site, uuid)); p != nil {
					name = subject(s, p)
				}
			}
		})
	}
	err := c.world.Do(world.Effect{Face: Face, Site: c.site, Op: "set allocations", Subject: name}, func(s *world.State) error {
		for consumer, in := range claims {
			if err := c.claimOne(s, consumer, in); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

func (c *call) claimOne(s *world.State, consumer string, in claim) error {
	before := s.AllocationsOf(c.site, consumer)
	generation := 0
	if len(before) > 0 {
		generation = before[0].Allocations[consumer].Generation
	}
	if c.minor >= 28 {
		if expected, got := generationText(generation), pointerText(in.Generation); expected != got {
			return conflict(concurrent, "consumer generation conflict - expected %s but got %s", expected, got)
		}
	}
	s.Release(c.site, consumer)
	for uuid, one := range in.Allocations {
		p := s.Providers.Edit(world.Key(c.site, uuid))
		if p == nil {
			return bad("Allocation for resource provider '%s' that does not exist.", uuid)
		}
		for class, amount := range one.Resources {
			i, has := p.Inventory[class]
			if !has {
				return conflict("", "Unable to allocate inventory: Inventory for '%s' on resource provider '%s' invalid.", class, uuid)
			}
			if amount < i.MinUnit || amount > i.MaxUnit {
				return conflict("", "Unable to allocate inventory: Unable to create allocation for '%s' on resource provider '%s'. The requested amount would violate inventory constraints.", class, uuid)
			}
			if p.Free(class) < amount {
				return conflict("", "Unable to allocate inventory: Unable to create allocation for '%s' on resource provider '%s'. The requested amount would exceed the capacity.", class, uuid)
			}
		}
		kind := in.Type
		if kind == "" {
			kind = "unknown"
		}
		p.Allocations[consumer] = world.Allocation{Resources: one.Resources, Project: in.Project, User: in.User, Type: kind, Generation: generation + 1}
		p.Generation++
		s.Providers.Put(p.Key(), p)
	}
	return nil
}

// generationText is a consumer's generation as errors show it.
func generationText(generation int) string {
	if generation == 0 {
		return "None"
	}
	return strconv.Itoa(generation)
}

func pointerText(generation *int) string {
	if generation == nil {
		return "None"
	}
	return strconv.Itoa(*generation)
}

// projectUsages are how much a project has of everything.
func (c *call) projectUsages() error {
	query := c.r.URL.Query()
	if query.Get("project_id") == "" {
		return bad("Invalid query string parameters: 'project_id' is a required property")
	}
	flat, typed, counted := map[string]int{}, map[string]map[string]int{}, map[string]bool{}
	c.world.Read(func(s *world.State) {
		for _, p := range s.Providers.Of(c.site) {
			for consumer, a := range p.Allocations {
				if a.Project != query.Get("project_id") || query.Has("user_id") && a.User != query.Get("user_id") {
					continue
				}
				if typed[a.Type] == nil {
					typed[a.Type] = map[string]int{}
				}
				if !counted[consumer] {
					typed[a.Type]["consumer_count"]++
					counted[consumer] = true
				}
				for class, n := range a.Resources {
					flat[class] += n
					typed[a.Type][class] += n
				}
			}
		}
	})
	if c.minor >= 38 {
		return c.send(http.StatusOK, map[string]any{"usages": typed})
	}
	return c.send(http.StatusOK, map[string]any{"usages": flat})
}

// candidates are the providers that could give what is asked for.
func (c *call) candidates() error {
	query := c.r.URL.Query()
	wanted, err := resources(query.Get("resources"))
	if err != nil {
		return err
	}
	if len(wanted) == 0 {
		return bad("Invalid query string parameters: 'resources' is a required property")
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit < 1 {
		limit = 1000
	}
	requests, summaries := []any{}, map[string]any{}
	c.world.Read(func(s *world.State) {
		for _, p := range s.Providers.Of(c.site) {
			if len(requests) == limit || !has(p, wanted, query.Get("required")) {
				continue
			}
			request := map[string]any{"allocations": map[string]any{p.UUID: map[string]any{"resources": wanted}}}
			if c.minor >= 34 {
				request["mappings"] = map[string]any{"": []string{p.UUID}}
			}
			requests = append(requests, request)
			rooms := map[string]any{}
			for class, i := range p.Inventory {
				rooms[class] = map[string]int{"capacity": i.Total - i.Reserved, "used": p.Used(class)}
			}
			summary := map[string]any{"resources": rooms}
			if c.minor >= 17 {
				summary["traits"] = append([]string{}, p.Traits...)
			}
			if c.minor >= 29 {
				summary["root_provider_uuid"], summary["parent_provider_uuid"] = rootOf(s, p), nil
			}
			summaries[p.UUID] = summary
		}
	})
	return c.send(http.StatusOK, map[string]any{"allocation_requests": requests, "provider_summaries": summaries})
}
