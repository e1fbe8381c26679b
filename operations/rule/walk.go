package rule

import (
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// maxProblems is after how many the rest is not looked at.
const maxProblems = 200

// walker goes through a tree along the schema and notes what does not fit. Names
// are compared here and never given to CUE, which keeps every name it hears of.
type walker struct {
	validator *Validator
	problems  []Problem
	bad       map[*node]bool // will not do, whatever is beside it
}

func (w *walker) note(n *node, path, message string) {
	w.problems = append(w.problems, Problem{Path: path, Line: n.line, Column: n.column, Message: message})
}

// walk checks one value. Words say what the schema wants; above are the objects
// around the value, the nearest last. It reports whether nothing was wrong.
func (w *walker) walk(want cue.Value, words string, n *node, above []*node, path string) bool {
	before := len(w.problems)
	if before > maxProblems {
		return false
	}
	kind := want.IncompleteKind()
	switch {
	case n.kind == anOddity:
		w.note(n, path, n.text)
		w.bad[n] = true
	case n.kind == aNull && kind == cue.ListKind:
		n.kind = aList // an empty one
		w.list(want, n, above, path)
	case n.kind == aMap && (kind == cue.StructKind || len(deciders(want)) > 0):
		w.object(want, n, above, path)
	case n.kind == aList && kind == cue.ListKind:
		w.list(want, n, above, path)
	case n.kind == aMap || n.kind == aList || kind&(cue.StructKind|cue.ListKind) != 0 || len(deciders(want)) > 0:
		w.unfit(words, n, above, path)
	default:
		if w.validator.value(n, nil).Unify(want).Validate(cue.Concrete(true)) != nil {
			w.unfit(words, n, above, path)
		}
	}
	return len(w.problems) == before
}

// unfit notes a value that is not what the schema wants.
func (w *walker) unfit(words string, n *node, above []*node, path string) {
	found := "found " + n.shown()
	if n.kind == aNull {
		found = "there is nothing here"
	}
	w.note(n, path, found+": give "+w.filled(words, above, ""))
	w.bad[n] = true
}

func (w *walker) list(want cue.Value, n *node, above []*node, path string) {
	// What stands for the items costs as much as they do: it is made only where
	// their number may be wrong.
	count := len(n.items)
	if count == 0 || count > 20 {
		if want.Unify(w.validator.value(n, all(n.items))).Validate() != nil {
			w.note(n, path, "found "+plural(count, "item")+": give "+w.filled(wordsOf(want, "want"), above, ""))
		}
	}
	of, words := want.LookupPath(cue.MakePath(cue.AnyIndex)), wordsOf(want, "item")
	if definition := wordAt(want, "item", 1); definition != "" {
		of = w.validator.schema.LookupPath(cue.ParsePath(definition))
	}
	for i, item := range n.items[:min(count, maxItems)] {
		w.walk(of, words, item, above, element(path, i))
	}
}

// maxItems is how many items of a list are looked at.
const maxItems = 100

func all(items []*node) map[*node]bool {
	set := map[*node]bool{}
	for _, item := range items {
		set[item] = true
	}
	return set
}

// object checks the fields of an object: first those that decide what the others
// are, then the others, then what they are together.
func (w *walker) object(want cue.Value, n *node, above []*node, path string) {
	above, before := append(slices.Clone(above), n), len(w.problems)
	decided, sure := map[string]bool{}, true
	for _, by := range deciders(want) {
		decided[by.name] = true
		value := n.field(by.name)
		field := fieldOf(want, by.name)
		switch {
		case value == nil:
			w.missing(n, field, by.name, above, path)
		case !sure && value.kind == aText:
			w.bad[value] = true // it may be right with what should stand before
		case w.walk(field, wordsOf(field, "want"), value, above, under(path, by.name)):
			want = want.Unify(w.validator.value(with(by.name, value), nil))
			continue
		}
		if by.otherwise == "" {
			w.undecided(n)
			return
		}
		sure = false
		want = want.Unify(w.validator.value(with(by.name, &node{kind: aText, text: by.otherwise}), nil))
	}
	known := fieldsOf(want)
	for _, m := range n.fields {
		at := under(path, m.name)
		i := slices.IndexFunc(known, func(f schemaField) bool { return f.name == m.name })
		switch {
		case decided[m.name]:
		case i >= 0:
			w.walk(known[i].value, wordsOf(known[i].value, "want"), m.value, above, at)
		default:
			w.bad[m.value] = true
			w.unknown(m, known, at)
		}
	}
	for _, f := range known {
		if f.required && !decided[f.name] && n.field(f.name) == nil {
			w.missing(n, f.value, f.name, above, path)
		}
	}
	w.together(want, n, above, path, len(w.problems) == before)
	for _, by := range deciders(want) {
		if value := n.field(by.name); value != nil && w.bad[value] && by.otherwise == "" {
			w.undecided(n)
		}
	}
}

// with is an object of one field.
func with(name string, value *node) *node {
	return &node{fields: []*member{{name: name, value: value}}}
}

// undecided leaves out all of an object of which nobody knows what it should be.
func (w *walker) undecided(n *node) {
	for _, m := range n.fields {
		w.bad[m.value] = true
	}
}

func (w *walker) unknown(m *member, known []schemaField, path string) {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	message := "there is no such field: "
	if name := meant(m.name, names); name != "" {
		message += "is " + name + " meant?"
	} else {
		message += "there are " + strings.Join(names, ", ")
	}
	w.note(&node{line: m.line, column: m.column}, path, message)
}

func (w *walker) missing(n *node, field cue.Value, name string, above []*node, path string) {
	w.note(n, under(path, name), "is missing: give "+w.filled(wordsOf(field, "want"), above, ""))
}

// schemaField is one field that an object may have.
type schemaField struct {
	name     string
	value    cue.Value
	required bool
}

func fieldsOf(v cue.Value) []schemaField {
	var fields []schemaField
	it, err := v.Fields(cue.Optional(true))
	for err == nil && it.Next() {
		s := it.Selector()
		fields = append(fields, schemaField{s.Unquoted(), it.Value(), s.ConstraintType() == cue.RequiredConstraint})
	}
	return fields
}

func fieldOf(v cue.Value, name string) cue.Value {
	for _, f := range fieldsOf(v) {
		if f.name == name {
			return f.value
		}
	}
	return cue.Value{}
}

// decider is a field that decides what an object is.
type decider struct{ name, otherwise string }

func deciders(v cue.Value) []decider {
	var all []decider
	for _, a := range v.Attributes(cue.ValueAttr) {
		if a.Name() != "by" {
			continue
		}
		for i := range a.NumArgs() {
			name, otherwise := a.Arg(i)
			all = append(all, decider{name, otherwise})
		}
	}
	return all
}

// wordsOf reads an attribute of a field.
func wordsOf(field cue.Value, name string) string { return wordAt(field, name, 0) }

func wordAt(field cue.Value, name string, i int) string {
	a := field.Attribute(name)
	text, _ := a.String(i) // "": it has none
	return text
}

var brace = regexp.MustCompile(`\{([^{}]*)\}`)

// filled fills in what words quote: a value beside the field or further out, a
// list of the schema, the label of what is wrong.
func (w *walker) filled(text string, above []*node, label string) string {
	return brace.ReplaceAllStringFunc(text, func(quote string) string {
		quote = strings.Trim(quote, "{}")
		if path, ok := strings.CutPrefix(quote, "list:"); ok {
			if i := strings.IndexByte(path, '['); i >= 0 {
				path = path[:i] + lookUp(strings.Trim(path[i:], "[]"), above)
			}
			var names []string
			found := w.validator.schema.LookupPath(cue.ParsePath(path))
			if !found.Exists() || found.Decode(&names) != nil {
				return "the codes of its operation_type"
			}
			return strings.Join(names, ", ")
		}
		if quote == "label" {
			return label
		}
		return lookUp(quote, above)
	})
}

// lookUp finds the nearest value of a name; after a | stands what it is by default.
func lookUp(name string, above []*node) string {
	name, byDefault, _ := strings.Cut(name, "|")
	for i := len(above) - 1; i >= 0; i-- {
		if found := above[i].field(name); found != nil {
			return clipped(found.text)
		}
		if byDefault != "" {
			break
		}
	}
	return byDefault
}

func plural(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}
