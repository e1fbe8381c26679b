package redfish

import (
	"regexp"
	"strconv"
)

// maxExpand is how deep a resource can be expanded.
const maxExpand = 2

var expandForm = regexp.MustCompile(`^[.*~](?:\(\$levels=([1-9])\))?$`)

// expandLevels reads the value of $expand; 0: it is none.
func expandLevels(value string) int {
	found := expandForm.FindStringSubmatch(value)
	if found == nil {
		return 0
	}
	if found[1] == "" {
		return 1
	}
	levels, _ := strconv.Atoi(found[1]) // one digit
	return min(levels, maxExpand)
}

// expand puts resources in the place of the links to them. What Links names is
// no part of a resource and stays as it is.
func (v *view) expand(value any, levels int) {
	switch at := value.(type) {
	case object:
		for name, inner := range at {
			if name == "Links" || name == "Actions" || name == "RelatedItem" {
				continue
			}
			at[name] = v.expanded(inner, levels)
		}
	case []any:
		for i := range at {
			at[i] = v.expanded(at[i], levels)
		}
	}
}

func (v *view) expanded(inner any, levels int) any {
	link, ok := inner.(object)
	id, isLink := link["@odata.id"].(string)
	if !ok || !isLink || len(link) != 1 {
		v.expand(inner, levels)
		return inner
	}
	res := v.find(id)
	if res == nil || res.board && !v.m.On {
		return inner
	}
	body := res.render(v)
	if body == nil {
		return inner
	}
	if levels > 1 {
		v.expand(body, levels-1)
	}
	return body
}
