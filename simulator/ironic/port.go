package ironic

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

var macForm = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)

// ports are the paths below /v1/ports.
func (c *call) ports(rest []string) error {
	switch {
	case len(rest) == 0 && c.Method == http.MethodPost:
		return c.createPort()
	case len(rest) == 0 && c.Method == http.MethodGet:
		return c.listPorts(c.URL.Query().Get("node_uuid"), is(c.URL.Query().Get("detail")))
	case len(rest) == 0:
		return c.notAllowed("GET, POST")
	case len(rest) == 1 && rest[0] == "detail" && c.Method == http.MethodGet:
		return c.listPorts(c.URL.Query().Get("node_uuid"), true)
	case len(rest) > 1:
		return noRoute(http.StatusNotFound)
	}
	switch c.Method {
	case http.MethodGet:
		p, err := c.port(rest[0])
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, c.portDocument(p, c.URL.Query().Get("fields"), true))
	case http.MethodPatch:
		return c.patchPort(rest[0])
	case http.MethodDelete:
		return c.removePort(rest[0])
	}
	return c.notAllowed("DELETE, GET, PATCH")
}

func (c *call) portsOf(ident string) error {
	if c.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	return c.listPorts(n.UUID, false)
}

func (c *call) port(ident string) (p *world.Port, err error) {
	c.world.Read(func(s *world.State) { p = s.Ports.Get(world.Key(c.site, ident)) })
	if p == nil {
		return nil, refuse(http.StatusNotFound, "Port %s could not be found.", ident)
	}
	return p, nil
}

func (c *call) listPorts(node string, detail bool) error {
	query := c.URL.Query()
	if name := query.Get("node"); name != "" {
		n, err := c.look(name)
		if err != nil {
			return err
		}
		node = n.UUID
	}
	var ports []*world.Port
	c.world.Read(func(s *world.State) {
		for _, p := range s.Ports.Of(c.site) {
			if (node == "" || p.Node == node) && (query.Get("address") == "" || strings.EqualFold(p.Address, query.Get("address"))) {
				ports = append(ports, p)
			}
		}
	})
	slices.SortFunc(ports, func(a, b *world.Port) int { return cmp.Compare(a.ID, b.ID) })
	limit, err := c.limit(query)
	if err != nil {
		return err
	}
	if marker := query.Get("marker"); marker != "" {
		ports = ports[1+slices.IndexFunc(ports, func(p *world.Port) bool { return p.UUID == marker }):]
	}
	answer := map[string]any{}
	if len(ports) > limit {
		ports = ports[:limit]
		query.Set("marker", ports[limit-1].UUID)
		answer["next"] = c.base + strings.TrimPrefix(c.URL.Path, c.Prefix) + "?" + query.Encode()
	}
	documents := make([]any, 0, len(ports))
	for _, p := range ports {
		documents = append(documents, c.portDocument(p, query.Get("fields"), detail))
	}
	answer["ports"] = documents
	return c.send(http.StatusOK, answer)
}

func (c *call) portDocument(p *world.Port, fields string, whole bool) map[string]any {
	links := []map[string]string{
		{"href": c.base + "/v1/ports/" + p.UUID, "rel": "self"}, {"href": c.base + "/ports/" + p.UUID, "rel": "bookmark"},
	}
	var updated, network any
	if !p.UpdatedAt.IsZero() {
		updated = p.UpdatedAt.Format("2006-01-02T15:04:05.000000-07:00")
	}
	if p.Network != "" {
		network = p.Network
	}
	doc := map[string]any{
		"uuid": p.UUID, "created_at": p.CreatedAt.Format("2006-01-02T15:04:05.000000-07:00"), "updated_at": updated, "address": p.Address,
		"extra": orEmpty(p.Extra), "internal_info": map[string]any{}, "is_smartnic": p.SmartNIC, "local_link_connection": orEmpty(p.Link),
		"physical_network": network, "pxe_enabled": p.PXE, "node_uuid": p.Node, "portgroup_uuid": nil, "links": links,
	}
	shown := strings.Split(fields, ",")
	switch {
	case fields == "" && whole:
		return doc
	case fields == "":
		shown = []string{"uuid", "address"}
	}
	part := map[string]any{"links": links}
	for _, name := range shown {
		if value, has := doc[name]; has {
			part[name] = value
		}
	}
	return part
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func (c *call) createPort() error {
	var doc map[string]any
	if err := c.read(&doc); err != nil {
		return err
	}
	for _, key := range []string{"address", "node_uuid"} {
		if doc[key] == nil {
			return schemaError("port", "'%s' is a required property", key)
		}
	}
	p := &world.Port{UUID: newUUID(), Site: c.site, PXE: true}
	var err error
	for _, key := range sortedKeys(doc) {
		if err = setPort(p, key, doc[key]); err != nil {
			return err
		}
	}
	n, err := c.look(p.Node)
	if err != nil {
		return refuse(http.StatusBadRequest, "Node %s could not be found.", p.Node)
	}
	err = c.world.Do(world.Effect{Face: world.FaceIronic, Site: c.site, Op: "create port", Subject: n.Subject(), Detail: p.Address}, func(s *world.State) error {
		if s.PortAt(c.site, p.Address) != nil {
			return refuse(http.StatusConflict, "A port with MAC address %s already exists.", p.Address)
		}
		p.CreatedAt = s.Now
		s.AddPort(p)
		return nil
	})
	if err != nil {
		return err
	}
	c.Header().Set("Location", c.base+"/v1/ports/"+p.UUID)
	return c.send(http.StatusCreated, c.portDocument(p, "", true))
}

// setPort writes a field of a port.
func setPort(p *world.Port, key string, value any) (err error) {
	s, isText := value.(string)
	m, isObject := value.(map[string]any)
	switch key {
	case "uuid":
		if !isText || !isUUID(s) {
			return refuse(http.StatusBadRequest, "Expected UUID for uuid: %v", value)
		}
		p.UUID = s
	case "address":
		if !isText || !macForm.MatchString(strings.ToLower(s)) {
			return refuse(http.StatusBadRequest, "Expected valid MAC address for address: %v", value)
		}
		p.Address = strings.ToLower(s)
	case "node_uuid":
		p.Node = s
	case "physical_network":
		p.Network = s
	case "pxe_enabled":
		p.PXE, err = flag(key, value)
	case "is_smartnic":
		p.SmartNIC, err = flag(key, value)
	case "extra", "local_link_connection":
		if value != nil && !isObject {
			return schemaError("port", "%s is not of type 'object', 'null'", python(value))
		}
		if key == "extra" {
			p.Extra = m
		} else {
			p.Link = m
		}
	case "portgroup_uuid", "internal_info":
	default:
		return schemaError("port", "Additional properties are not allowed ('%s' was unexpected)", key)
	}
	return err
}

// changePort changes a port in its node's name.
func (c *call) changePort(ident, op string, edit func(s *world.State, p *world.Port) error) error {
	p, err := c.port(ident)
	if err != nil {
		return err
	}
	subject := p.Address
	if n, err := c.look(p.Node); err == nil {
		subject = n.Subject()
	}
	return c.world.Do(world.Effect{Face: world.FaceIronic, Site: c.site, Op: op, Subject: subject, Detail: p.Address}, func(s *world.State) error {
		p := s.Ports.Edit(world.Key(c.site, ident))
		if p == nil {
			return refuse(http.StatusNotFound, "Port %s could not be found.", ident)
		}
		if n := s.Nodes.Get(world.Key(c.site, p.Node)); n != nil {
			if err := locked(n); err != nil {
				return err
			}
		}
		return edit(s, p)
	})
}

func (c *call) removePort(ident string) error {
	err := c.changePort(ident, "delete port", func(s *world.State, p *world.Port) error {
		s.Ports.Delete(world.Key(c.site, p.UUID))
		return nil
	})
	if err != nil {
		return err
	}
	return c.accepted(http.StatusNoContent, "")
}

func (c *call) patchPort(ident string) error {
	patch, err := c.operations()
	if err != nil {
		return err
	}
	var after *world.Port
	err = c.changePort(ident, "patch port", func(s *world.State, p *world.Port) error {
		for _, o := range patch {
			if err := applyPort(p, o); err != nil {
				return err
			}
		}
		if other := s.PortAt(c.site, p.Address); other != nil && other.UUID != p.UUID {
			return refuse(http.StatusConflict, "A port with MAC address %s already exists.", p.Address)
		}
		p.UpdatedAt, after = s.Now, p
		s.Ports.Put(world.Key(c.site, p.UUID), p)
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, c.portDocument(after, "", true))
}

func applyPort(p *world.Port, o operation) error {
	if len(o.path) == 1 {
		value := o.value
		if o.op == "remove" {
			value = nil
		}
		return setPort(p, o.path[0], value)
	}
	root := map[string]*map[string]any{"extra": &p.Extra, "local_link_connection": &p.Link}[o.path[0]]
	if root == nil {
		return refuse(http.StatusBadRequest, "Couldn't apply patch '%s'. Reason: member '%s' not found in None", o.text, o.path[1])
	}
	if *root == nil {
		*root = map[string]any{}
	}
	return o.within(*root)
}
