package netbox

import (
	"encoding/json"
	"time"
)

// written gives a value in the form that NetBox takes: of a related object only
// what identifies it.
func written(v any) any {
	v = unwrap(plain(v))
	if list, is := v.([]any); is {
		for i := range list {
			list[i] = identified(list[i])
		}
	}
	return identified(v)
}

// identified reduces a related object as Get gives it to its id. A bare {id} is
// left: NetBox takes it, and it may be a field of JSON.
func identified(v any) any {
	if object, is := v.(map[string]any); is && len(object) > 1 {
		if id, is := reference(v); is {
			return id
		}
	}
	return v
}

// reference gives the id of a related object as Get gives it.
func reference(v any) (any, bool) {
	object, is := v.(map[string]any)
	if !is || object["id"] == nil {
		return nil, false
	}
	for key := range object {
		if key != "id" && key != "name" && key != "slug" {
			return nil, false
		}
	}
	return object["id"], true
}

// plain gives a value as reading its JSON back does.
func plain(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return v // the request's own encoding says why
	}
	var read any
	if json.Unmarshal(text, &read) != nil {
		return v
	}
	return read
}

// same reports whether a field that is read as now has what want says: lists in
// any order, instants in any zone, related objects by their id or slug.
func same(want, now any) bool { return equal(unwrap(plain(want)), now) }

func equal(want, now any) bool {
	switch n := now.(type) {
	case []any:
		w, is := want.([]any)
		return is && sameElements(w, n)
	case map[string]any:
		if _, is := reference(n); is {
			if w, is := want.(map[string]any); is {
				return w["id"] != nil && w["id"] == n["id"] || w["id"] == nil && w["slug"] != nil && w["slug"] == n["slug"]
			}
			return want == n["id"]
		}
		w, is := want.(map[string]any)
		if !is || len(w) != len(n) {
			return false
		}
		for key, value := range n {
			if other, has := w[key]; !has || !equal(other, value) {
				return false
			}
		}
		return true
	case string:
		w, is := want.(string)
		return is && (w == n || sameInstant(w, n))
	}
	switch want.(type) {
	case []any, map[string]any:
		return false // not comparable
	}
	return want == now
}

func sameElements(want, now []any) bool {
	if len(want) != len(now) {
		return false
	}
	taken := make([]bool, len(now))
next:
	for _, w := range want {
		for i, n := range now {
			if !taken[i] && equal(w, n) {
				taken[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

func sameInstant(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errX == nil && errY == nil && x.Equal(y)
}
