package netbox

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// statuses are NetBox's numbers for what 2.7 and later spell out.
var statuses = []string{"offline", "active", "planned", "staged", "failed", "inventory", "decommissioning"}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// none gives what an absent field and a null say.
func none(raw json.RawMessage) facts.Text { return facts.Text{Known: len(raw) > 0} }

func clean(s string) facts.Text { return facts.TextOf(sources.CleanText(s, maxName)) }

func (r *reader) text(fact string, raw json.RawMessage) facts.Text {
	if !present(raw) {
		return none(raw)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return r.lose(fact)
	}
	return clean(s)
}

// status reads {value, label}, a bare text, or a number.
func (r *reader) status(raw json.RawMessage) facts.Text {
	var choice struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(raw, &choice) == nil && choice.Value != nil {
		raw = choice.Value
	}
	if !present(raw) {
		return facts.Text{} // every device has one
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return r.lose("status")
		}
		return clean(s)
	}
	if n, ok := integer(raw); ok && n >= 0 && n < int64(len(statuses)) {
		return facts.TextOf(statuses[n])
	}
	return r.lose("status")
}

// nested reads one key of a related object, brief or whole, or the bare text of
// it.
func (r *reader) nested(fact string, raw json.RawMessage, key string) facts.Text {
	if !present(raw) {
		return none(raw)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil || json.Unmarshal(object[key], &s) != nil {
			return r.lose(fact)
		}
	}
	if s == "" {
		return r.lose(fact)
	}
	return clean(s)
}

// position reads rack units, whole or half, as a number or a text.
func (r *reader) position(raw json.RawMessage) facts.Text {
	if !present(raw) {
		return none(raw)
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(string(raw), `"`)), 64)
	if err != nil || math.IsNaN(n) || math.Abs(n) > 10000 {
		return r.lose("position")
	}
	return facts.TextOf(strconv.FormatFloat(n, 'f', -1, 64))
}

// address reads an IP address, without the length of its prefix.
func (r *reader) address(fact string, raw json.RawMessage) facts.Text {
	t := r.nested(fact, raw, "address")
	if t.Value == "" {
		return t
	}
	bare, _, _ := strings.Cut(t.Value, "/")
	parsed, err := netip.ParseAddr(bare)
	if err != nil {
		return r.lose(fact)
	}
	return facts.TextOf(parsed.String())
}

// slugs reads tags, objects or bare texts, in an order of their own.
func (r *reader) slugs(fact string, raw json.RawMessage) []string {
	if !present(raw) {
		return nil
	}
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		r.lose(fact)
		return nil
	}
	slugs := make([]string, 0, len(all))
	for _, one := range all {
		t := r.nested(fact, one, "slug")
		if t.Value == "" {
			r.lose(fact) // with one missing the others are not the device's tags
			return nil
		}
		slugs = append(slugs, t.Value)
	}
	slices.Sort(slugs)
	return slices.Compact(slugs)
}

// customFields reads every custom field in the form in which it is written, so
// that 3.7's and 4.7's are alike. One that is too long or cannot be read is left
// out and noted by its name.
func (r *reader) customFields(raw json.RawMessage) map[string]any {
	if !present(raw) {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		r.lose("custom_fields")
		return nil
	}
	fields := make(map[string]any, len(all))
	for name, value := range all {
		name = sources.CleanText(name, maxName)
		var v any
		if len(value) > maxField || json.Unmarshal(value, &v) != nil {
			r.lose("custom_fields." + name)
			if name == resourceClassField {
				r.lose("resource_class")
			}
			continue
		}
		fields[name] = unwrap(v)
	}
	return fields
}

// unwrap turns what NetBox reads out into what it takes: {value, label} of a
// choice into the value, a related object into what identifies it. What it says
// besides moves with other objects.
func unwrap(v any) any {
	switch v := v.(type) {
	case string:
		return sources.CleanText(v, 0)
	case []any:
		for i := range v {
			v[i] = unwrap(v[i])
		}
		return v
	case map[string]any:
		if value, is := v["value"]; is && len(v) == 2 {
			if _, is := v["label"]; is {
				return unwrap(value)
			}
		}
		if v["id"] != nil && v["url"] != nil {
			reference := map[string]any{}
			for _, key := range []string{"id", "name", "slug"} {
				if part, has := v[key]; has {
					reference[key] = unwrap(part)
				}
			}
			return reference
		}
		object := make(map[string]any, len(v))
		for key, value := range v {
			object[sources.CleanText(key, maxName)] = unwrap(value)
		}
		return object
	}
	return v
}

// integer reads a whole number, bare or as a text.
func integer(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	return n, err == nil
}
