package rule

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// Validator checks rules by schema/operation_rule.cue. It may be used by any
// number of goroutines, one at a time of which it serves.
type Validator struct {
	mu       sync.Mutex // a context of CUE serves one
	ctx      *cue.Context
	schema   cue.Value
	names    map[string]bool // every field that a rule may have
	defaults defaults
}

// New compiles the schema of a bundle.
func New(bundle fs.FS) (*Validator, error) {
	names, err := fs.Glob(bundle, "schema/operation_*.cue")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("the bundle has no schema/operation_*.cue: %w", err)
	}
	instance := build.NewContext().NewInstance("schema", nil)
	for _, name := range names {
		data, err := fs.ReadFile(bundle, name)
		if err != nil {
			return nil, fmt.Errorf("read the schema of operation rules: %w", err)
		}
		file, err := parser.ParseFile(name, data, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read the schema of operation rules: %w", err)
		}
		if err := instance.AddSyntax(file); err != nil {
			return nil, fmt.Errorf("read the schema of operation rules: %w", err)
		}
	}
	if err := instance.Complete(); err != nil {
		return nil, fmt.Errorf("read the schema of operation rules: %w", err)
	}
	v := &Validator{ctx: cuecontext.New()}
	if v.schema = v.ctx.BuildInstance(instance); v.schema.Err() != nil {
		return nil, fmt.Errorf("read the schema of operation rules: %w", v.schema.Err())
	}
	if err := v.schema.LookupPath(cue.ParsePath("ruleDefaults")).Decode(&v.defaults); err != nil {
		return nil, fmt.Errorf("read the defaults of operation rules: %w", err)
	}
	v.names = map[string]bool{}
	for _, definition := range []string{"#OperationRuleBatch", "#OperationRule", "#OperationStep", "#OperationRetry", "#OperationAction", "#OperationActions"} {
		v.learn(v.schema.LookupPath(cue.ParsePath(definition)))
	}
	return v, nil
}

// learn keeps the names of the fields of a definition and of the objects in it.
func (v *Validator) learn(definition cue.Value) {
	for _, f := range fieldsOf(definition) {
		v.names[f.name] = true
		if f.value.IncompleteKind() == cue.StructKind {
			v.learn(f.value)
		}
	}
}

// familiar reports whether a tree holds no name that no rule has, and nothing
// that may mean one thing or another: then it may be given to CUE, which keeps
// every name it hears of for good.
func (v *Validator) familiar(n *node) bool {
	for _, m := range n.fields {
		if !v.names[m.name] || !v.familiar(m.value) {
			return false
		}
	}
	for _, item := range n.items {
		if !v.familiar(item) {
			return false
		}
	}
	return n.kind != anOddity
}

// Head is what a rule is besides its steps.
type Head struct {
	Name          string
	Description   string
	OperationType string
	Operation     string
}

// Checked is what a valid document holds.
type Checked struct {
	Rules    []Rule
	Warnings []Problem // what is odd but allowed
}

// Batch reads a document of many rules: {version, rules}. An error is a *Invalid.
func (v *Validator) Batch(d Document) (*Checked, error) {
	return v.check(d, "#OperationRuleBatch", nil)
}

// Rule reads one rule with its name and operation. An error is a *Invalid.
func (v *Validator) Rule(d Document) (*Checked, error) { return v.check(d, "#OperationRule", nil) }

// Steps reads one rule of which the document holds version and steps alone, the
// rest being said elsewhere. An error is a *Invalid.
func (v *Validator) Steps(d Document, head Head) (*Checked, error) {
	return v.check(d, "#OperationRule", &head)
}

// Form is what a document holds.
type Form int

// The forms of documents.
const (
	FormSteps Form = iota // version and steps alone, or what nobody can tell
	FormRule
	FormBatch
)

// FormOf tells the form of a document by the fields it begins with.
func FormOf(d Document) Form {
	tree := (&reader{}).read(&d)
	if tree == nil {
		return FormSteps
	}
	for _, m := range tree.fields {
		switch m.name {
		case "rules":
			return FormBatch
		case "name", "operation", "operation_type":
			return FormRule
		}
	}
	return FormSteps
}

// ComponentTypes lists the component types that a step may be for.
func (v *Validator) ComponentTypes() []string { return v.list("componentTypes") }

// Operations lists the codes of a kind of operation.
func (v *Validator) Operations(operationType string) []string {
	return v.list("operationCodes", operationType)
}

// OperationTypes lists the kinds of operation.
func (v *Validator) OperationTypes() []string { return v.list("operationTypes") }

func (v *Validator) list(path ...string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.schema
	for _, name := range path {
		at = at.LookupPath(cue.MakePath(cue.Str(name)))
	}
	var names []string
	if !at.Exists() || at.Decode(&names) != nil {
		return nil
	}
	return names
}

func (v *Validator) check(d Document, definition string, head *Head) (*Checked, error) {
	r := &reader{}
	tree := r.read(&d)
	if tree != nil && head != nil {
		r.behead(tree)
		head.put(tree)
	}
	problems := r.problems
	if tree != nil {
		problems = append(problems, v.problems(definition, tree)...)
	}
	if len(problems) > 0 {
		return nil, &Invalid{Name: d.Name, Problems: sorted(problems)}
	}
	return v.decode(definition, tree), nil
}

// behead takes out what a document of version and steps alone may not say.
func (r *reader) behead(tree *node) {
	var rest []*member
	for _, m := range tree.fields {
		if strings.Contains(" name description operation_type operation ", " "+m.name+" ") {
			r.note(m.name, m.line, m.column, "a file of one rule holds version and steps alone: %s is said beside it", m.name)
			continue
		}
		rest = append(rest, m)
	}
	tree.fields = rest
}

// put adds what is said elsewhere; it stands nowhere.
func (h *Head) put(tree *node) {
	for _, one := range []struct{ name, text string }{
		{"name", h.Name}, {"description", h.Description}, {"operation_type", h.OperationType}, {"operation", h.Operation},
	} {
		if one.text != "" {
			tree.fields = append(tree.fields, &member{name: one.name, value: &node{kind: aText, text: one.text}})
		}
	}
}

// problems says what the schema refuses. The schema decides; where it says no the
// tree is walked along it for the words.
func (v *Validator) problems(definition string, tree *node) []Problem {
	v.mu.Lock()
	defer v.mu.Unlock()
	whole := v.schema.LookupPath(cue.ParsePath(definition))
	refuses := func() error { return whole.Unify(v.value(tree, nil)).Validate(cue.Concrete(true), cue.All()) }
	if v.familiar(tree) && refuses() == nil {
		return nil
	}
	w := &walker{validator: v, bad: map[*node]bool{}}
	w.walk(whole, "an object", tree, nil, "")
	if len(w.problems) == 0 {
		if err := refuses(); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			w.problems = append(w.problems, Problem{Line: tree.line, Column: tree.column, Message: "the schema refuses it: " + first})
		}
	}
	return w.problems
}

// value is a tree as a value of CUE, without what is bad.
func (v *Validator) value(n *node, bad map[*node]bool) cue.Value {
	return v.ctx.BuildExpr(expression(n, bad))
}

func expression(n *node, bad map[*node]bool) ast.Expr {
	switch n.kind {
	case aMap:
		fields := &ast.StructLit{}
		for _, m := range n.fields {
			if !bad[m.value] {
				fields.Elts = append(fields.Elts, &ast.Field{Label: ast.NewString(m.name), Value: expression(m.value, bad)})
			}
		}
		return fields
	case aList:
		list := &ast.ListLit{}
		for _, item := range n.items {
			if bad[item] {
				list.Elts = append(list.Elts, ast.NewIdent("_"))
			} else {
				list.Elts = append(list.Elts, expression(item, bad))
			}
		}
		return list
	case aNumber:
		return number(n.text)
	case aBool:
		return ast.NewBool(n.text == "true")
	case aNull:
		return ast.NewNull()
	}
	return ast.NewString(n.text)
}

// number is a decimal number as CUE writes it; whole or not is seen by its spelling.
func number(text string) ast.Expr {
	positive, negative := strings.CutPrefix(text, "-")
	kind := token.INT
	if strings.ContainsAny(text, ".eE") {
		kind = token.FLOAT
	}
	var expr ast.Expr = ast.NewLit(kind, positive)
	if negative {
		expr = &ast.UnaryExpr{Op: token.SUB, X: expr}
	}
	return expr
}
