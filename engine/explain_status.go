package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/facts"
)

// StatusTrace tells how an operational status came about: the ladder on last
// values, and what staleness made of it. While the status is held, Rung is the
// rung that matches and was not followed; Outcome is the status that stands.
type StatusTrace struct {
	Trace
	Verdict Verdict
	Fresh   bool // as StatusFresh

	// Decisive are the conditions of the deciding rung. For `otherwise` they are
	// those that kept the rungs from matching, which nobody stores as decisive.
	Decisive []string

	Stale    []string // types that the ladder reads whose value nobody vouches for now
	NoRow    []string // of these, the ones that have no row
	PastHold []string // of these, the ones past their hold limit
}

// ExplainStatus tells what Derive decides and why, rung by rung. What a test
// says of the device is its last value, with "(no row)" or "(stale)" behind it
// where that matters.
func (b *Bundle) ExplainStatus(s *Standing) StatusTrace {
	d := b.derivation
	v := b.Derive(s)
	in := inputOf(&facts.Facts{})
	in.yes, in.unknown = d.values(&s.Masks)
	unsure := d.unsure(s)
	t := StatusTrace{
		Trace:    b.explain(b.operational, in, ^s.Present),
		Verdict:  v,
		Fresh:    b.StatusFresh(s, v),
		Stale:    b.names(unsure),
		NoRow:    b.names(unsure &^ s.Present),
		PastHold: b.names(unsure & s.PastHold),
	}
	for i := range t.Steps {
		step := &t.Steps[i]
		for j := range step.Tests {
			b.markStale(&step.Tests[j], unsure&s.Present)
		}
		if step.Failed != nil {
			b.markStale(step.Failed, unsure&s.Present)
		}
	}
	t.Outcome = v.Status.String()
	t.Rung, t.Pos = b.RungName(v), b.operational.RungPos(int(v.Rung)).Short()
	t.Held = v.Hold == Held
	t.HeldWhy = b.holdReason(s, v, d.first(in.yes, in.unknown))
	t.Decisive = b.names(v.Decisive)
	if int(v.Rung) == len(b.operational.Rungs) {
		t.Decisive = blockers(t.Steps)
	}
	return t
}

// names lists the types of a mask in the order of names.
func (b *Bundle) names(mask uint64) []string {
	var names []string
	for i := range b.types {
		if mask>>b.types[i].Bit&1 == 1 {
			names = append(names, b.types[i].Name)
		}
	}
	return names
}

func (b *Bundle) markStale(test *FieldTest, stale uint64) {
	name, ok := strings.CutPrefix(test.Path, "conditions.")
	if t, known := b.Type(name); ok && known && stale>>t.Bit&1 == 1 {
		test.Actual += " (stale)"
	}
}

// blockers lists the conditions at which the rungs stopped.
func blockers(steps []Step) []string {
	var names []string
	for _, step := range steps {
		if step.Failed == nil {
			continue
		}
		name := strings.TrimPrefix(step.Failed.Path, "conditions.")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// holdReason says why a verdict does not follow the rung that matches, and what
// it rests on instead. It is empty when it does follow.
func (b *Bundle) holdReason(s *Standing, v Verdict, rung int16) string {
	if v.Hold == Followed {
		return ""
	}
	d := b.derivation
	r := &d.rungs[rung]
	name := b.operational.RungName(int(rung))
	unsure := d.unsure(s)
	if v.Hold == PastHold {
		return fmt.Sprintf("rung %s tests %s, stale for longer than the hold limit: what rests on that is unknown", name, b.withLimits(r.tests&unsure&s.PastHold))
	}
	why := fmt.Sprintf("rung %s would make it %s, but %s", name, r.gives, b.doubt(s, r))
	before := s.Status.String()
	if s.Status.Null() {
		before = "no status"
	}
	if v.Hold == Withheld {
		return why + fmt.Sprintf("; no value of what is stale gives %s, so otherwise stands in", before)
	}
	isTrue, unknown := d.values(&s.Masks)
	past := unsure & s.PastHold
	would, by, ok := b.supposing(isTrue, unknown, unsure, func(other *derivedRung) bool {
		return other.gives == s.Status && other.tests&past == 0
	})
	if !ok {
		return why
	}
	return why + fmt.Sprintf("; %s stands, which would be right with %s (rung %s)", before, would, by)
}

// doubt says what makes a rung's outcome doubtful.
func (b *Bundle) doubt(s *Standing, r *derivedRung) string {
	d := b.derivation
	unsure := d.unsure(s)
	if r.promotes && r.rests&unsure != 0 {
		return "it rests on what is stale: " + strings.Join(b.names(r.rests&unsure), ", ")
	}
	isTrue, unknown := d.values(&s.Masks)
	would, by, _ := b.supposing(isTrue, unknown, unsure&^s.Present, func(other *derivedRung) bool { return other.gives != r.gives })
	return fmt.Sprintf("a type in scope has no row yet, and with %s rung %s would match", would, by)
}

// supposing finds values of the types in free under which a rung that is wanted
// matches, as near to the last values as it finds, and spells what it changed.
func (b *Bundle) supposing(isTrue, unknown, free uint64, wanted func(*derivedRung) bool) (would, by string, ok bool) {
	d := b.derivation
	var rungs rungSet
	for i := range d.rungs {
		if wanted(&d.rungs[i]) {
			rungs.add(int32(i))
		}
	}
	yes, blank, changed, ok := d.diagram.witness(isTrue, unknown, free, rungs)
	if !ok {
		return "", "", false
	}
	var values []string
	for i := range b.types {
		if bit := uint64(1) << b.types[i].Bit; changed&bit != 0 {
			values = append(values, b.types[i].Name+" "+[digits]string{"False", "True", "Unknown"}[digit(yes, blank, bit)])
		}
	}
	return strings.Join(values, ", "), b.operational.RungName(int(d.first(yes, blank))), true
}

// withLimits lists types with their hold limits.
func (b *Bundle) withLimits(mask uint64) string {
	var list []string
	for i := range b.types {
		if mask>>b.types[i].Bit&1 == 1 {
			list = append(list, fmt.Sprintf("%s (limit %s)", b.types[i].Name, b.types[i].HoldLimit))
		}
	}
	return strings.Join(list, ", ")
}
