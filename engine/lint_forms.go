package engine

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/facts"
)

// forms looks for what CUE allows and a policy cannot mean: a field that need
// not be there, a test of every field at once, and a choice in place of a value,
// of which CUE silently drops whatever does not fit the schema.
func (l *linter) forms() {
	for _, name := range l.source.paths {
		if !decides(name) || families[path.Dir(name)] == nil {
			continue
		}
		file, err := parser.ParseFile(name, l.source.files[name])
		if err != nil {
			continue // told by the loader
		}
		f := former{linter: l, named: map[string]ast.Expr{}}
		for _, decl := range file.Decls {
			if field, ok := decl.(*ast.Field); ok {
				if label, _, err := ast.LabelName(field.Label); err == nil && strings.HasPrefix(label, "_") {
					f.named[label] = field.Value
				}
			}
		}
		for _, decl := range file.Decls {
			f.decl(decl, nil)
		}
	}
}

// former walks one file.
type former struct {
	*linter
	named map[string]ast.Expr // hidden fields of the file
}

// decl follows the labels down. A definition, or a field for every name, says
// what may be written, so it is free to do what a policy is not.
func (f *former) decl(decl ast.Decl, above []string) {
	switch decl := decl.(type) {
	case *ast.Field:
		label, _, err := ast.LabelName(decl.Label)
		if err != nil {
			label = ""
		}
		if _, every := decl.Label.(*ast.ListLit); every {
			if inPattern(above) {
				f.say(posOf(decl.Pos()), Error, "a pattern names the facts that it tests: a field for all of them tests none")
			}
			return
		}
		if strings.HasPrefix(label, "#") && !slices.Contains(patternFields, label) {
			return
		}
		if decl.Constraint == token.OPTION || decl.Constraint == token.NOT {
			f.say(posOf(decl.Label.Pos()), Error, "%s%v says what %s may be, not that it is so: write it without the %[2]v", label, decl.Constraint, label)
			return
		}
		f.value(decl.Value, append(slices.Clone(above), label))
	case *ast.EmbedDecl:
		f.value(decl.Expr, above)
	case *ast.Comprehension:
		f.value(decl.Value, above)
	case *ast.LetClause:
		f.value(decl.Expr, []string{"_" + decl.Ident.Name})
	}
}

// patternFields are the definitions that hold what a policy says.
var patternFields = []string{"#when", "#unless", "#require"}

// inPattern reports whether the labels lead into a pattern, be it one that a
// policy gives a name of its own.
func inPattern(labels []string) bool {
	for i, label := range labels {
		if slices.Contains(patternFields, label) || i > 0 && slices.Contains(familyOrder, label) {
			return true
		}
	}
	return false
}

func (f *former) value(expr ast.Expr, labels []string) {
	switch expr := expr.(type) {
	case *ast.StructLit:
		for _, decl := range expr.Elts {
			f.decl(decl, labels)
		}
	case *ast.ListLit:
		for _, element := range expr.Elts {
			f.value(element, append(slices.Clone(labels), ""))
		}
	case *ast.Comprehension:
		f.value(expr.Value, labels)
	case *ast.ParenExpr:
		f.value(expr.X, labels)
	case *ast.BinaryExpr:
		switch {
		case expr.Op == token.OR && (f.holdsStruct(expr, 0) || len(labels) > 0 && slices.Contains(patternFields, labels[len(labels)-1])):
			f.say(posOf(expr.Pos()), Error, "a choice between structs or lists: CUE drops the one that does not fit without a word; in a pattern write any: [{…}, {…}]")
		case expr.Op == token.OR && !ofTest(labels) && !hidden(labels):
			f.choice(expr)
		case expr.Op == token.OR && ofTest(labels):
			for _, member := range []ast.Expr{expr.X, expr.Y} {
				if marked, ok := member.(*ast.UnaryExpr); ok && marked.Op == token.MUL {
					f.say(posOf(marked.Pos()), Warning, "%s: a default means nothing in a test: the members count alike", strings.Join(labels[len(labels)-2:], "."))
				}
			}
		case expr.Op == token.AND:
			f.value(expr.X, labels)
			f.value(expr.Y, labels)
		}
	case *ast.CallExpr:
		if name, ok := expr.Fun.(*ast.Ident); ok && name.Name == "or" && !ofTest(labels) && !hidden(labels) {
			f.choice(expr)
		}
	case *ast.Ident:
		if named, ok := f.means(expr).(*ast.BinaryExpr); ok && named.Op == token.OR && !ofTest(labels) && !hidden(labels) {
			f.choice(named)
		}
	}
}

func (f *former) choice(expr ast.Expr) {
	f.say(posOf(expr.Pos()), Error, "a choice where one value is asked for: CUE drops what does not fit without a word; write the value")
}

// holdsStruct reports whether a struct or a list is among the members of a
// disjunction.
func (f *former) holdsStruct(expr ast.Expr, depth int) bool {
	if depth > maxReferences {
		return false
	}
	switch expr := expr.(type) {
	case *ast.StructLit, *ast.ListLit:
		return true
	case *ast.ParenExpr:
		return f.holdsStruct(expr.X, depth+1)
	case *ast.UnaryExpr:
		return expr.Op == token.MUL && f.holdsStruct(expr.X, depth+1)
	case *ast.BinaryExpr:
		return f.holdsStruct(expr.X, depth+1) || f.holdsStruct(expr.Y, depth+1)
	case *ast.Ident:
		return f.holdsStruct(f.means(expr), depth+1)
	}
	return false
}

// means is what a name stands for, nil where that is not in the file.
func (f *former) means(name *ast.Ident) ast.Expr {
	if let, ok := name.Node.(*ast.LetClause); ok {
		return let.Expr
	}
	return f.named[name.Name]
}

// hidden reports whether the labels are within a field that the package names
// for itself and what it is for shows only where it is used.
func hidden(labels []string) bool {
	return len(labels) > 0 && strings.HasPrefix(labels[0], "_") && !slices.ContainsFunc(labels[1:], func(label string) bool { return slices.Contains(decided, label) })
}

// decided are the fields that hold one value wherever they stand.
var decided = []string{"rungs", "then", "otherwise", "status", "reason", "message", "code", "name", "gates", "classes"}

// ofTest reports whether the labels lead to the test of one fact.
func ofTest(labels []string) bool {
	n := len(labels)
	if n < 2 {
		return false
	}
	family, fact := labels[n-2], labels[n-1]
	if family == "conditions" || family == "parameters" || fact == "" && slices.Contains(familyOrder, family) {
		return true
	}
	if n > 2 && family == "states" {
		family = labels[n-3] + ".states"
	}
	_, ok := facts.FieldOf(family + "." + fact)
	return ok
}
