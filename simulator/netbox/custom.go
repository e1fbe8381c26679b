package netbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// typeWords are the types of custom fields: their label and what JSON they hold.
var typeWords = map[string][2]string{
	"text": {"Text", "string"}, "select": {"Selection", "string"}, "multiselect": {"Multiple selection", "array"}, "boolean": {"Boolean", "boolean"},
	"integer": {"Integer", "integer"}, "decimal": {"Decimal", "decimal"}, "date": {"Date", "string"}, "object": {"Object", "object"},
}

// label is what NetBox makes of a custom field's name.
func label(name string) string {
	text := strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// choicesOf gives the choices of a custom field, value and label.
func choicesOf(field *world.Object) (list [][2]string) {
	all, _ := field.Fields["choices"].([]any)
	for _, one := range all {
		if pair, ok := one.([]any); ok && len(pair) == 2 {
			list = append(list, [2]string{fmt.Sprint(pair[0]), fmt.Sprint(pair[1])})
		}
	}
	return list
}

// custom appends the custom fields of a device, all of them.
func (v *view) custom(b []byte, o *world.Object) []byte {
	b = append(b, '{')
	for i, field := range v.customs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(wire.Quote(b, field.Name), ':')
		b = v.customValue(b, field, o.Custom[field.Name])
	}
	return append(b, '}')
}

// customValue appends one value: from 4.7 on a choice comes with its label.
func (v *view) customValue(b []byte, field *world.Object, value any) []byte {
	switch kind := field.Text("type"); {
	case value == nil:
		return append(b, "null"...)
	case kind == "object":
		id, _ := number(value)
		return v.brief(b, field.Text("related"), int(id))
	case kind == "decimal":
		n, _ := number(value)
		return wire.Value(b, n)
	case v.generation < 47:
	case kind == "select":
		return v.customChoice(b, field, fmt.Sprint(value))
	case kind == "multiselect":
		list, _ := value.([]any)
		b = append(b, '[')
		for i, one := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = v.customChoice(b, field, fmt.Sprint(one))
		}
		return append(b, ']')
	}
	return wire.Value(b, value)
}

func (v *view) customChoice(b []byte, field *world.Object, value string) []byte {
	for _, c := range choicesOf(field) {
		if c[0] == value {
			return labelled(b, c[0], c[1])
		}
	}
	return labelled(b, value, value)
}

// customForm appends the members of a custom field itself.
func (v *view) customForm(b []byte, m *member, o *world.Object) []byte {
	words := typeWords[o.Text("type")]
	switch m.form {
	case "types":
		return append(b, `["dcim.device"]`...)
	case "cftype":
		return labelled(b, o.Text("type"), words[0])
	case "cfdata":
		return wire.Quote(b, words[1])
	case "label":
		return wire.Quote(b, label(o.Name))
	case "related":
		if o.Text("related") == "" {
			return append(b, "null"...)
		}
		return wire.Quote(b, "dcim."+strings.TrimSuffix(o.Text("related"), "s"))
	case "choiceset":
		set := o.Text("choice_set")
		if set == "" {
			return append(b, "null"...)
		}
		b = fmt.Appendf(b, `{"id":%d,"url":%s,"display":%s,"name":%s,"description":""`, o.ID,
			wire.Quote(nil, fmt.Sprintf("%s/api/extras/custom-field-choice-sets/%d/", v.base, o.ID)), wire.Quote(nil, set), wire.Quote(nil, set))
		return fmt.Appendf(b, `,"choices_count":%d}`, len(choicesOf(o)))
	}
	return v.interfaceForm(b, m, o)
}

// customs gives the custom fields of devices by their names.
func customs(s *world.State) (list []*world.Object) {
	for _, o := range s.Objects.Of(world.KindCustomField) {
		list = append(list, o)
	}
	slices.SortFunc(list, func(x, y *world.Object) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// setCustoms merges values into a device's custom fields. The first that does not
// fit is what NetBox tells; crash: the releases that fall over it.
func (c *change) setCustoms(o *world.Object, values map[string]any) (crash string) {
	fields := customs(c.s)
	unknown := map[string]any{}
	for _, name := range sorted(values) {
		field := named(fields, name)
		if field == nil {
			unknown[name] = fmt.Sprintf("Custom field '%s' does not exist for this object type.", name)
			continue
		}
		value, problem, fell := c.customInput(field, values[name])
		switch {
		case fell != "":
			return fell
		case problem != "":
			c.problem("__all__", fmt.Sprintf("Invalid value for custom field '%s': %s", name, problem))
			return ""
		case value == nil:
			delete(o.Custom, name)
		default:
			o.Custom[name] = value
		}
	}
	if len(unknown) == 0 || c.generation == 44 { // 4.4 drops what it does not know
		return ""
	}
	if c.generation >= 45 {
		c.problems["custom_fields"] = unknown
		return ""
	}
	c.problem("__all__", fmt.Sprintf("Unknown field name '%s' in custom field data.", sorted(unknown)[0]))
	return ""
}

func named(list []*world.Object, name string) *world.Object {
	for _, o := range list {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// customInput reads a value for a custom field.
func (c *change) customInput(field *world.Object, value any) (kept any, problem, crash string) {
	if value == nil {
		return nil, "", ""
	}
	text, isText := value.(string)
	n, isNumber := number(value)
	switch field.Text("type") {
	case "text":
		if !isText {
			return nil, "Value must be a string.", ""
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			return nil, "Value must be true or false.", ""
		}
	case "integer":
		if !isNumber || !whole(n) {
			return nil, "Value must be an integer.", ""
		}
	case "decimal":
		if !isNumber {
			return nil, "Value must be a decimal.", ""
		}
	case "date":
		if _, err := time.Parse(time.DateOnly, text); err != nil {
			return nil, "Date values must be in ISO 8601 format (YYYY-MM-DD).", ""
		}
	case "select":
		if !isText || !hasChoice(field, text) {
			return nil, fmt.Sprintf("Invalid choice (%s) for choice set %s.", python(value, false), field.Text("choice_set")), ""
		}
	case "multiselect":
		return c.customChoices(field, value)
	case "object":
		id, problems := c.reference(field.Text("related"), value)
		if len(problems) > 0 {
			return nil, problems[0], ""
		}
		return id, "", ""
	}
	return value, "", ""
}

// customChoices reads a value of a field of several choices.
func (c *change) customChoices(field *world.Object, value any) (kept any, problem, crash string) {
	list, ok := value.([]any)
	for _, one := range list {
		if _, isObject := one.(map[string]any); isObject && c.generation < 47 {
			return nil, "", "unhashable type: 'dict'"
		}
		text, isText := one.(string)
		ok = ok && isText && hasChoice(field, text)
	}
	if !ok {
		return nil, fmt.Sprintf("Invalid choice(s) (%s) for choice set %s.", python(value, false), field.Text("choice_set")), ""
	}
	return value, "", ""
}

func hasChoice(field *world.Object, value string) bool {
	return slices.ContainsFunc(choicesOf(field), func(c [2]string) bool { return c[0] == value })
}
