package engine

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

// places finds what is written at a place of a file. Files are parsed again,
// lazily, for the sake of traces: CUE's values do not keep their spelling.
type places struct {
	src     *source
	files   map[string]*ast.File
	exprs   map[string]map[[2]int]ast.Expr
	holders map[string]map[[2]int]*ast.StructLit
}

func newPlaces(src *source) *places {
	return &places{src: src, files: map[string]*ast.File{}, exprs: map[string]map[[2]int]ast.Expr{}, holders: map[string]map[[2]int]*ast.StructLit{}}
}

// parsed gives the syntax of a file, nil for one that does not parse.
func (p *places) parsed(name string) *ast.File {
	file, known := p.files[name]
	if !known {
		file, _ = parser.ParseFile(name, p.src.files[name])
		p.files[name] = file
	}
	return file
}

// text gives the expression written at a place, on one line, or the value's own
// spelling where the place is not in a policy.
func (p *places) text(at Pos, v cue.Value) string {
	if at.policy() {
		if expr := p.file(at.File)[[2]int{at.Line, at.Col}]; expr != nil {
			data := p.src.files[at.File]
			from, to := expr.Pos().Offset(), expr.End().Offset()
			if from >= 0 && from < to && to <= len(data) {
				return strings.Join(strings.Fields(string(data[from:to])), " ")
			}
		}
	}
	if literal, ok := literalOf(v); ok {
		return literal
	}
	return spelled(v)
}

// file indexes the expressions of a file by the place of their value and of
// their field, and the structs by the place of their fields' values.
func (p *places) file(name string) map[[2]int]ast.Expr {
	if index, ok := p.exprs[name]; ok {
		return index
	}
	index, holders := map[[2]int]ast.Expr{}, map[[2]int]*ast.StructLit{}
	p.exprs[name], p.holders[name] = index, holders
	file := p.parsed(name)
	if file == nil {
		return index
	}
	put := func(n ast.Node, expr ast.Expr) {
		if _, nested := expr.(*ast.StructLit); nested {
			return // a test is never a struct, and one without braces begins where its test does
		}
		at := [2]int{n.Pos().Line(), n.Pos().Column()}
		if _, taken := index[at]; !taken {
			index[at] = expr
		}
	}
	ast.Walk(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			put(n.Value, n.Value)
			put(n.Label, n.Value)
		case *ast.StructLit:
			for _, element := range n.Elts {
				if field, ok := element.(*ast.Field); ok {
					holders[[2]int{field.Value.Pos().Line(), field.Value.Pos().Column()}] = n
				}
			}
		case *ast.ListLit:
			for _, element := range n.Elts {
				put(element, element)
			}
		}
		return true
	}, nil)
	return index
}

// typeOnly tells a place where nothing but a type stands, such as bool or
// null | int: what a schema says of a field, not what a policy asks of it.
func (p *places) typeOnly(at Pos) bool {
	expr := p.file(at.File)[[2]int{at.Line, at.Col}]
	return expr != nil && typeExpr(expr)
}

func typeExpr(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.Ident:
		switch e.Name {
		case "bool", "string", "int", "number", "float", "_":
			return true
		}
		return strings.HasPrefix(e.Name, "#")
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		return err == nil && strings.HasPrefix(name, "#")
	case *ast.BinaryExpr:
		null := func(x ast.Expr) bool {
			lit, ok := x.(*ast.BasicLit)
			return ok && lit.Kind == token.NULL
		}
		return e.Op == token.OR && (typeExpr(e.X) || null(e.X)) && (typeExpr(e.Y) || null(e.Y))
	}
	return false
}

// syntax is what is written for one value: none where it is not known, several
// where a field is written in parts.
type syntax []ast.Expr

// holder is the struct that holds the field whose value stands at a place: a
// rung by its name, a gate by its code.
func (p *places) holder(at Pos) syntax {
	if !at.policy() {
		return nil
	}
	p.file(at.File)
	if held := p.holders[at.File][[2]int{at.Line, at.Col}]; held != nil {
		return syntax{held}
	}
	return nil
}

// field is what is written for a field of the struct.
func (s syntax) field(name string) syntax {
	var found syntax
	for _, expr := range s {
		lit, ok := expr.(*ast.StructLit)
		if !ok {
			continue
		}
		for _, element := range lit.Elts {
			field, ok := element.(*ast.Field)
			if !ok {
				continue
			}
			if label, _, err := ast.LabelName(field.Label); err == nil && label == name {
				found = append(found, field.Value)
			}
		}
	}
	return found
}

// element is what is written for an element of the list.
func (s syntax) element(i int) syntax {
	if len(s) != 1 {
		return nil
	}
	list, ok := s[0].(*ast.ListLit)
	if !ok || i >= len(list.Elts) {
		return nil
	}
	for _, before := range list.Elts[:i+1] {
		if _, plain := before.(*ast.Comprehension); plain {
			return nil
		}
	}
	return syntax{list.Elts[i]}
}

// pos is the place of what is written, if it is one expression that is no
// struct.
func (s syntax) pos() (Pos, bool) {
	if len(s) != 1 {
		return Pos{}, false
	}
	if _, nested := s[0].(*ast.StructLit); nested {
		return Pos{}, false
	}
	return posOf(s[0].Pos()), true
}

// literalAt is what is written at a place if it is one literal.
func (p *places) literalAt(at Pos) syntax {
	if at.policy() {
		if lit, ok := p.file(at.File)[[2]int{at.Line, at.Col}].(*ast.BasicLit); ok {
			return syntax{lit}
		}
	}
	return nil
}

// literal reports whether one literal is written and nothing else.
func (s syntax) literal() bool {
	if len(s) != 1 {
		return false
	}
	_, ok := s[0].(*ast.BasicLit)
	return ok
}

// plain reports whether all of it is written at this place, in literals and
// names of the schema: then the text tells what CUE might drop.
func (s syntax) plain() bool { return len(s) == 1 && plainExpr(s[0]) }

func plainExpr(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.BasicLit:
		return true
	case *ast.ParenExpr:
		return plainExpr(e.X)
	case *ast.UnaryExpr:
		return plainExpr(e.X)
	case *ast.BinaryExpr:
		return plainExpr(e.X) && plainExpr(e.Y)
	case *ast.ListLit:
		return !slices.ContainsFunc(e.Elts, func(element ast.Expr) bool { return !plainExpr(element) })
	case *ast.CallExpr:
		name, ok := e.Fun.(*ast.Ident)
		return ok && name.Name == "or" && !slices.ContainsFunc(e.Args, func(arg ast.Expr) bool { return !plainExpr(arg) })
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		if !ok || from.Name != "schema" {
			return false
		}
		_, imported := from.Node.(*ast.ImportSpec)
		return imported
	}
	return false
}
