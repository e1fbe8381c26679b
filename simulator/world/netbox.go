package world

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Object is one object of NetBox: a device, a rack, a site, a role, a tag, …
type Object struct {
	Kind    string         `json:"kind"` // NetBox's endpoint: devices, racks, sites, device-roles, tags, …
	ID      int            `json:"id"`
	Name    string         `json:"name"`
	Slug    string         `json:"slug,omitempty"`
	Fields  map[string]any `json:"fields,omitempty"` // raw values as they are written; references are ids
	Custom  map[string]any `json:"custom,omitempty"` // custom fields, raw
	Tags    []int          `json:"tags,omitempty"`   // ids
	Machine string         `json:"machine,omitempty"`
	Created time.Time      `json:"created"`
	Updated time.Time      `json:"last_updated"`
}

func objectKind() kind[Object] {
	return kind[Object]{clone: cloneObject}
}

func cloneObject(o *Object) *Object {
	c := *o
	c.Fields, c.Custom, c.Tags = deepMap(o.Fields), maps.Clone(o.Custom), slices.Clone(o.Tags)
	return &c
}

// ObjectKey is an object's key: its kind and its id, so padded that keys are in
// the order of ids.
func ObjectKey(kind string, id int) string {
	n := strconv.Itoa(id)
	for len(n) < 9 {
		n = "0" + n
	}
	return kind + "/" + n
}
