package netbox

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// filter tells whether an object fits.
type filter func(o *world.Object) bool

// filters makes one filter of a question. Parameters that NetBox does not know
// are ignored: everything fits them. What is wrong with the others goes into
// problems.
func (x *exchange) filters(s *world.State, k *kind, problems map[string]any) filter {
	var all []filter
	for _, name := range sorted(x.query) {
		values := x.query[name]
		if slices.Contains([]string{"limit", "offset", "start", "ordering", "brief", "fields", "omit", "exclude", "format"}, name) {
			continue
		}
		f, problem := x.filter(s, k, name, values)
		if problem != "" {
			problems[name] = []string{problem}
			continue
		}
		if f != nil {
			all = append(all, f)
		}
	}
	return func(o *world.Object) bool {
		for _, f := range all {
			if !f(o) {
				return false
			}
		}
		return true
	}
}

// filter makes the filter of one parameter; nil for one that is not known.
func (x *exchange) filter(s *world.State, k *kind, name string, values []string) (f filter, problem string) {
	field, lookup, _ := strings.Cut(name, "__")
	switch {
	case name == "id":
		return byID(values)
	case name == "q":
		return func(o *world.Object) bool {
			text := strings.ToLower(o.Name + "\n" + o.Text("serial") + "\n" + o.Text("asset_tag") + "\n" + o.Slug)
			return strings.Contains(text, strings.ToLower(values[0]))
		}, ""
	case field == "last_updated" || field == "created":
		return byTime(field, lookup, values[0])
	case field == "tag":
		return x.byTag(s, lookup, values)
	case field == "name" || field == "slug" || (field == "serial" || field == "asset_tag") && slices.Contains(k.filters, field):
		return x.byText(field, lookup, values), ""
	case strings.HasPrefix(field, "cf_") && k.name == world.KindDevice:
		return x.byCustom(s, strings.TrimPrefix(field, "cf_"), lookup, values), ""
	case k.name == world.KindInterface && (name == "mgmt_only" || name == "cabled"):
		return byInterface(name, values), ""
	case k.name != world.KindDevice && !slices.Contains(k.filters, strings.TrimSuffix(field, "_id")):
		return nil, ""
	case name == "has_primary_ip" || name == "has_oob_ip":
		member := map[string]string{"has_primary_ip": "primary_ip4", "has_oob_ip": "oob_ip"}[name]
		return func(o *world.Object) bool { return (o.Int(member) != 0) == strings.EqualFold(values[0], "true") }, ""
	case choiceLabels[k.name+"."+field] != nil && (lookup == "" || lookup == "n"):
		return byChoice(k.name+"."+field, field, lookup == "n", values)
	}
	return x.byReference(s, k, field, lookup, values)
}

func byID(values []string) (filter, string) {
	ids := map[int]bool{}
	for _, value := range values {
		id, err := strconv.Atoi(value)
		if err != nil {
			return nil, "Enter a whole number."
		}
		ids[id] = true
	}
	return func(o *world.Object) bool { return ids[o.ID] }, ""
}

func noChoice(value string) string {
	return fmt.Sprintf("Select a valid choice. %s is not one of the available choices.", value)
}

func byChoice(name, field string, not bool, values []string) (filter, string) {
	for _, value := range values {
		if !slices.ContainsFunc(choiceLabels[name], func(c [2]string) bool { return c[0] == value }) {
			return nil, noChoice(value)
		}
	}
	return func(o *world.Object) bool { return slices.Contains(values, o.Text(field)) != not }, ""
}

// byText is a filter over a text: several values are alternatives. Regular
// expressions are known from 4.4 on.
func (x *exchange) byText(field, lookup string, values []string) filter {
	get := func(o *world.Object) string { return o.Text(field) }
	switch field {
	case "name":
		get = func(o *world.Object) string { return o.Name }
	case "slug":
		get = func(o *world.Object) string { return o.Slug }
	}
	any := func(fits func(text, value string) bool) filter {
		return func(o *world.Object) bool {
			text := get(o)
			return slices.ContainsFunc(values, func(value string) bool { return fits(text, value) })
		}
	}
	folded := func(fits func(text, value string) bool) func(string, string) bool {
		return func(text, value string) bool { return fits(strings.ToLower(text), strings.ToLower(value)) }
	}
	not := func(f filter) filter { return func(o *world.Object) bool { return !f(o) } }
	positive, negated := strings.CutPrefix(lookup, "n")
	var f filter
	switch positive {
	case "", "ie":
		f = any(strings.EqualFold)
	case "ic":
		f = any(folded(strings.Contains))
	case "isw":
		f = any(folded(strings.HasPrefix))
	case "iew":
		f = any(folded(strings.HasSuffix))
	case "empty":
		return func(o *world.Object) bool { return (get(o) == "") == strings.EqualFold(values[0], "true") }
	case "regex", "iregex":
		pattern, err := regexp.Compile(map[bool]string{true: "(?i)"}[positive == "iregex"] + values[0])
		if err != nil || x.generation < 44 {
			return nil
		}
		return func(o *world.Object) bool { return pattern.MatchString(get(o)) }
	default:
		return nil
	}
	if negated {
		return not(f)
	}
	return f
}

func byTime(field, lookup, value string) (filter, string) {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		if at, err = time.Parse(time.DateOnly, value); err != nil {
			return nil, "Enter a valid date/time."
		}
	}
	fits := map[string]func(c int) bool{
		"gte": func(c int) bool { return c >= 0 }, "gt": func(c int) bool { return c > 0 },
		"lte": func(c int) bool { return c <= 0 }, "lt": func(c int) bool { return c < 0 }, "": func(c int) bool { return c == 0 },
	}[lookup]
	if fits == nil {
		return nil, ""
	}
	return func(o *world.Object) bool {
		if field == "created" {
			return fits(o.Created.Compare(at))
		}
		return fits(o.Updated.Compare(at))
	}, ""
}

// byTag wants every one of the tags.
func (x *exchange) byTag(s *world.State, lookup string, values []string) (filter, string) {
	if lookup != "" && lookup != "n" {
		return nil, ""
	}
	var ids []int
	for _, value := range values {
		tag := s.ObjectBySlug(world.KindTag, value)
		if tag == nil {
			return nil, noChoice(value)
		}
		ids = append(ids, tag.ID)
	}
	return func(o *world.Object) bool {
		has := func(id int) bool { return slices.Contains(o.Tags, id) }
		if lookup == "n" {
			return !slices.ContainsFunc(ids, has)
		}
		return !slices.ContainsFunc(ids, func(id int) bool { return !has(id) })
	}, ""
}

// byReference is a filter over what an object refers to, by its slug or id; null
// is none. A location's slug is known from 4.2 on.
func (x *exchange) byReference(s *world.State, k *kind, field, lookup string, values []string) (filter, string) {
	member, byNumber := strings.CutSuffix(field, "_id")
	kindName := references[member]
	through := member == "manufacturer" && k.name == world.KindDevice
	known := kindName != "" && (slices.Contains(k.filters, member) || through)
	if !known || lookup != "" && lookup != "n" || !byNumber && (member == "rack" || member == "location" && x.generation < 42) {
		return nil, ""
	}
	ids := map[int]bool{}
	for _, value := range values {
		var o *world.Object
		switch {
		case value == "null":
			ids[0] = true
			continue
		case byNumber:
			id, err := strconv.Atoi(value)
			if err != nil {
				return nil, "Enter a whole number."
			}
			o = s.Object(kindName, id)
		default:
			o = s.ObjectBySlug(kindName, value)
		}
		if o == nil {
			return nil, noChoice(value)
		}
		ids[o.ID] = true
	}
	return func(o *world.Object) bool {
		if through {
			o = s.Object(world.KindDeviceType, o.Int("device_type"))
			if o == nil {
				return false
			}
		}
		return ids[o.Int(member)] != (lookup == "n")
	}, ""
}

// byCustom is a filter over a custom field. Of a text only the plain comparison
// is known; several values are alternatives, and none need be a choice.
func (x *exchange) byCustom(s *world.State, name, lookup string, values []string) filter {
	field := named(customs(s), name)
	if field == nil {
		return nil
	}
	ordered := slices.Contains([]string{"integer", "decimal", "date"}, field.Text("type"))
	if lookup != "" && !(ordered && slices.Contains([]string{"gte", "gt", "lte", "lt"}, lookup)) {
		return nil
	}
	return func(o *world.Object) bool {
		value := o.Custom[name]
		return slices.ContainsFunc(values, func(wanted string) bool { return customFits(value, lookup, wanted) })
	}
}

func customFits(value any, lookup, wanted string) bool {
	switch v := value.(type) {
	case nil:
		return wanted == "null" && lookup == ""
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return fmt.Sprint(one) == wanted })
	case bool:
		return strings.EqualFold(strconv.FormatBool(v), wanted)
	case string:
		return ordered(strings.Compare(v, wanted), lookup)
	}
	n, _ := number(value)
	w, err := strconv.ParseFloat(wanted, 64)
	switch {
	case err != nil:
		return false
	case n < w:
		return ordered(-1, lookup)
	case n > w:
		return ordered(1, lookup)
	}
	return ordered(0, lookup)
}

func ordered(c int, lookup string) bool {
	switch lookup {
	case "gte":
		return c >= 0
	case "gt":
		return c > 0
	case "lte":
		return c <= 0
	case "lt":
		return c < 0
	}
	return c == 0
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
