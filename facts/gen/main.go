// Command gen writes facts_gen.go from schema/facts.cue and schema/names.cue:
// the Go types of every family of facts, the enum tables, and the table of
// fields that the engine compiles patterns against. Run it with go generate.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/format"
	"os"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
)

func main() {
	if err := run("..", "facts_gen.go"); err != nil {
		fmt.Fprintln(os.Stderr, "facts/gen:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	instance := load.Instances([]string{"./schema"}, &load.Config{Dir: root})[0]
	if instance.Err != nil {
		return instance.Err
	}
	schema := cuecontext.New().BuildInstance(instance)
	if err := schema.Err(); err != nil {
		return err
	}
	g := generator{enums: map[string][]string{}}
	if err := g.enumTypes(schema); err != nil {
		return err
	}
	if err := g.families(schema.LookupPath(cue.ParsePath("#Facts"))); err != nil {
		return err
	}
	source, err := g.source()
	if err != nil {
		return err
	}
	return os.WriteFile(out, source, 0o644)
}

type generator struct {
	enums     map[string][]string // Go type → JSON literals of its members
	enumOrder []string
	list      []family
	tokens    []string
}

type family struct {
	name   string
	fields []field
}

type field struct {
	name     string
	goType   string // of the struct's field
	enum     string // the enum type, "" for none
	nullable bool
	derived  bool
	recorded bool
	set      bool
}

// enumTypes takes every definition that is a disjunction of texts or numbers.
func (g *generator) enumTypes(schema cue.Value) error {
	it, err := schema.Fields(cue.Definitions(true))
	if err != nil {
		return err
	}
	for it.Next() {
		name := it.Selector().String()
		if !it.Selector().IsDefinition() {
			continue
		}
		if values, _, ok := members(it.Value()); ok && len(values) > 1 && name != "#Tri" && name != "#ConditionSource" {
			g.addEnum(strings.TrimPrefix(name, "#"), values)
		}
	}
	return nil
}

func (g *generator) addEnum(name string, values []string) {
	if _, known := g.enums[name]; !known {
		g.enums[name] = values
		g.enumOrder = append(g.enumOrder, name)
	}
}

func (g *generator) families(all cue.Value) error {
	it, err := all.Fields()
	if err != nil {
		return err
	}
	for it.Next() {
		f := family{name: it.Selector().Unquoted()}
		fields, err := it.Value().Fields()
		if err != nil {
			return err
		}
		for fields.Next() {
			one, err := g.field(f.name, fields.Selector().Unquoted(), fields.Value())
			if err != nil {
				return err
			}
			f.fields = append(f.fields, one)
		}
		g.list = append(g.list, f)
	}
	return nil
}

func (g *generator) field(family, name string, v cue.Value) (field, error) {
	f := field{name: name}
	for _, a := range v.Attributes(cue.FieldAttr) {
		switch a.Name() {
		case "derived":
			f.derived = true
		case "recorded":
			f.recorded, f.goType = true, a.Contents()
			return f, nil
		}
	}
	if v.IncompleteKind() == cue.StructKind {
		f.set, f.goType = true, "SlurmStates"
		it, _ := v.Fields()
		for it.Next() {
			g.tokens = append(g.tokens, it.Selector().Unquoted())
		}
		return f, nil
	}
	values, nullable, finite := members(v)
	f.nullable = nullable
	switch {
	case finite && slices.Equal(values, []string{"false", "true"}):
		f.goType = "bool"
		if nullable {
			f.goType = "Bool"
		}
	case finite:
		f.enum = g.enumOf(values)
		if f.enum == "" {
			f.enum = camel(family) + camel(name)
			g.addEnum(f.enum, values)
		}
		f.goType = f.enum
	case v.IncompleteKind()&cue.StringKind != 0:
		f.goType = "string"
		if nullable {
			f.goType = "Text"
		}
	default:
		return f, fmt.Errorf("%s: %s.%s: a fact is a bool, a text or one of a finite set, each perhaps null", v.Pos(), family, name)
	}
	return f, nil
}

func (g *generator) enumOf(values []string) string {
	for _, name := range g.enumOrder {
		if slices.Equal(g.enums[name], values) {
			return name
		}
	}
	return ""
}

// members lists the values of a finite type as JSON literals, without null.
func members(v cue.Value) (values []string, nullable, finite bool) {
	if op, parts := cue.Dereference(v).Expr(); op == cue.OrOp {
		for _, part := range parts {
			more, null, ok := members(part)
			if !ok && !null {
				return nil, nullable || v.IncompleteKind()&cue.NullKind != 0, false
			}
			values, nullable = append(values, more...), nullable || null
		}
		return values, nullable, len(values) > 0
	}
	switch {
	case v.IncompleteKind() == cue.NullKind:
		return nil, true, false
	case v.IncompleteKind() == cue.BoolKind && !v.IsConcrete():
		return []string{"false", "true"}, false, true
	case v.IsConcrete() && v.IncompleteKind()&(cue.StringKind|cue.IntKind) != 0:
		literal, err := v.MarshalJSON()
		return []string{string(literal)}, false, err == nil
	}
	return nil, false, false
}

var initialisms = map[string]string{"uuid": "UUID", "id": "ID", "ip": "IP", "bmc": "BMC", "vrf": "VRF"}

func camel(snake string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(snake, func(r rune) bool { return r == '_' || r == ' ' || r == '-' }) {
		if whole, ok := initialisms[strings.ToLower(part)]; ok {
			b.WriteString(whole)
			continue
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

func tokenName(token string) string { return "Slurm" + camel(strings.ToLower(token)) }

func memberName(enum, literal string) string {
	text := strings.Trim(literal, `"`)
	return enum + camel(strings.NewReplacer("call-back", "callback").Replace(text))
}

func (g *generator) source() ([]byte, error) {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("// Code generated by facts/gen from schema/facts.cue; DO NOT EDIT.\n\npackage facts\n\nimport (\n\t\"encoding/binary\"\n\t\"time\"\n)\n")

	for _, name := range g.enumOrder {
		values := g.enums[name]
		p("// %s is one of the values that schema/names.cue or schema/facts.cue lists; its zero value is null.\ntype %s uint8\n\nconst (", name, name)
		for i, literal := range values {
			p("\t%s %s = %d", memberName(name, literal), name, i+1)
		}
		p(")\n\nvar table%s = newEnum(%q, %#v)\n", name, name, values)
		p("// String gives the value as the source spells it, \"\" for null.\nfunc (v %s) String() string { return table%s.text(uint8(v)) }\n", name, name)
		p("// Null reports whether the value is not known.\nfunc (v %s) Null() bool { return v == 0 }\n", name)
		p("// Parse%s finds a value by its spelling.\nfunc Parse%s(text string) (%s, bool) {\n\tcode, ok := table%s.code(text)\n\treturn %s(code), ok\n}\n", name, name, name, name, name)
		p("// MarshalJSON writes the value, or null.\nfunc (v %s) MarshalJSON() ([]byte, error) { return table%s.marshal(uint8(v)) }\n", name, name)
		p("// UnmarshalJSON reads a value of the closed set, or null.\nfunc (v *%s) UnmarshalJSON(data []byte) error { return table%s.unmarshal(data, (*uint8)(v)) }\n", name, name)
	}

	p("// The tokens of SLURM's node states: the base states first, then the flags.\nconst (")
	for i, token := range g.tokens {
		p("\t%s SlurmStates = 1 << %d", tokenName(token), i)
	}
	p(")\n\nvar slurmTokens = []string{")
	for _, token := range g.tokens {
		p("\t%q,", token)
	}
	p("}\n")

	for _, f := range g.list {
		p("// %s is the family %q of #Facts.\ntype %s struct {", camel(f.name), f.name, camel(f.name))
		for _, one := range f.fields {
			p("\t%s %s `json:\"%s,omitzero\"`", camel(one.name), one.goType, one.name)
		}
		p("}\n")
	}
	p("// Facts is everything a policy may know of one device, conditions and parameters apart.\ntype Facts struct {")
	for _, f := range g.list {
		p("\t%s %s `json:\"%s,omitzero\"`", camel(f.name), camel(f.name), f.name)
	}
	p("}\n")
	g.fieldTable(p)
	for _, f := range g.list {
		if slices.Contains(stored, f.name) {
			g.canonical(p, f)
		}
	}
	return format.Source(b.Bytes())
}

// stored are the families that a source fills.
var stored = []string{"ironic", "placement", "slurm", "netbox", "bmc"}

// canonical writes the method that appends a family's form: its layout, then
// every fact that is not derived, in order.
func (g *generator) canonical(p func(string, ...any), f family) {
	layout := sha256.New()
	fmt.Fprintf(layout, "%s\n", f.name)
	name := camel(f.name)
	p("// AppendCanonical appends the form of what a source said.\nfunc (f *%s) AppendCanonical(form []byte) []byte {", name)
	var lines []string
	for _, one := range f.fields {
		if one.derived {
			continue
		}
		values := g.enums[one.enum]
		if one.set {
			values = g.tokens
		}
		fmt.Fprintf(layout, "%s %s %q\n", one.name, one.goType, values)
		lines = append(lines, "\tform = "+appendCall(one))
	}
	p("\tform = append(form, layout%s...)", name)
	p("%s\n\treturn form\n}\n", strings.Join(lines, "\n"))
	p("// layout%s names the facts of the family, their types and the order of their values.\nconst layout%s = %q\n", name, name, hex.EncodeToString(layout.Sum(nil)[:4]))
}

// appendCall spells the call that appends a fact. A type that it does not know
// does not compile.
func appendCall(f field) string {
	value := "f." + camel(f.name)
	switch {
	case f.set:
		return "binary.BigEndian.AppendUint64(form, uint64(" + value + "))"
	case f.enum != "", f.goType == "Bool":
		return "append(form, uint8(" + value + "))"
	}
	kind := map[string]string{
		"bool": "Bool", "string": "String", "Text": "Text", "time.Time": "Time",
		"[]string": "Strings", "map[string]string": "StringMap", "map[string]any": "AnyMap",
	}[f.goType]
	return "append" + kind + "(form, " + value + ")"
}

// fieldTable writes Fields, and Intern, which puts the code of every finite
// field in its place of Codes.
func (g *generator) fieldTable(p func(string, ...any)) {
	var intern []string
	p("// Fields lists every fact that a pattern may test, in the order of #Facts.\nvar Fields = []Field{")
	finite := 0
	add := func(path, kind string, f field, values []string, expr string) {
		at := -1
		if expr != "" {
			at = finite
			finite++
			intern = append(intern, fmt.Sprintf("\tc[%d] = %s", at, expr))
		}
		p("\t{Path: %q, Kind: %s, Nullable: %v, Derived: %v, At: %d, Values: %#v%s},", path, kind, f.nullable, f.derived, at, values, textGetter(kind, path))
	}
	for _, fam := range g.list {
		for _, one := range fam.fields {
			path := fam.name + "." + one.name
			expr := "f." + camel(fam.name) + "." + camel(one.name)
			switch {
			case one.recorded:
			case one.set:
				for i, token := range g.tokens {
					add(path+"."+token, "KindBool", field{}, []string{"false", "true"}, fmt.Sprintf("1 + uint8(%s>>%d&1)", expr, i))
				}
			case one.goType == "bool":
				add(path, "KindBool", one, []string{"false", "true"}, "boolCode("+expr+")")
			case one.goType == "Bool":
				add(path, "KindBool", one, []string{"false", "true"}, "uint8("+expr+")")
			case one.enum != "":
				add(path, "KindEnum", one, g.enums[one.enum], "uint8("+expr+")")
			default:
				add(path, "KindText", one, nil, "")
			}
		}
	}
	p("}\n\n// Codes holds the code of every finite field at its Field.At.\ntype Codes [%d]uint8\n", finite)
	p("// Intern fills c from the facts.\nfunc (f *Facts) Intern(c *Codes) {\n%s\n}\n", strings.Join(intern, "\n"))
}

func textGetter(kind, path string) string {
	if kind != "KindText" {
		return ""
	}
	parts := strings.SplitN(path, ".", 2)
	expr := "f." + camel(parts[0]) + "." + camel(parts[1])
	switch path {
	case "device.name", "site.name":
		expr = "TextOf(" + expr + ")"
	}
	return fmt.Sprintf(", Text: func(f *Facts) Text { return %s }", expr)
}
