package engine

import (
	"errors"
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// families of facts that are no facts of a source.
var otherFamilies = []string{"conditions", "parameters"}

// patternOf compiles a pattern; what cannot be compiled is a finding. text is
// where it is written, as far as that is known.
func (c *compiler) patternOf(v cue.Value, text syntax) *pattern {
	p := c.tree(v, text)
	dnf, err := c.cubesOf(p)
	if err != nil {
		c.fail(c.posOf(v), "the pattern cannot be compiled: %v", err)
	}
	p.cubes = dnf
	c.cost.Cubes += len(dnf)
	return p
}

// tree reads a pattern as it is written.
func (c *compiler) tree(v cue.Value, text syntax) *pattern {
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
				alternatives = append(alternatives, c.tree(list.Value(), text.field(name).element(len(alternatives))))
			}
			if name == "any" {
				p.any = alternatives
			} else {
				p.not = alternatives
			}
		default:
			c.facts(p, value, name, text.field(name))
		}
	})
	return p
}

// facts reads the tests of one family, or of one nested struct of it.
func (c *compiler) facts(p *pattern, v cue.Value, path string, text syntax) {
	c.fields(v, func(name string, value cue.Value) {
		at := path + "." + name
		if _, fact := facts.FieldOf(at); !fact && value.IncompleteKind() == cue.StructKind && !slices.Contains(otherFamilies, path) {
			c.facts(p, value, at, text.field(name))
			return
		}
		l, err := c.leafOf(value, at, text.field(name))
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
	it, err := v.Fields(cue.Hidden(true), cue.Definitions(true))
	if err != nil {
		c.fail(c.posOf(v), "the pattern cannot be compiled: %s", brief(err))
		return
	}
	for it.Next() {
		if selector := it.Selector(); selector.LabelType() == cue.StringLabel {
			f(selector.Unquoted(), it.Value())
		} else {
			c.fail(c.posOf(it.Value()), "%s is no test: a pattern holds nothing but facts to be tested", selector)
		}
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

// posOf finds where a value is written, in a policy if it is in one. Of a test
// that is a type and a choice from it, that is the choice.
func (c *compiler) posOf(v cue.Value) Pos {
	best := posOf(v.Pos())
	if best.policy() && !c.places.typeOnly(best) {
		return best
	}
	var written []Pos
	op, args := v.Expr()
	for depth := 0; op == cue.AndOp && depth < maxReferences; depth++ {
		var deeper []cue.Value
		for _, arg := range args {
			if p := posOf(arg.Pos()); p.policy() {
				written = append(written, p)
			} else if best.File == "" {
				best = p
			}
			if sub, more := arg.Expr(); sub == cue.AndOp {
				deeper = append(deeper, more...)
			}
		}
		if args = deeper; len(args) == 0 || len(written) > 0 {
			break
		}
	}
	for i, p := range written {
		if i == len(written)-1 || !c.places.typeOnly(p) {
			return p
		}
	}
	return best
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
