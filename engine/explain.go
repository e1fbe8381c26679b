package engine

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/facts"
)

// Trace tells how a ladder came to its outcome: every rung in order, with what
// it asked and what the device has.
type Trace struct {
	Ladder  string
	Outcome string
	Rung    string // the rung that decided, or "otherwise"
	Pos     string // file:line of that rung
	Reason  string // of an emission: the rendered texts
	Message string
	Held    bool   // the status was not changed although the rung says otherwise
	HeldWhy string // why it was held, or why a held one was given up
	Steps   []Step
}

// Step is one rung of a trace.
type Step struct {
	Rung    string
	Pos     string // file:line
	Then    string
	Matched bool
	Skipped bool // an earlier rung had decided; Matched says nothing then
	Failed  *FieldTest
	Tests   []FieldTest
}

// FieldTest is one question that a rung or gate asks.
type FieldTest struct {
	Path    string
	Want    string // as the policy spells it
	Actual  string // a condition without a row says so
	Pos     string // file:line
	Matched bool

	// In tells where the test stands: "" beside the others, "any 2" in the
	// second alternative of which one must hold, "not 1" in the first of those
	// of which none may.
	In string
}

// explain traces a ladder. absent marks the conditions that have no row.
func (b *Bundle) explain(l *Ladder, in *input, absent uint64) Trace {
	decided := l.first(in)
	t := Trace{Ladder: l.Name, Rung: l.RungName(decided), Pos: l.RungPos(decided).Short(), Outcome: l.Gives[decided]}
	for i := range l.Rungs {
		rung := &l.Rungs[i]
		step := Step{Rung: rung.Name, Pos: rung.Pos.Short(), Then: l.Gives[i], Skipped: i > decided}
		step.Tests, step.Failed = b.tests(rung.pattern, in, absent)
		step.Matched = step.Failed == nil
		t.Steps = append(t.Steps, step)
	}
	t.Steps = append(t.Steps, Step{
		Rung:    otherwise,
		Pos:     l.otherwisePos.Short(),
		Then:    l.Gives[len(l.Rungs)],
		Matched: decided == len(l.Rungs),
		Skipped: decided < len(l.Rungs),
	})
	return t
}

// tests lists what a pattern asks, and the first test that kept it from
// matching, nil if none did. Of any it is the test at which the alternative
// stopped that got furthest, of not the first test of the one that holds.
func (b *Bundle) tests(p *pattern, in *input, absent uint64) (all []FieldTest, failed *FieldTest) {
	for i := range p.tests {
		all = append(all, b.test(&p.tests[i], in, absent, ""))
		if test := all[len(all)-1]; !test.Matched && failed == nil {
			failed = &test
		}
	}
	var nearest *FieldTest
	furthest, some := -1, len(p.any) == 0
	for k, q := range p.any {
		tests, miss := b.tests(q, in, absent)
		all = append(all, within(tests, fmt.Sprintf("any %d", k+1))...)
		if miss == nil {
			some = true
		} else if got := passed(tests); got > furthest {
			one := *miss
			one.In = strings.TrimSpace(fmt.Sprintf("any %d %s", k+1, one.In))
			furthest, nearest = got, &one
		}
	}
	if !some && failed == nil {
		failed = nearest
	}
	for k, q := range p.not {
		tests, miss := b.tests(q, in, absent)
		tests = within(tests, fmt.Sprintf("not %d", k+1))
		all = append(all, tests...)
		if miss == nil && failed == nil {
			if len(tests) == 0 {
				failed = &FieldTest{Want: "not {}", In: fmt.Sprintf("not %d", k+1)}
				continue
			}
			one := tests[0]
			one.Want = "not " + one.Want
			failed = &one
		}
	}
	return all, failed
}

func within(tests []FieldTest, where string) []FieldTest {
	for i := range tests {
		tests[i].In = strings.TrimSpace(where + " " + tests[i].In)
	}
	return tests
}

func passed(tests []FieldTest) int {
	n := 0
	for _, t := range tests {
		if t.Matched {
			n++
		}
	}
	return n
}

func (b *Bundle) test(l *leaf, in *input, absent uint64, where string) FieldTest {
	return FieldTest{
		Path:    l.path,
		Want:    l.want,
		Actual:  b.actual(l, in, absent),
		Pos:     l.pos.Short(),
		Matched: l.matches(in),
		In:      where,
	}
}

// actual spells what the device has at a leaf's path.
func (b *Bundle) actual(l *leaf, in *input, absent uint64) string {
	switch {
	case l.condition():
		value := "False"
		if in.yes>>l.bit&1 == 1 {
			value = "True"
		} else if in.unknown>>l.bit&1 == 1 {
			value = "Unknown"
		}
		if absent>>l.bit&1 == 1 {
			value += " (no row)"
		}
		return value
	case strings.HasPrefix(l.path, "parameters."):
		value, ok := in.parameters[strings.TrimPrefix(l.path, "parameters.")]
		if !ok || value == nil {
			return "null"
		}
		return fmt.Sprint(value)
	case in.facts == nil:
		return "null"
	}
	return in.facts.Value(l.path)
}

// ExplainCondition traces the emission of a condition type. It reports false
// for a type that the engine does not emit.
func (b *Bundle) ExplainCondition(name string, f *facts.Facts) (Trace, bool) {
	t, ok := b.byName[name]
	if !ok || t.Emission == nil {
		return Trace{}, false
	}
	in := inputOf(f)
	trace := b.explain(t.Emission, in, 0)
	trace.Reason, trace.Message = b.Texts(t.Bit, int16(t.Emission.first(in)), f)
	return trace, true
}

// ExplainHealth traces the health status.
func (b *Bundle) ExplainHealth(f *facts.Facts) Trace { return b.explain(b.health, inputOf(f), 0) }

// ExplainFreeze traces whether the operational status is left as it is.
func (b *Bundle) ExplainFreeze(f *facts.Facts) Trace { return b.explain(b.freeze, inputOf(f), 0) }

// ExplainCustomerReady traces the column customer_ready.
func (b *Bundle) ExplainCustomerReady(f *facts.Facts) Trace {
	return b.explain(b.customerReady, inputOf(f), 0)
}

// ExplainScope traces whether a writer speaks of a device. It reports false for
// a writer that has no scope.
func (b *Bundle) ExplainScope(writer int, f *facts.Facts, m Masks) (Trace, bool) {
	w := &b.writerList[writer]
	if w.Scope == nil {
		return Trace{}, false
	}
	in := inputOf(f)
	in.yes, in.unknown = b.whole(m)
	return b.explain(w.Scope, in, ^m.Present), true
}

// ExplainInventory traces the two axes that an inventory source gives. It
// reports false for a source that the policies do not map.
func (b *Bundle) ExplainInventory(source string, f *facts.Facts) (class, status Trace, ok bool) {
	axes, ok := b.inventory[source]
	if !ok {
		return Trace{}, Trace{}, false
	}
	in := inputOf(f)
	return b.explain(axes.class, in, 0), b.explain(axes.status, in, 0), true
}

// inputOf interns facts for one question.
func inputOf(f *facts.Facts) *input {
	in := &input{facts: f, codes: &facts.Codes{}}
	f.Intern(in.codes)
	return in
}
