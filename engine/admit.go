package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhq/muster/facts"
)

// AdmitRequest is one device of one submission.
type AdmitRequest struct {
	Facts *facts.Facts
	Codes *facts.Codes // the interned Facts; nil: Admit interns them

	Conditions Masks // rows as they are stored; absent rows count as the catalogue says

	// Parameters are the submission's own, validated and with defaults filled in.
	Parameters map[string]any

	// StaleSources are the fact families whose facts are older than their TTL at
	// this device's site; StaleTypes masks the stale condition types. A gate that
	// applies and reads one of them refuses with facts_stale.
	StaleSources []string
	StaleTypes   uint64
}

// Refusal is one reason why a device is not admitted.
type Refusal struct {
	Code          string
	Name          string // of the gate; unique in its policy
	Message       string
	Path          string // the field that decided
	Actual        string // what the device has there
	Expected      string // what the policy asks, as it spells it
	ConditionType string // where a condition decided
	Pos           Pos    // of the gate
}

// Codes of refusals that no policy names.
const (
	CodeInventoryOnly = "device_inventory_only"
	CodeFactsStale    = "facts_stale"
	CodeNoPolicy      = "no_eligibility_policy"
)

// HasPolicy reports whether a workflow or rack operation has gates at all.
func (b *Bundle) HasPolicy(slug string) bool { return b.eligibility[slug] != nil }

// Policies lists the slugs that have gates, in order.
func (b *Bundle) Policies() []string {
	slugs := make([]string, 0, len(b.eligibility))
	for slug := range b.eligibility {
		slugs = append(slugs, slug)
	}
	slices.Sort(slugs)
	return slugs
}

// Admission is a policy made ready for the parameters of one submission: what
// they decide is decided once, and not again for every device. Any number of
// goroutines may use it.
type Admission struct {
	bundle *Bundle
	slug   string
	policy *eligibility // nil: there is none
	gates  []ready
}

// ready is a gate as far as the parameters leave it open.
type ready struct {
	*gate
	always  bool // it applies to every device
	when    cubes
	unless  cubes
	require cubes
}

// Admission makes a policy ready. The parameters are the submission's own,
// validated and with defaults filled in; those of the requests are taken for the
// same.
func (b *Bundle) Admission(slug string, parameters map[string]any) *Admission {
	a := &Admission{bundle: b, slug: slug, policy: b.eligibility[slug]}
	if a.policy == nil {
		return a
	}
	for _, g := range a.policy.open {
		g.require = g.require.under(parameters)
		g.unless = g.unless.under(parameters)
		if !g.always {
			g.when = g.when.under(parameters)
		}
		if !g.always && len(g.when) == 0 || g.unless.everything() {
			continue // it applies to no device
		}
		g.always = g.always || g.when.everything()
		a.gates = append(a.gates, g)
	}
	return a
}

// undecided lists the gates with nothing of them decided.
func (e *eligibility) undecided() []ready {
	gates := make([]ready, len(e.gates))
	for i := range e.gates {
		g := &e.gates[i]
		gates[i] = ready{gate: g, always: g.when == nil, require: g.require.cubes}
		if g.when != nil {
			gates[i].when = g.when.cubes
		}
		if g.unless != nil {
			gates[i].unless = g.unless.cubes
		}
	}
	return gates
}

// under leaves out what the parameters decide: a test that holds, and every
// alternative with one that does not.
func (cs cubes) under(parameters map[string]any) cubes {
	var open cubes
next:
	for i := range cs {
		c := cs[i]
		c.checks = nil
		for _, k := range cs[i].checks {
			if k.predicate.text != nil {
				c.checks = append(c.checks, k)
			} else if k.predicate.accepts(parameters[strings.TrimPrefix(k.predicate.path, "parameters.")]) != k.want {
				continue next
			}
		}
		open = append(open, c)
	}
	return open
}

// everything reports whether one alternative asks nothing.
func (cs cubes) everything() bool {
	return slices.ContainsFunc(cs, func(c cube) bool {
		return c.notTrue|c.notFalse|c.notUnknown == 0 && len(c.finite) == 0 && len(c.checks) == 0
	})
}

// Admit asks every gate of the policy and returns one refusal for each that does
// not let the device pass, in the order of the policy; nil admits. A device that
// is inventory-only is refused before any policy, and so is everything under a
// slug that has none. It allocates nothing for a device that passes and whose
// Codes are given.
func (a *Admission) Admit(r *AdmitRequest) []Refusal {
	if a.policy == nil {
		return []Refusal{{Code: CodeNoPolicy, Name: CodeNoPolicy, Message: "no policy says which devices " + a.slug + " may run on"}}
	}
	if r.Facts.Device.InventoryOnly {
		return []Refusal{{
			Code: CodeInventoryOnly, Name: CodeInventoryOnly, Message: "the device is kept for inventory only: nothing runs on it",
			Path: "device.inventory_only", Actual: "true", Expected: "false", Pos: a.policy.pos,
		}}
	}
	codes := r.Codes
	if codes == nil {
		codes = &facts.Codes{}
		r.Facts.Intern(codes)
	}
	in := input{facts: r.Facts, codes: codes, parameters: r.Parameters}
	in.yes, in.unknown = a.bundle.whole(r.Conditions)
	var refused []Refusal
	for i := range a.gates {
		g := &a.gates[i]
		if !g.always && !g.when.matches(&in) || g.unless.matches(&in) {
			continue
		}
		if stale := g.stale(r); stale != "" {
			refused = append(refused, g.refuseStale(stale))
		} else if !g.require.matches(&in) {
			refused = append(refused, a.bundle.refuse(g.gate, r))
		}
	}
	return refused
}

// Admit asks a policy about one device. Whoever asks about many of one submission
// makes the policy ready once, with Admission: that takes a third of the time.
func (b *Bundle) Admit(slug string, r *AdmitRequest) []Refusal {
	a := Admission{bundle: b, slug: slug, policy: b.eligibility[slug]}
	if a.policy != nil {
		a.gates = a.policy.open
	}
	return a.Admit(r)
}

// applies reports whether the gate speaks of a device at all.
func (g *gate) applies(in *input) bool {
	return (g.when == nil || g.when.cubes.matches(in)) && (g.unless == nil || !g.unless.cubes.matches(in))
}

// stale names the first stale fact that the gate reads, "" for none.
func (g *gate) stale(r *AdmitRequest) string {
	if len(r.StaleSources) > 0 {
		for _, path := range g.paths {
			if slices.Contains(r.StaleSources, familyOf(path)) {
				return path
			}
		}
	}
	if r.StaleTypes&g.tests != 0 {
		for _, path := range g.paths {
			if bit, ok := g.bits[path]; ok && r.StaleTypes>>bit&1 == 1 {
				return path
			}
		}
	}
	return ""
}

func (g *gate) refuseStale(path string) Refusal {
	refusal := Refusal{
		Code: CodeFactsStale, Name: g.name, Path: path, Actual: "stale", Expected: "fresh", Pos: g.pos,
		Message: "the gate " + g.name + " rests on " + path + ", which has not been read lately: try again when its source answers",
	}
	refusal.ConditionType, _ = strings.CutPrefix(path, "conditions.")
	if refusal.ConditionType == path {
		refusal.ConditionType = ""
	}
	return refusal
}

// refuse tells what the gate asked and what the device has. It takes its own
// copy of the input, so that a device that passes costs no allocation.
func (b *Bundle) refuse(g *gate, r *AdmitRequest) Refusal {
	in := inputOf(r.Facts)
	in.parameters = r.Parameters
	in.yes, in.unknown = b.whole(r.Conditions)
	refusal := Refusal{Code: g.code, Name: g.name, Message: g.message.render(r.Facts, maxMessage), Pos: g.pos}
	_, failed := b.tests(g.require, in, ^r.Conditions.Present)
	if failed == nil {
		return refusal
	}
	refusal.Path, refusal.Actual, refusal.Expected = failed.Path, failed.Actual, cmp.Or(g.expects, failed.Want)
	if name, ok := strings.CutPrefix(failed.Path, "conditions."); ok {
		refusal.ConditionType = name
	}
	return refusal
}

// GateTrace is one gate of an explained admission.
type GateTrace struct {
	Code, Name string
	Pos        string
	Applies    bool // its #when holds and its #unless does not
	Passed     bool
	When       []FieldTest
	Unless     []FieldTest
	Require    []FieldTest
	Refusal    *Refusal
}

// ExplainAdmission traces every gate of a policy, the ones that pass and the
// ones that do not apply included.
func (b *Bundle) ExplainAdmission(slug string, r *AdmitRequest) []GateTrace {
	policy := b.eligibility[slug]
	if policy == nil {
		return nil
	}
	in := inputOf(r.Facts)
	in.parameters = r.Parameters
	in.yes, in.unknown = b.whole(r.Conditions)
	absent := ^r.Conditions.Present
	traces := make([]GateTrace, 0, len(policy.gates))
	for i := range policy.gates {
		g := &policy.gates[i]
		trace := GateTrace{Code: g.code, Name: g.name, Pos: g.pos.Short(), Applies: true}
		if g.when != nil {
			var miss *FieldTest
			trace.When, miss = b.tests(g.when, in, absent)
			trace.Applies = miss == nil
		}
		if g.unless != nil {
			var miss *FieldTest
			trace.Unless, miss = b.tests(g.unless, in, absent)
			trace.Applies = trace.Applies && miss != nil
		}
		var miss *FieldTest
		trace.Require, miss = b.tests(g.require, in, absent)
		trace.Passed = !trace.Applies || miss == nil
		if trace.Applies {
			if stale := g.stale(r); stale != "" {
				refusal := g.refuseStale(stale)
				trace.Passed, trace.Refusal = false, &refusal
			} else if miss != nil {
				refusal := b.refuse(g, r)
				trace.Refusal = &refusal
			}
		}
		traces = append(traces, trace)
	}
	return traces
}
