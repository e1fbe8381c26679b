package ironic

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// list answers with a page of nodes.
func (c *call) list(detail bool) error {
	query := c.URL.Query()
	if detail && query.Has("fields") {
		return refuse(http.StatusBadRequest, "Unexpected arguments: fields")
	}
	if is(query.Get("detail")) && c.minor >= 43 {
		if query.Has("fields") {
			return refuse(http.StatusBadRequest, "Can't fetch a subset of fields with 'detail' set")
		}
		detail = true
	}
	show, err := c.wanted(query, detail)
	if err != nil {
		return err
	}
	match, err := c.filter(query)
	if err != nil {
		return err
	}
	limit, err := c.limit(query)
	if err != nil {
		return err
	}
	order, err := sorting(query)
	if err != nil {
		return err
	}
	var nodes []*world.Node
	c.world.Read(func(s *world.State) {
		for _, n := range s.Nodes.Of(c.site) {
			if match(n) {
				nodes = append(nodes, n)
			}
		}
	})
	slices.SortFunc(nodes, order)
	from, err := c.after(nodes, query.Get("marker"), order)
	if err != nil {
		return err
	}
	return c.page(nodes, from, limit, show, detail)
}

// page writes the nodes of a page and where the next one begins.
func (c *call) page(nodes []*world.Node, from, limit int, show []*field, detail bool) error {
	page := nodes[from:min(len(nodes), from+limit)]
	b := make([]byte, 0, 256+len(page)*(300+len(show)*40))
	b = append(b, `{"nodes": [`...)
	for i, n := range page {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = c.document(b, n, show, detail)
	}
	b = append(b, ']')
	if from+limit < len(nodes) {
		b = append(b, `, "next": `...)
		b = wire.Quote(b, c.next(limit, page[len(page)-1].UUID))
	}
	c.write(http.StatusOK, append(b, '}'))
	return nil
}

// next is the link to the page behind a node.
func (c *call) next(limit int, last string) string {
	query := c.URL.Query()
	query.Del("limit")
	query.Del("marker")
	path := strings.TrimPrefix(c.URL.Path, c.Prefix)
	link := fmt.Sprintf("%s%s?sort_key=%s&sort_dir=%s", c.base, path, cmp.Or(query.Get("sort_key"), "id"), cmp.Or(query.Get("sort_dir"), "asc"))
	query.Del("sort_key")
	query.Del("sort_dir")
	if fields := query.Get("fields"); fields != "" {
		link += "&fields=" + fields
		query.Del("fields")
	} else if !strings.HasSuffix(path, "/detail") && query.Get("detail") == "" {
		link += "&fields=" + strings.Join(summary, ",")
	}
	if len(query) > 0 {
		link += "&" + query.Encode()
	}
	return fmt.Sprintf("%s&limit=%d&marker=%s", link, limit, last)
}

// wanted are the fields that a request asks for.
func (c *call) wanted(query url.Values, whole bool) ([]*field, error) {
	if !query.Has("fields") {
		if whole {
			return c.served(), nil
		}
		var show []*field
		for _, name := range summary {
			if f := fieldNamed(name); f.since <= c.minor {
				show = append(show, f)
			}
		}
		return show, nil
	}
	if c.minor < 8 {
		return nil, unacceptable
	}
	var show []*field
	for _, name := range strings.Split(query.Get("fields"), ",") {
		f := fieldNamed(strings.TrimSpace(name))
		switch {
		case strings.TrimSpace(name) == "links":
			continue
		case f == nil || f.hidden:
			return nil, refuse(http.StatusBadRequest, "Field %s is not a valid field.", name)
		case f.since > c.minor:
			return nil, unacceptable
		}
		show = append(show, f)
	}
	return show, nil
}

func is(value string) bool {
	switch strings.ToLower(value) {
	case "1", "t", "true", "on", "y", "yes":
		return true
	}
	return false
}

// filters are the parameters that choose nodes, with the version that has them.
var filters = map[string]struct {
	since int
	test  func(n *world.Node, value string) bool
}{
	"instance_uuid":        {1, func(n *world.Node, v string) bool { return n.InstanceUUID == v }},
	"associated":           {1, func(n *world.Node, v string) bool { return (n.InstanceUUID != "") == is(v) }},
	"maintenance":          {1, func(n *world.Node, v string) bool { return n.Maintenance == is(v) }},
	"provision_state":      {9, func(n *world.Node, v string) bool { return n.ProvisionState == v }},
	"driver":               {16, func(n *world.Node, v string) bool { return n.Driver == v }},
	"resource_class":       {21, func(n *world.Node, v string) bool { return n.ResourceClass == v }},
	"fault":                {42, func(n *world.Node, v string) bool { return n.Fault == v }},
	"conductor_group":      {46, func(n *world.Node, v string) bool { return n.ConductorGroup == v }},
	"conductor":            {49, func(n *world.Node, v string) bool { return world.Conductor(n.Site) == v }},
	"owner":                {50, func(n *world.Node, v string) bool { return n.Owner == v }},
	"description_contains": {51, func(n *world.Node, v string) bool { return strings.Contains(n.Description, v) }},
	"retired":              {61, func(n *world.Node, v string) bool { return n.Retired == is(v) }},
	"lessee":               {65, func(n *world.Node, v string) bool { return n.Lessee == v }},
	"project":              {65, func(n *world.Node, v string) bool { return n.Lessee == v || n.Owner == v }},
	"shard":                {82, func(n *world.Node, v string) bool { return slices.Contains(strings.Split(v, ","), n.Shard) }},
}

// paging are the parameters that choose no nodes.
var paging = []string{"fields", "limit", "marker", "sort_key", "sort_dir", "detail"}

func (c *call) filter(query url.Values) (func(*world.Node) bool, error) {
	var tests []func(*world.Node) bool
	var odd []string
	for name := range query {
		value := query.Get(name)
		f, known := filters[name]
		switch {
		case slices.Contains(paging, name):
		case !known:
			odd = append(odd, name)
		case f.since > c.minor:
			return nil, unacceptable
		case name == "provision_state" && !stateKnown(value):
			return nil, refuse(http.StatusBadRequest, "Provision state \"%s\" is not valid", value)
		case name == "instance_uuid" && !isUUID(value):
			return nil, refuse(http.StatusBadRequest, "Expected UUID for instance_uuid: %s", value)
		default:
			tests = append(tests, func(n *world.Node) bool { return f.test(n, value) })
		}
	}
	if len(odd) > 0 {
		slices.Sort(odd)
		return nil, refuse(http.StatusBadRequest, "Unexpected arguments: %s", strings.Join(odd, ", "))
	}
	return func(n *world.Node) bool {
		return !slices.ContainsFunc(tests, func(test func(*world.Node) bool) bool { return !test(n) })
	}, nil
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$`)

func isUUID(s string) bool { return uuidForm.MatchString(s) }

func (c *call) limit(query url.Values) (int, error) {
	if !query.Has("limit") {
		return c.MaxLimit, nil
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	switch {
	case err != nil:
		return 0, refuse(http.StatusBadRequest, "Expected an integer for limit: %s", query.Get("limit"))
	case limit <= 0:
		return 0, refuse(http.StatusBadRequest, "Limit must be positive")
	}
	return min(limit, c.MaxLimit), nil
}

// after finds where the page behind a marker begins.
func (c *call) after(nodes []*world.Node, marker string, order func(a, b *world.Node) int) (int, error) {
	if marker == "" {
		return 0, nil
	}
	if !isUUID(marker) {
		return 0, refuse(http.StatusBadRequest, "Expected UUID for marker: %s", marker)
	}
	n, err := c.look(marker)
	if err != nil {
		return 0, err
	}
	at, found := slices.BinarySearchFunc(nodes, n, order)
	if found {
		at++
	}
	return at, nil
}

func sorting(query url.Values) (func(a, b *world.Node) int, error) {
	keys := map[string]func(*world.Node) string{
		"uuid": func(n *world.Node) string { return n.UUID }, "name": func(n *world.Node) string { return n.Name },
		"provision_state": func(n *world.Node) string { return n.ProvisionState }, "power_state": func(n *world.Node) string { return n.PowerState },
		"instance_uuid": func(n *world.Node) string { return n.InstanceUUID }, "resource_class": func(n *world.Node) string { return n.ResourceClass },
		"created_at":           func(n *world.Node) string { return n.Created.Format("20060102150405.000000") },
		"updated_at":           func(n *world.Node) string { return n.Updated.Format("20060102150405.000000") },
		"provision_updated_at": func(n *world.Node) string { return n.Provisioned.Format("20060102150405.000000") },
	}
	name, sign := cmp.Or(query.Get("sort_key"), "id"), 1
	if query.Get("sort_dir") == "desc" {
		sign = -1
	}
	key, known := keys[name]
	switch {
	case name == "id":
		return func(a, b *world.Node) int { return sign * cmp.Compare(a.ID, b.ID) }, nil
	case !known:
		return nil, refuse(http.StatusBadRequest, "The sort_key value \"%s\" is an invalid field for sorting", name)
	}
	return func(a, b *world.Node) int {
		return sign * cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.ID, b.ID))
	}, nil
}

func stateKnown(state string) bool {
	return slices.Contains([]string{
		world.Enroll, world.Verifying, world.Manageable, world.Available, world.Active, world.Deploying, world.DeployWait, world.DeployFailed,
		world.Cleaning, world.CleanWait, world.CleanFailed, world.Deleting, world.Failed, world.Inspecting, world.InspectWait, world.InspectFailed,
		world.Adopting, world.AdoptFailed, world.Rescuing, world.RescueWait, world.Rescue, world.RescueFailed, world.Unrescuing, world.UnrescueFailed,
		"rebuild", "deleted", "deploying", "undeploying",
	}, state)
}
