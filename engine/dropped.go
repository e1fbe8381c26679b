package engine

import (
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// anyText stands for every text in a list of literals.
const anyText = `"…"`

// triValues are the literals of a condition.
var triValues = []string{`"True"`, `"False"`, `"Unknown"`}

// literalsOf lists the literals that a fact may be.
func literalsOf(field facts.Field) []string {
	list := field.Values
	if field.Kind == facts.KindText {
		list = []string{anyText}
	}
	if field.Nullable {
		list = append([]string{"null"}, list...)
	}
	return list
}

// admits reports whether a literal is one of a list.
func admits(allowed []string, literal string) bool {
	for _, a := range allowed {
		if a == literal || a == anyText && strings.HasPrefix(literal, `"`) {
			return true
		}
	}
	return false
}

// dropped tells of the members of a test that the fact can never be. CUE drops
// such a member from a disjunction without a word, and accepts any behind !=,
// wherever it is written: what a name stands for is followed.
func (c *compiler) dropped(v cue.Value, l *leaf, allowed []string) {
	c.choices(v, false, 0, func(literal string, member cue.Value) {
		if !admits(allowed, literal) {
			c.findings = append(c.findings, findingAt(memberPos(member, l), Error, "%s", notAmong(literal, l.path, allowed)))
		}
	})
}

// droppedParameter is dropped for a parameter, whose type the workflow gives.
func (c *compiler) droppedParameter(v cue.Value, l *leaf) {
	kind := c.parameters.LookupPath(cue.MakePath(cue.Str(strings.TrimPrefix(l.path, "parameters.")).Optional()))
	if !kind.Exists() {
		return
	}
	c.choices(v, false, 0, func(literal string, member cue.Value) {
		if !c.accepts(kind, member) {
			c.findings = append(c.findings, findingAt(memberPos(member, l), Error, "%s is no value of %s", literal, l.path))
		}
	})
}

func memberPos(member cue.Value, l *leaf) Pos {
	if at := posOf(member.Pos()); at.policy() {
		return at
	}
	return l.pos
}

// choices calls f with every literal that stands in a disjunction or behind !=.
func (c *compiler) choices(v cue.Value, member bool, depth int, f func(literal string, member cue.Value)) {
	if depth > maxReferences {
		return
	}
	if literal, ok := literalOf(v); ok && member {
		f(literal, v)
		return
	}
	op, args := v.Expr()
	switch op {
	case cue.AndOp:
		for _, arg := range args {
			if at := posOf(arg.Pos()); at.policy() { // what the schema says is what the fact may be
				c.choices(arg, false, depth+1, f)
			}
		}
	case cue.OrOp, cue.NotEqualOp:
		for _, arg := range args {
			c.choices(arg, true, depth+1, f)
		}
	case cue.SelectorOp, cue.IndexOp:
		if target := cue.Dereference(v); target != v {
			if to, _ := target.Expr(); to != op {
				c.choices(target, member, depth+1, f)
			}
		}
	}
}

// notAmong says that a fact never has a value.
func notAmong(literal, fact string, allowed []string) string {
	if literal == "null" {
		return fact + " is never null"
	}
	return literal + " is no value of " + fact + nearest(literal, allowed)
}
