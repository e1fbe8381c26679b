package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/engine"
)

// page collects lines; the first error of the writer ends the writing.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Write prints an explanation for people. Verbose prints every ladder, not the
// operational one alone.
func (e *Explanation) Write(w io.Writer, verbose bool) error {
	p := &page{w: w}
	id := ""
	if e.Device.ID != 0 {
		id = fmt.Sprintf(", device %d", e.Device.ID)
	}
	p.line("%s (site %s%s)", Line(e.Device.Name), e.Device.Site, id)
	e.headline(p)
	p.line("  by policy %s, at %s", Short(e.BundleVersion), e.At.UTC().Format("2006-01-02 15:04:05 MST"))
	if e.Operational != nil {
		p.line("\nwhy %s: every rung of %s in order", e.Operational.Outcome, e.Operational.Ladder)
		p.steps(&e.Operational.Trace)
	}
	if p.err == nil {
		p.err = e.conditions(w)
	}
	p.line("")
	p.axis("health", e.Health)
	p.axis("customer ready", e.CustomerReady)
	p.axis("class", e.Class)
	p.axis("inventory", e.Inventory)
	e.unread(p)
	e.sources(p)
	if verbose {
		e.ladders(p)
	}
	return p.err
}

// headline says the status, by which rung, and how far it can be relied on.
func (e *Explanation) headline(p *page) {
	rung := ""
	if e.Rung != nil {
		rung = " by rung " + *e.Rung
		if e.Operational != nil && !e.Held && *e.Rung == e.Operational.Rung {
			rung += " (" + e.Operational.Pos + ")"
		}
	}
	p.line("  %s%s", e.Status, rung)
	switch {
	case !e.Derived:
		p.line("  nobody who has a say in the status speaks of this device: it is not derived")
	case e.Frozen:
		p.line("  FROZEN: the status is left as it is (%s)", e.frozenBy())
	}
	if o := e.Operational; o != nil {
		p.standing(o)
		switch {
		case e.StatusFresh:
			p.line("  nothing stale has a say in it")
		default:
			p.line("  NOT FRESH: it rests on what nobody vouches for now")
		}
	}
}

func (e *Explanation) frozenBy() string {
	if e.Freeze == nil {
		return "by a hold"
	}
	return "rung " + e.Freeze.Rung + ", " + e.Freeze.Pos
}

// standing says what staleness made of a status.
func (p *page) standing(o *StatusTrace) {
	// While a status is held the rung that matches decides nothing: the marks
	// in the table show what the rung that last gave the status was decided by.
	if len(o.Decisive) > 0 && o.Hold != engine.Held.String() {
		p.line("  decided by %s", strings.Join(o.Decisive, ", "))
	}
	if o.HeldWhy != nil {
		p.line("  %s: %s", strings.ToUpper(o.Hold), *o.HeldWhy)
	}
	if len(o.Stale) > 0 {
		p.line("  stale: %s", strings.Join(marked(o.Stale, o.NoRow, o.PastHold), ", "))
	}
}

// marked adds to stale types what else is to be said of them.
func marked(types, noRow, pastHold []string) []string {
	out := make([]string, len(types))
	for i, name := range types {
		out[i] = name
		if slices.Contains(noRow, name) {
			out[i] += " (never read)"
		}
		if slices.Contains(pastHold, name) {
			out[i] += " (past its hold limit)"
		}
	}
	return out
}

// steps prints a trace: a rung that did not match with the test that failed,
// the one that did with all of its tests, the others by name.
func (p *page) steps(t *Trace) {
	var skipped []string
	for i := range t.Steps {
		s := &t.Steps[i]
		switch {
		case s.Skipped:
			skipped = append(skipped, s.Rung)
		case s.Matched:
			p.line("  ✓ %s → %s   %s", s.Rung, s.Then, s.Pos)
			for _, test := range s.Tests {
				if test.Matched {
					p.line("      %s%s is %s", in(test.In), test.Path, Line(test.Actual))
				}
			}
		default:
			p.line("  – %s → %s   %s", s.Rung, s.Then, s.Pos)
			if f := s.Failed; f != nil {
				p.line("      %s%s is %s, the rung wants %s   %s", in(f.In), f.Path, Line(f.Actual), f.Want, f.Pos)
			}
		}
	}
	if len(skipped) > 0 {
		p.line("  · not asked any more: %s", strings.Join(skipped, ", "))
	}
}

func in(where string) string {
	if where == "" {
		return ""
	}
	return where + ": "
}

// conditions prints the types in scope, the decisive ones first.
func (e *Explanation) conditions(w io.Writer) error {
	shown := slices.DeleteFunc(slices.Clone(e.Conditions), func(c ConditionTrace) bool { return !c.InScope && !c.HasRow && !c.Decisive })
	slices.SortStableFunc(shown, func(a, b ConditionTrace) int {
		switch {
		case a.Decisive == b.Decisive:
			return strings.Compare(a.Type, b.Type)
		case a.Decisive:
			return -1
		}
		return 1
	})
	var rows [][]string
	for i := range shown {
		c := &shown[i]
		name := c.Type
		if c.Decisive {
			name = "* " + name
		}
		status := c.Status
		if !c.HasRow {
			status += " (no row)"
		}
		read := "-"
		if c.Observed != nil {
			read = Age(*c.Observed, e.At)
		}
		if c.Stale != nil {
			read += " STALE " + *c.Stale
		}
		rung := ""
		if c.Emission != nil {
			rung = c.Emission.Rung + " " + c.Emission.Pos
		}
		rows = append(rows, []string{name, status, text(c.Reason), read, rung, text(c.Message)})
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return Table(w, []string{"CONDITION (* decisive)", "STATUS", "REASON", "READ", "EMITTED BY", "MESSAGE"}, rows)
}

func text(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

// axis prints one line of another ladder.
func (p *page) axis(name string, t *Trace) {
	if t != nil {
		p.line("%s: %s by rung %s (%s)", name, t.Outcome, t.Rung, t.Pos)
	}
}

// unread prints what good readings did not give.
func (e *Explanation) unread(p *page) {
	for _, writer := range e.Writers {
		for _, name := range slices.Sorted(maps.Keys(writer.Unread)) {
			u := writer.Unread[name]
			p.line("unread: %s of %s: %s, since %s", name, writer.Writer, u.Reason, Age(u.Since, e.At))
		}
	}
}

func (e *Explanation) sources(p *page) {
	for _, s := range e.Sources {
		ref := "never listed it"
		switch {
		case s.Ref != nil && s.RefGone:
			ref = "lists it no more, it was " + Line(*s.Ref)
		case s.Ref != nil:
			ref = "knows it as " + Line(*s.Ref)
		}
		line := fmt.Sprintf("source %s: %s, changed %s", s.Source, ref, Age(s.SeenAt, e.At))
		if s.ReadAt != nil {
			line += ", read " + Age(*s.ReadAt, e.At)
		}
		if s.Stale {
			line += ", STALE"
		}
		if s.Failing != nil {
			line += ", failing since " + Age(*s.Failing, e.At)
		}
		if s.Unread != nil {
			line += ", unread: " + s.Unread.Reason
		}
		p.line("%s", line)
	}
}

// ladders prints the other ladders whole.
func (e *Explanation) ladders(p *page) {
	more := []*Trace{e.Health, e.Freeze, e.CustomerReady, e.Class, e.Inventory}
	for i := range e.Writers {
		more = append(more, e.Writers[i].Scope)
	}
	for i := range e.Conditions {
		if e.Conditions[i].InScope {
			more = append(more, e.Conditions[i].Emission)
		}
	}
	for _, t := range more {
		if t != nil {
			p.line("\n%s: %s", t.Ladder, t.Outcome)
			p.steps(t)
		}
	}
}

// Write prints a replayed event for people.
func (r *Replay) Write(w io.Writer) error {
	p := &page{w: w}
	before := ""
	if r.Event.StatusBefore != nil {
		before = ", before " + *r.Event.StatusBefore
	}
	p.line("event %d of device %d: %s became %s%s, at %s", r.Event.ID, r.Event.DeviceID, r.Event.Kind, r.Event.Value, before,
		r.Event.CreatedAt.UTC().Format("2006-01-02 15:04:05 MST"))
	if r.Event.BundleVersion != nil {
		p.line("  by policy %s", Short(*r.Event.BundleVersion))
	}
	if r.Operational == nil {
		p.line("  no ladder of the status gave it: there is nothing to replay")
		return p.err
	}
	p.standing(r.Operational)
	p.line("\nwhy %s: every rung of %s in order, as the policy was", r.Operational.Outcome, r.Operational.Ladder)
	p.steps(&r.Operational.Trace)
	return p.err
}

// Short is a version as people read it.
func Short(version string) string {
	hash := strings.TrimPrefix(version, "sha256:")
	return hash[:min(12, len(hash))]
}
