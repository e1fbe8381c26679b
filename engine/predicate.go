package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// predicate tests a text fact or a parameter of a submission. It is made once a
// load for every distinct test, so that equal tests are the same pointer.
type predicate struct {
	path string // of the fact or parameter
	key  string // canonical spelling of the test
	text func(*facts.Facts) facts.Text

	null, no, yes bool // what null, false and true give
	known         bool // any text passes: text is not called for its value
	str           func(string) bool
	num           func(float64) bool
}

// holds asks the predicate of the input.
func (p *predicate) holds(in *input) bool {
	if p.text == nil {
		return p.accepts(in.parameters[strings.TrimPrefix(p.path, "parameters.")])
	}
	t := p.text(in.facts)
	if !t.Known {
		return p.null
	}
	return p.known || p.str != nil && p.str(t.Value)
}

// accepts asks the predicate of a parameter, as JSON decodes it.
func (p *predicate) accepts(value any) bool {
	switch v := value.(type) {
	case nil:
		return p.null
	case bool:
		if v {
			return p.yes
		}
		return p.no
	case string:
		return p.str != nil && p.str(v)
	case float64:
		return p.num != nil && p.num(v)
	case int:
		return p.num != nil && p.num(float64(v))
	case int64:
		return p.num != nil && p.num(float64(v))
	case json.Number:
		n, err := v.Float64()
		return err == nil && p.num != nil && p.num(n)
	}
	return false
}

// scalar is what one part of a leaf says of texts and numbers.
type scalar struct {
	spelled string // canonical
	str     func(string) bool
	num     func(float64) bool
	samples []string // texts that the part names, to be asked of CUE
}

// maxReferences bounds how far a leaf is followed through references.
const maxReferences = 32

// scalarOf translates a leaf over texts or numbers. What null, true and false
// give is asked of CUE, so it is not part of the translation. An error says
// what cannot be compiled and the nearest form that can.
func scalarOf(v cue.Value, depth int) (scalar, error) {
	if depth > maxReferences {
		return scalar{}, fmt.Errorf("it refers to itself")
	}
	switch v.Kind() { // bottom where a default stands for a disjunction
	case cue.StringKind:
		text, err := v.String()
		if err != nil {
			return scalar{}, err
		}
		return scalar{spelled: fmt.Sprintf("=%q", text), str: func(s string) bool { return s == text }, samples: []string{text}}, nil
	case cue.IntKind, cue.FloatKind, cue.NumberKind:
		number, err := v.Float64()
		if err != nil {
			return scalar{}, err
		}
		return scalar{spelled: fmt.Sprintf("=%v", number), num: func(n float64) bool { return n == number }}, nil
	case cue.NullKind, cue.BoolKind:
		return scalar{spelled: "-"}, nil
	}
	op, args := v.Expr()
	switch op {
	case cue.AndOp, cue.OrOp:
		return combine(op, args, depth)
	case cue.SelectorOp, cue.IndexOp:
		target := cue.Dereference(v)
		if _, path := target.ReferencePath(); len(path.Selectors()) > 0 || target == v {
			if to, _ := target.Expr(); to == op {
				return scalar{}, fmt.Errorf("it refers to something that has no value yet: a pattern cannot compare two facts; write the value")
			}
		}
		return scalarOf(target, depth+1)
	case cue.NoOp:
		return kindOf(v)
	case cue.NotEqualOp, cue.RegexMatchOp, cue.NotRegexMatchOp, cue.LessThanOp, cue.LessThanEqualOp, cue.GreaterThanOp, cue.GreaterThanEqualOp:
		return bound(op, args[0])
	case cue.CallOp:
		return scalar{}, fmt.Errorf("the call %s cannot be compiled: write a value, a disjunction, a bound or a regular expression (=~)", strings.TrimSpace(fmt.Sprint(args[0])))
	}
	return scalar{}, fmt.Errorf("the operator %v cannot be compiled: write a value, a disjunction, a bound or a regular expression (=~)", op)
}

func combine(op cue.Op, args []cue.Value, depth int) (scalar, error) {
	parts := make([]scalar, len(args))
	spelled := make([]string, len(args))
	var all scalar
	for i, arg := range args {
		part, err := scalarOf(arg, depth+1)
		if err != nil {
			return scalar{}, err
		}
		parts[i], spelled[i] = part, part.spelled
		all.samples = append(all.samples, part.samples...)
	}
	all.spelled = fmt.Sprintf("(%s)", strings.Join(spelled, " "+op.String()+" "))
	every := op == cue.AndOp
	all.str = func(s string) bool {
		for i := range parts {
			if (parts[i].str != nil && parts[i].str(s)) != every {
				return !every
			}
		}
		return every
	}
	all.num = func(n float64) bool {
		for i := range parts {
			if (parts[i].num != nil && parts[i].num(n)) != every {
				return !every
			}
		}
		return every
	}
	return all, nil
}

// kindOf is the test of a bare type, such as string or null | string.
func kindOf(v cue.Value) (scalar, error) {
	kind := v.IncompleteKind()
	out := scalar{spelled: kind.String()}
	if kind&cue.StringKind != 0 {
		out.str = func(string) bool { return true }
	}
	switch {
	case kind&cue.NumberKind == cue.NumberKind:
		out.num = func(float64) bool { return true }
	case kind&cue.IntKind != 0:
		out.num = func(n float64) bool { return n == float64(int64(n)) }
	case kind&cue.FloatKind != 0:
		return scalar{}, fmt.Errorf("the type float cannot be compiled: write number")
	}
	return out, nil
}

func bound(op cue.Op, limit cue.Value) (scalar, error) {
	switch limit.Kind() {
	case cue.NullKind:
		if op == cue.NotEqualOp {
			return scalar{spelled: "!=null", str: func(string) bool { return true }, num: func(float64) bool { return true }}, nil
		}
	case cue.BoolKind:
		return scalar{spelled: fmt.Sprintf("%v%v", op, limit)}, nil
	case cue.StringKind:
		text, err := limit.String()
		if err != nil {
			return scalar{}, err
		}
		return textBound(op, text)
	case cue.IntKind, cue.FloatKind, cue.NumberKind:
		number, err := limit.Float64()
		if err != nil {
			return scalar{}, err
		}
		if holds := ordered(op, number); holds != nil {
			return scalar{spelled: fmt.Sprintf("%v%v", op, number), num: holds}, nil
		}
	}
	return scalar{}, fmt.Errorf("%v needs a concrete text, number or null after it", op)
}

func textBound(op cue.Op, text string) (scalar, error) {
	out := scalar{spelled: fmt.Sprintf("%v%q", op, text), samples: []string{text}}
	if op == cue.RegexMatchOp || op == cue.NotRegexMatchOp {
		expr, err := regexp.Compile(text)
		if err != nil {
			return scalar{}, fmt.Errorf("bad regular expression: %w", err)
		}
		want := op == cue.RegexMatchOp
		out.str = func(s string) bool { return expr.MatchString(s) == want }
		return out, nil
	}
	out.str = ordered(op, text)
	return out, nil
}

func ordered[T string | float64](op cue.Op, limit T) func(T) bool {
	switch op {
	case cue.NotEqualOp:
		return func(v T) bool { return v != limit }
	case cue.LessThanOp:
		return func(v T) bool { return v < limit }
	case cue.LessThanEqualOp:
		return func(v T) bool { return v <= limit }
	case cue.GreaterThanOp:
		return func(v T) bool { return v > limit }
	case cue.GreaterThanEqualOp:
		return func(v T) bool { return v >= limit }
	}
	return nil
}

// agrees asks CUE about the texts that the leaf names and texts near them, and
// reports the first on which the translation differs.
func (s *scalar) agrees(ctx *cue.Context, v cue.Value) error {
	tried := []string{"", "x", "null"}
	for _, sample := range s.samples[:min(len(s.samples), 64)] {
		tried = append(tried, sample, sample+"x", "x"+sample, strings.ToUpper(sample))
	}
	slices.Sort(tried)
	for _, text := range slices.Compact(tried) {
		ours := s.str != nil && s.str(text)
		if theirs := v.Subsume(ctx.Encode(text)) == nil; ours != theirs {
			return fmt.Errorf("it cannot be compiled: CUE and the engine differ on %q; write a disjunction of texts or a regular expression (=~)", text)
		}
	}
	return nil
}
