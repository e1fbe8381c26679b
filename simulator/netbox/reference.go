package netbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// lookups are what an object can be referred to by; anything else that is shown
// of it makes the reference unreadable.
var lookups = []string{"id", "name", "slug", "model", "description", "color", "serial", "asset_tag", "address"}

// reference reads a reference to an object of a kind: its id, or some attributes.
func (c *change) reference(kindName string, value any) (id int, problems []string) {
	switch v := value.(type) {
	case map[string]any:
		return c.referenceBy(kindName, v)
	case string:
		n, err := strconv.Atoi(v)
		if err != nil {
			return 0, []string{unrecognised(value)}
		}
		id = n
	case float64:
		id = int(v)
	default:
		return 0, []string{unrecognised(value)}
	}
	if c.s.Object(kindName, id) == nil {
		return 0, []string{fmt.Sprintf("Related object not found using the provided numeric ID: %d", id)}
	}
	return id, nil
}

func unrecognised(value any) string {
	return "Related objects must be referenced by numeric ID or by dictionary of attributes. Received an unrecognized value: " + python(value, false)
}

func (c *change) referenceBy(kindName string, attributes map[string]any) (int, []string) {
	for _, name := range sorted(attributes) {
		if !slices.Contains(lookups, name) {
			return 0, []string{fmt.Sprintf("Cannot resolve keyword '%s' into field. Choices are: %s", name, strings.Join(lookups, ", "))}
		}
	}
	for _, o := range c.s.Objects.Of(kindName) {
		if fitsAll(o, attributes) {
			return o.ID, nil
		}
	}
	return 0, []string{"Related object not found using the provided attributes: " + python(attributes, true)}
}

func fitsAll(o *world.Object, attributes map[string]any) bool {
	for name, value := range attributes {
		var has any = o.Text(name)
		switch name {
		case "id":
			has = float64(o.ID)
		case "name", "model", "address":
			has = o.Name
		case "slug":
			has = o.Slug
		}
		if has != value {
			return false
		}
	}
	return true
}

// takeTags reads the tags: all of them, or from 4.6 on those to add and remove.
func (c *change) takeTags(o *world.Object, body map[string]any) {
	_, all := body["tags"]
	if all {
		if ids, ok := c.tagIDs("tags", body["tags"]); ok {
			o.Tags = ids
		}
	}
	if c.generation < 46 {
		return
	}
	_, adds := body["add_tags"]
	_, removes := body["remove_tags"]
	if all && (adds || removes) {
		c.problem("tags", `Cannot specify "tags" together with "add_tags" or "remove_tags".`)
		return
	}
	if ids, ok := c.tagIDs("add_tags", body["add_tags"]); adds && ok {
		for _, id := range ids {
			if !slices.Contains(o.Tags, id) {
				o.Tags = append(o.Tags, id)
			}
		}
	}
	if ids, ok := c.tagIDs("remove_tags", body["remove_tags"]); removes && ok {
		o.Tags = slices.DeleteFunc(o.Tags, func(id int) bool { return slices.Contains(ids, id) })
	}
}

func (c *change) tagIDs(member string, value any) (ids []int, ok bool) {
	list, isList := value.([]any)
	if value == nil {
		return nil, false
	}
	if !isList {
		c.problem(member, fmt.Sprintf("Expected a list of items but got type \"%s\".", typeName(value)))
		return nil, false
	}
	ok = true
	for _, one := range list {
		id, problems := c.reference(world.KindTag, one)
		if len(problems) > 0 {
			c.tagProblem(member, problems)
			ok = false
			continue
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, ok
}

// tagProblem: 3.7 tells what is wrong with each tag in a list of its own.
func (c *change) tagProblem(member string, problems []string) {
	if c.generation >= 40 {
		for _, problem := range problems {
			c.problem(member, problem)
		}
		return
	}
	list, _ := c.problems[member].([]any)
	c.problems[member] = append(list, problems)
}

// python is a value as Python prints it. The order of an object's members is
// lost: those of a choice are value and label.
func python(value any, quoted bool) string {
	switch v := value.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		if quoted {
			return "'" + v + "'"
		}
		return v
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			parts[i] = python(one, true)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		keys := sorted(v)
		if len(keys) == 2 && keys[0] == "label" {
			slices.Reverse(keys)
		}
		for _, key := range keys {
			parts = append(parts, "'"+key+"': "+python(v[key], true))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	n, _ := number(value)
	return strconv.FormatFloat(n, 'f', -1, 64)
}
