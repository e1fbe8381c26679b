package engine

import (
	"encoding/json"
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

// ParameterSchema gives the JSON Schema (draft 2020-12) of what a submission may
// say, defaults included, for forms and OpenAPI. It promises less than
// ValidateParameters, which asks CUE: what depends on two parameters it leaves
// out.
func (w *Workflow) ParameterSchema() json.RawMessage {
	definition, err := w.parameters.definition(cuecontext.New())
	if err != nil {
		return json.RawMessage(`{"type":"object"}`) // it was read when the bundle was loaded
	}
	form := formOf(definition, 0)
	form["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	form["title"] = w.Title
	text, err := json.Marshal(form)
	if err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return text
}

type form = map[string]any

// maxFormDepth bounds how deep a form nests.
const maxFormDepth = 8

// formOf describes one value of the definition.
func formOf(v cue.Value, depth int) form {
	f := form{}
	if depth > maxFormDepth {
		return f
	}
	if text := commentOf(v); text != "" && depth > 0 {
		f["description"] = text
	}
	if byDefault, ok := defaultOf(v); ok {
		f["default"] = byDefault
	}
	switch kind := v.IncompleteKind(); kind &^ cue.NullKind {
	case cue.StructKind:
		structForm(f, v, depth)
	case cue.ListKind:
		listForm(f, v, depth)
	default:
		scalarForm(f, v.Eval(), 0)
	}
	if names := typesOf(v.IncompleteKind()); len(names) == 1 {
		f["type"] = names[0]
	} else if len(names) > 1 {
		f["type"] = names
	}
	return f
}

// defaultOf is what a value is where nothing is given, if the policy says so with
// a * of its own.
func defaultOf(v cue.Value) (any, bool) {
	if v.IncompleteKind() == cue.StructKind {
		return nil, false // made of those of its fields
	}
	found, ok := v.Default()
	if !ok || found.Equals(v) && v.IsConcrete() && v.IncompleteKind() == cue.ListKind && v.LookupPath(cue.MakePath(cue.AnyIndex)).Exists() {
		return nil, false
	}
	text, err := found.MarshalJSON()
	var value any
	if err != nil || json.Unmarshal(text, &value) != nil {
		return nil, false
	}
	return value, true
}

func structForm(f form, v cue.Value, depth int) {
	properties, required := form{}, []string{}
	fields, err := v.Fields(cue.Optional(true))
	for err == nil && fields.Next() {
		name := fields.Selector().Unquoted()
		properties[name] = formOf(fields.Value(), depth+1)
		if !fields.IsOptional() && fields.Value().Validate(cue.Concrete(true)) != nil {
			required = append(required, name)
		}
	}
	f["properties"] = properties
	if len(required) > 0 {
		f["required"] = required
	}
	if !v.Allows(cue.AnyString) {
		f["additionalProperties"] = false
	}
}

func listForm(f form, v cue.Value, depth int) {
	if elements, err := v.List(); err == nil {
		least := 0
		for elements.Next() {
			if elements.Value().Validate(cue.Concrete(true)) != nil {
				least++ // one that has to be given
			}
		}
		if least > 0 {
			f["minItems"] = least
		}
	}
	if each := elementOf(v); each.Exists() {
		element := formOf(each, depth+1)
		delete(element, "description")
		f["items"] = element
	}
}

// elementOf is what any element of a list is. A default stands before what the
// list may be, so its parts are looked at as well.
func elementOf(v cue.Value) cue.Value {
	each := v.LookupPath(cue.MakePath(cue.AnyIndex))
	if each.Exists() {
		return each
	}
	_, args := v.Expr()
	for _, arg := range args {
		if found := arg.LookupPath(cue.MakePath(cue.AnyIndex)); found.Exists() {
			return found
		}
	}
	return each
}

// alternatives are the members of a disjunction, or the value alone.
func alternatives(v cue.Value, depth int) []cue.Value {
	op, args := v.Expr()
	if op != cue.OrOp || depth > maxReferences {
		return []cue.Value{v}
	}
	var all []cue.Value
	for _, arg := range args {
		all = append(all, alternatives(cue.Dereference(arg), depth+1)...)
	}
	return all
}

// scalarForm takes the tests of a value apart: texts of a set, bounds, patterns.
func scalarForm(f form, v cue.Value, depth int) {
	var set []any
	others := 0
	for _, one := range alternatives(v, 0) {
		if one.IncompleteKind() == cue.NullKind {
			continue
		}
		if text, err := one.String(); err == nil && one.Kind() == cue.StringKind {
			if !slices.Contains(set, any(text)) {
				set = append(set, text)
			}
			continue
		}
		others++
		boundsForm(f, one, depth)
	}
	if len(set) > 0 && others == 0 {
		f["enum"] = set
	}
}

var boundNames = map[cue.Op]string{
	cue.RegexMatchOp: "pattern", cue.GreaterThanOp: "exclusiveMinimum", cue.GreaterThanEqualOp: "minimum",
	cue.LessThanOp: "exclusiveMaximum", cue.LessThanEqualOp: "maximum",
}

func boundsForm(f form, v cue.Value, depth int) {
	op, args := cue.Dereference(v).Expr()
	if op == cue.AndOp && depth < maxReferences {
		for _, arg := range args {
			boundsForm(f, arg, depth+1)
		}
		return
	}
	name, ok := boundNames[op]
	if !ok || len(args) != 1 {
		return
	}
	text, err := args[0].MarshalJSON()
	var bound any
	if err == nil && json.Unmarshal(text, &bound) == nil {
		f[name] = bound
	}
}

// typesOf names the kinds that JSON has, null last.
func typesOf(kind cue.Kind) []string {
	var names []string
	for _, one := range []struct {
		kind cue.Kind
		name string
	}{{cue.StructKind, "object"}, {cue.ListKind, "array"}, {cue.StringKind, "string"}, {cue.BoolKind, "boolean"}} {
		if kind&one.kind != 0 {
			names = append(names, one.name)
		}
	}
	switch {
	case kind&cue.FloatKind != 0:
		names = append(names, "number")
	case kind&cue.IntKind != 0:
		names = append(names, "integer")
	}
	if kind&cue.NullKind != 0 {
		names = append(names, "null")
	}
	return names
}
