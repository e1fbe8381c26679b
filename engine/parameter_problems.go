package engine

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
)

// maxLooks bounds how often parameters are looked at again: a problem may stand
// behind another one, and that behind a third.
const maxLooks = 4

// problems are those of one submission, one for each place that has any.
type problems struct {
	ctx        *cue.Context
	definition cue.Value
	given      cue.Value
	all        []Problem
	seen       map[string]bool
}

// trouble is where CUE found a problem.
type trouble struct {
	labels  []string
	unknown bool // nothing of that name is asked there
}

// problemsOf makes of CUE's errors, several to a field, one problem for each
// place that has any. Expr is what was given, and is changed.
func problemsOf(ctx *cue.Context, definition cue.Value, expr ast.Expr, given cue.Value, err error) []Problem {
	ps := &problems{ctx: ctx, definition: definition, given: given, seen: map[string]bool{}}
	places := ps.add(err, false)
	// CUE looks for names that it does not know only where the values fit, and for
	// what is missing only where the names do: what it found is put aside, and it
	// looks again.
	for range maxLooks {
		changed := false
		for _, p := range places {
			changed = aside(expr, p.labels, p.unknown) || changed
		}
		if !changed {
			break
		}
		places = ps.add(definition.Unify(ctx.BuildExpr(expr)).Validate(cue.Concrete(true), cue.All()), true)
	}
	slices.SortFunc(ps.all, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	// Of a list or struct that fails by its parts the parts are told.
	return slices.DeleteFunc(slices.Clone(ps.all), func(p Problem) bool {
		return slices.ContainsFunc(ps.all, func(other Problem) bool {
			return p.Path != "" && strings.HasPrefix(other.Path, p.Path+".")
		})
	})
}

// add takes the problems of places that had none yet; with names those alone
// that do not rest on the values of others: unknown names, and what is missing.
// It gives every place that err speaks of.
func (ps *problems) add(err error, names bool) []trouble {
	var places []trouble
	for _, one := range cueerrors.Errors(err) {
		labels := slices.DeleteFunc(slices.Clone(one.Path()), func(label string) bool { return label == parametersDef })
		p := problemAt(ps.ctx, ps.definition, ps.given, labels, one)
		if len(labels) > 0 && strings.HasPrefix(labels[0], "_") {
			labels = []string{p.Path}
		}
		unknown := unknownName(one)
		places = append(places, trouble{labels, unknown})
		if !ps.seen[p.Path] && (!names || unknown || ps.missing(labels)) {
			ps.seen[p.Path] = true
			ps.all = append(ps.all, p)
		}
	}
	return places
}

// missing reports whether nothing was given at a place, although what it lies in
// was and has no problem itself.
func (ps *problems) missing(labels []string) bool {
	for depth := range labels {
		if ps.seen[strings.Join(labels[:depth], ".")] {
			return false
		}
	}
	return len(labels) > 0 && !ps.given.LookupPath(pathOf(labels)).Exists()
}

func unknownName(err cueerrors.Error) bool {
	format, _ := err.Msg()
	return strings.HasPrefix(format, "field not allowed")
}

// aside lets the value at a place be anything, and takes a name that is unknown
// away; false where that is so already, or nothing was given there.
func aside(expr ast.Expr, labels []string, unknown bool) (changed bool) {
	if len(labels) == 0 {
		return false
	}
	free := func(value *ast.Expr) {
		if len(labels) > 1 {
			changed = aside(*value, labels[1:], unknown) || changed
		} else if name, ok := (*value).(*ast.Ident); !ok || name.Name != "_" {
			*value, changed = ast.NewIdent("_"), true
		}
	}
	switch node := expr.(type) {
	case *ast.ListLit:
		for i := range node.Elts {
			if strconv.Itoa(i) == labels[0] {
				free(&node.Elts[i])
			}
		}
	case *ast.StructLit:
		name := labels[0]
		if text, err := literalText(name); err == nil {
			name = text
		}
		node.Elts = slices.DeleteFunc(node.Elts, func(element ast.Decl) bool {
			field, ok := element.(*ast.Field)
			if !ok {
				return false
			}
			if label, _, err := ast.LabelName(field.Label); err != nil || label != name {
				return false
			}
			if unknown && len(labels) == 1 {
				changed = true
				return true
			}
			free(&field.Value)
			return false
		})
	}
	return changed
}
