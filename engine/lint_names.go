package engine

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/facts"
)

// names looks at every test of a fact or condition as it is written. CUE drops
// a member that cannot be from a disjunction, and accepts any text behind !=,
// without a word: here each is held against the values of the fact.
func (l *linter) names(values packages) {
	byPackage := map[string][]*ast.File{}
	for _, name := range l.source.paths {
		if !decides(name) {
			continue
		}
		if file, err := parser.ParseFile(name, l.source.files[name]); err == nil {
			byPackage[path.Dir(name)] = append(byPackage[path.Dir(name)], file)
		}
	}
	for _, files := range byPackage {
		n := namer{linter: l, hidden: map[string]ast.Expr{}, parameters: values["policies/workflows"]}
		for _, file := range files {
			n.learn(file)
		}
		for _, file := range files {
			for _, decl := range file.Decls {
				n.decl(decl, nil)
			}
		}
	}
}

// namer walks the files of one package.
type namer struct {
	*linter
	hidden     map[string]ast.Expr // what the package names for itself
	parameters cue.Value
}

func (n *namer) learn(file *ast.File) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.Field:
			if label, _, err := ast.LabelName(decl.Label); err == nil && strings.HasPrefix(label, "_") {
				n.hidden[label] = decl.Value
			}
		case *ast.LetClause:
			n.hidden[decl.Ident.Name] = decl.Expr
		}
	}
}

// decl follows the labels down; the last two name a family and its fact.
func (n *namer) decl(decl ast.Decl, above []string) {
	switch decl := decl.(type) {
	case *ast.Field:
		label, _, err := ast.LabelName(decl.Label)
		if err != nil {
			label = "" // computed
		}
		labels := append(slices.Clone(above), label)
		n.value(decl.Value, labels)
		if allowed := n.allowed(labels); allowed != nil && !shorthand(labels) {
			n.test(decl.Value, strings.Join(labels[len(labels)-2:], "."), allowed, 0)
		}
	case *ast.EmbedDecl:
		n.value(decl.Expr, above)
	case *ast.Comprehension:
		n.value(decl.Value, above)
	case *ast.LetClause:
		n.value(decl.Expr, nil)
	}
}

// shorthand reports whether labels lead to a field before the gates of a policy,
// eligibility.SLUG.ironic.FIELD, that is named like a fact and is none.
func shorthand(labels []string) bool {
	return len(labels) == 4 && labels[0] == "eligibility" && labels[2] == "ironic"
}

// value goes into structs and lists wherever they stand in an expression.
func (n *namer) value(expr ast.Expr, labels []string) {
	switch expr := expr.(type) {
	case *ast.StructLit:
		for _, decl := range expr.Elts {
			n.decl(decl, labels)
		}
	case *ast.ListLit:
		for _, element := range expr.Elts {
			n.value(element, nil)
		}
	case *ast.BinaryExpr:
		n.value(expr.X, labels)
		n.value(expr.Y, labels)
	case *ast.ParenExpr:
		n.value(expr.X, labels)
	case *ast.Comprehension:
		n.value(expr.Value, labels)
	}
}

// allowed lists the literals of the fact or condition that the labels lead to,
// nil where there is no closed set.
func (n *namer) allowed(labels []string) []string {
	if len(labels) < 2 {
		return nil
	}
	family, name := labels[len(labels)-2], labels[len(labels)-1]
	switch {
	case name == "":
		return nil
	case family == "conditions":
		return triValues
	case family == "parameters":
		return n.parameter(name)
	}
	field, ok := facts.FieldOf(family + "." + name)
	if !ok {
		return nil
	}
	return literalsOf(field)
}

// parameter lists the values of a parameter over all workflows that have it.
func (n *namer) parameter(name string) []string {
	var all []string
	catalogue := n.parameters.LookupPath(cue.ParsePath("workflows"))
	if !catalogue.Exists() {
		return nil
	}
	workflows, err := catalogue.Fields()
	for err == nil && workflows.Next() {
		found := workflows.Value().LookupPath(cue.MakePath(cue.Def("#parameters"), cue.Str(name)))
		if !found.Exists() {
			continue
		}
		members := closedSet(found, 0)
		if members == nil {
			return nil
		}
		all = append(all, members...)
	}
	return all
}

// closedSet lists the literals of a disjunction of texts, nil for anything else.
func closedSet(v cue.Value, depth int) []string {
	op, args := cue.Dereference(v).Expr()
	if op == cue.OrOp && depth < maxReferences {
		var all []string
		for _, arg := range args {
			members := closedSet(arg, depth+1)
			if members == nil {
				return nil
			}
			all = append(all, members...)
		}
		return all
	}
	if literal, ok := literalOf(v); ok {
		return []string{literal}
	}
	return nil
}

// test checks every literal of a test: members of disjunctions and of or([…]),
// what stands behind != and in defaults, and what the package names for itself.
func (n *namer) test(expr ast.Expr, fact string, allowed []string, depth int) {
	if depth > maxReferences {
		return
	}
	deeper := func(x ast.Expr) { n.test(x, fact, allowed, depth+1) }
	switch expr := expr.(type) {
	case *ast.BasicLit:
		n.literal(expr, fact, allowed)
	case *ast.ParenExpr:
		deeper(expr.X)
	case *ast.BinaryExpr:
		if expr.Op == token.OR || expr.Op == token.AND {
			deeper(expr.X)
			deeper(expr.Y)
		}
	case *ast.UnaryExpr:
		switch expr.Op {
		case token.NEQ:
			deeper(expr.X)
		case token.MUL:
			n.say(posOf(expr.Pos()), Warning, "%s: a default means nothing in a test: the members count alike", fact)
			deeper(expr.X)
		case token.MAT, token.NMAT:
			if !slices.Contains(allowed, anyText) { // of a text the compiler tells
				n.expression(expr, fact)
			}
		}
	case *ast.CallExpr:
		for _, arg := range expr.Args {
			if _, scalar := arg.(*ast.BasicLit); !scalar { // what a function is told is no member
				deeper(arg)
			}
		}
	case *ast.ListLit:
		for _, element := range expr.Elts {
			deeper(element)
		}
	case *ast.Ident:
		if let, ok := expr.Node.(*ast.LetClause); ok {
			deeper(let.Expr)
		} else if named, ok := n.hidden[expr.Name]; ok {
			deeper(named)
		}
	}
}

func (n *namer) literal(lit *ast.BasicLit, fact string, allowed []string) {
	text := lit.Value
	if lit.Kind == token.STRING {
		unquoted, err := literalText(lit.Value)
		if err != nil {
			return
		}
		text = strconv.Quote(unquoted)
	}
	if !admits(allowed, text) {
		n.say(posOf(lit.Pos()), Error, "%s", notAmong(text, fact, allowed))
	}
}

// expression checks a regular expression over a closed set: one that is broken
// matches nothing, in silence.
func (n *namer) expression(expr *ast.UnaryExpr, fact string) {
	lit, ok := expr.X.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return
	}
	text, err := literalText(lit.Value)
	if err != nil {
		return
	}
	if err := validExpression(text); err != nil {
		n.say(posOf(lit.Pos()), Error, "%s: bad regular expression: %v", fact, err)
	}
}

// nearest proposes the member of a list that a misspelt one is closest to.
func nearest(text string, members []string) string {
	best, least := "", 3
	for _, member := range members {
		if d := distance(text, member, least); d < least {
			best, least = member, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	if len(members) > 0 && len(members) <= 12 {
		return ": one of " + strings.Join(members, ", ")
	}
	return ""
}

// distance is the number of letters to add, drop or change between two texts,
// or limit where it is no less.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}

func literalText(lit string) (string, error) { return literal.Unquote(lit) }

func validExpression(text string) error {
	_, err := regexp.Compile(text)
	return err
}
