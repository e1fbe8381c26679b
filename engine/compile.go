package engine

import (
	"errors"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/facts"
)

// families of facts that are no facts of a source.
var otherFamilies = []string{"conditions", "parameters"}

// patternOf compiles a pattern; what cannot be compiled is a finding.
func (c *compiler) patternOf(v cue.Value) *pattern {
	p := c.tree(v)
	dnf, err := c.cubesOf(p)
	if err != nil {
		c.fail(c.posOf(v), "the pattern cannot be compiled: %v", err)
	}
	p.cubes = dnf
	c.cost.Cubes += len(dnf)
	return p
}

// tree reads a pattern as it is written.
func (c *compiler) tree(v cue.Value) *pattern {
	p := &pattern{}
	c.fields(v, func(name string, value cue.Value) {
		switch {
		case name == "any" || name == "not":
			list, err := value.List()
			if err != nil {
				c.fail(c.posOf(value), "%s: %s", name, brief(err))
				return
			}
			var alternatives []*pattern
			for list.Next() {
				alternatives = append(alternatives, c.tree(list.Value()))
			}
			if name == "any" {
				p.any = alternatives
			} else {
				p.not = alternatives
			}
		default:
			c.facts(p, value, name)
		}
	})
	return p
}

// facts reads the tests of one family, or of one nested struct of it.
func (c *compiler) facts(p *pattern, v cue.Value, path string) {
	c.fields(v, func(name string, value cue.Value) {
		at := path + "." + name
		if _, fact := facts.FieldOf(at); !fact && value.IncompleteKind() == cue.StructKind && !slices.Contains(otherFamilies, path) {
			c.facts(p, value, at)
			return
		}
		l, err := c.leafOf(value, at)
		if err != nil {
			c.fail(l.pos, "%v", err)
			return
		}
		p.tests = append(p.tests, l)
	})
}

// fields calls f on the fields of a struct as they are written. A disjunction
// of structs has no one set of fields: it is a finding.
func (c *compiler) fields(v cue.Value, f func(name string, value cue.Value)) {
	if err := v.Err(); err != nil {
		c.fail(c.posOf(v), "the pattern cannot be compiled: %s", brief(err))
		return
	}
	if v.IncompleteKind() == cue.StructKind && v.Kind() != cue.StructKind {
		c.fail(c.posOf(v), "a choice between structs cannot be compiled: write any: [{…}, {…}]")
		return
	}
	it, err := v.Fields()
	if err != nil {
		c.fail(c.posOf(v), "the pattern cannot be compiled: %s", brief(err))
		return
	}
	for it.Next() {
		f(it.Selector().Unquoted(), it.Value())
	}
}

// cubesOf expands a tree.
func (c *compiler) cubesOf(p *pattern) (cubes, error) {
	out := cubes{{}}
	var err error
	for i := range p.tests {
		if p.tests[i].never {
			return nil, nil
		}
		if out, err = out.and(cubes{p.tests[i].cube}); err != nil {
			return nil, err
		}
	}
	if len(p.any) > 0 {
		either, err := c.either(p.any)
		if err != nil {
			return nil, err
		}
		if out, err = out.and(either); err != nil {
			return nil, err
		}
	}
	if len(p.not) > 0 {
		none, err := c.either(p.not)
		if err != nil {
			return nil, err
		}
		if none, err = none.not(&c.all); err != nil {
			return nil, err
		}
		if out, err = out.and(none); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *compiler) either(alternatives []*pattern) (cubes, error) {
	var out cubes
	for _, q := range alternatives {
		dnf, err := c.cubesOf(q)
		if err != nil {
			return nil, err
		}
		q.cubes = dnf
		if out, err = out.or(dnf); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// posOf finds where a value is written, in a policy if it is in one.
func (c *compiler) posOf(v cue.Value) Pos {
	best := posOf(v.Pos())
	if best.policy() {
		return best
	}
	op, args := v.Expr()
	for depth := 0; op == cue.AndOp && depth < maxReferences; depth++ {
		var deeper []cue.Value
		for _, arg := range args {
			if p := posOf(arg.Pos()); p.policy() {
				return p
			} else if best.File == "" {
				best = p
			}
			if sub, more := arg.Expr(); sub == cue.AndOp {
				deeper = append(deeper, more...)
			}
		}
		if args = deeper; len(args) == 0 {
			break
		}
	}
	return best
}

// places finds what is written at a place of a file. Files are parsed again,
// lazily, for the sake of traces: CUE's values do not keep their spelling.
type places struct {
	src   *source
	files map[string]*ast.File
	exprs map[string]map[[2]int]ast.Expr
}

func newPlaces(src *source) *places {
	return &places{src: src, files: map[string]*ast.File{}, exprs: map[string]map[[2]int]ast.Expr{}}
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
// their field.
func (p *places) file(name string) map[[2]int]ast.Expr {
	if index, ok := p.exprs[name]; ok {
		return index
	}
	index := map[[2]int]ast.Expr{}
	p.exprs[name] = index
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
		case *ast.ListLit:
			for _, element := range n.Elts {
				put(element, element)
			}
		}
		return true
	}, nil)
	return index
}

// spelled is CUE's own spelling of a value, on one line and bounded.
func spelled(v cue.Value) string {
	text := []rune(strings.Join(strings.Fields(valueText(v)), " "))
	if len(text) > 160 {
		return string(text[:159]) + "…"
	}
	return string(text)
}

var errTooManyRungs = errors.New("a ladder has at most 250 rungs")
