package engine

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
)

// joins finds patterns that compare two facts, or that test a fact in an `if`:
// CUE would evaluate either on the pattern, not on the facts, so it would not
// mean what it says. It is seen in the text only: a reference inside a pattern
// to a field of the same pattern.
func (c *compiler) joins() {
	for _, name := range c.src.paths {
		if !decides(name) {
			continue
		}
		file := c.places.parsed(name)
		if file == nil {
			continue
		}
		ast.Walk(file, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && holdsPattern(field) {
				c.joinsIn(field)
			}
			return true
		}, nil)
	}
}

// holdsPattern tells fields that are patterns: those of rungs and gates, and
// hidden ones, which is how policies share patterns.
func holdsPattern(field *ast.Field) bool {
	name, _, err := ast.LabelName(field.Label)
	return err == nil && (slices.Contains([]string{"#when", "#unless", "#require"}, name) || strings.HasPrefix(name, "_"))
}

func (c *compiler) joinsIn(pattern *ast.Field) {
	inside := func(n ast.Node) bool {
		return n.Pos().Offset() >= pattern.Value.Pos().Offset() && n.End().Offset() <= pattern.Value.End().Offset()
	}
	ast.Walk(pattern.Value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			// A label is no reference, unless it is computed.
			if _, plain := n.Label.(*ast.Ident); plain {
				ast.Walk(n.Value, c.reference(inside), nil)
				return false
			}
		case *ast.Ident:
			c.reference(inside)(n)
		}
		return true
	}, nil)
}

// reference reports identifiers that resolve to a fact of the same pattern.
func (c *compiler) reference(inside func(ast.Node) bool) func(ast.Node) bool {
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, plain := n.Label.(*ast.Ident); plain {
				ast.Walk(n.Value, visit, nil)
				return false
			}
		case *ast.Ident:
			plainName := !strings.HasPrefix(n.Name, "#") && !strings.HasPrefix(n.Name, "_")
			switch n.Node.(type) {
			case nil, *ast.LetClause, *ast.ImportSpec, *ast.File:
				return true
			}
			if _, loop := n.Scope.(*ast.ForClause); loop {
				return true
			}
			if plainName && n.Node.Pos().IsValid() && inside(n.Node) {
				c.fail(posOf(n.Pos()), "a pattern cannot compare two facts: %s is a fact of the same pattern; write the value, or ask for a derived fact", n.Name)
			}
		}
		return true
	}
	return visit
}
