package engine

import (
	"fmt"
	"slices"

	"cuelang.org/go/cue"
)

// eligibility is the compiled policy of one workflow or rack operation.
type eligibility struct {
	slug  string
	pos   Pos
	gates []gate
	open  []ready // the same, with nothing of them decided
}

// gate refuses a device with its code and message unless require matches. It
// applies where when matches (if there is one) and unless does not.
type gate struct {
	code    string
	name    string
	message template
	pos     Pos
	when    *pattern
	unless  *pattern
	require *pattern
	paths   []string         // every fact, condition and parameter it asks
	tests   uint64           // mask of the conditions it asks
	bits    map[string]uint8 // of these, by path
	short   bool             // generated from a field before gates
	expects string           // what that field asks, where it is more than require; else ""
}

// shorthands tells which field of a policy each generated gate stands for, by
// the gate's code: the refusal names that field's line.
var shorthands = map[string]string{
	"device_class_not_allowed":        "classes",
	"inventory_status_not_allowed":    "inventory",
	"operational_status_not_allowed":  "operational",
	"device_in_triage":                "blockTriage",
	"custody_frozen":                  "blockCustody",
	"infrastructure_missing":          "requireInfrastructure",
	"ironic_state_not_allowed":        "ironic.states",
	"instance_missing":                "ironic.instance",
	"instance_present":                "ironic.instance",
	"maintenance_unknown":             "ironic.maintenance",
	"maintenance_set":                 "ironic.maintenance",
	"maintenance_foreign":             "ironic.maintenance",
	"enrollment_proof_missing":        "requireEnrollmentProof",
	"condition_required_unmet":        "requiredConditions",
	"condition_disqualifier_asserted": "disqualifyingConditions",
	"condition_disqualifier_unproven": "disqualifyingConditions",
}

// eligibility compiles the gates of every policy: the generated ones first, as
// reviewers read them first.
func (c *compiler) eligibility(b *Bundle, v cue.Value) {
	c.each(v, "eligibility", func(slug string, entry cue.Value) {
		e := &eligibility{slug: slug, pos: c.entryPos(entry)}
		c.parameters = entry.LookupPath(cue.MakePath(cue.Def("#parameters")))
		for _, path := range []cue.Path{cue.MakePath(cue.Def("#short")), cue.ParsePath("gates")} {
			list, err := entry.LookupPath(path).List()
			if err != nil {
				c.fail(e.pos, "eligibility.%s: %v: %s", slug, path, brief(err))
				continue
			}
			c.short = path.String() == "#short"
			for list.Next() {
				g := c.gate(slug, list.Value())
				if c.short {
					g.short = true
					c.shorthand(&g, entry)
				}
				e.gates = append(e.gates, g)
			}
		}
		c.short = false
		e.open = e.undecided()
		b.eligibility[slug] = e
	})
}

func (c *compiler) gate(slug string, v cue.Value) gate {
	g := gate{code: textOf(v, "code"), name: nameOf(v), pos: writtenAt(v.LookupPath(cue.ParsePath("code"))), message: c.template(v, "message")}
	text := c.places.holder(g.pos)
	if when := v.LookupPath(whenPath); when.Exists() {
		g.when = c.patternOf(when, text.field("#when"))
	}
	if unless := v.LookupPath(unlessPath); unless.Exists() {
		g.unless = c.patternOf(unless, text.field("#unless"))
	}
	require := v.LookupPath(requirePath)
	if !require.Exists() {
		c.fail(g.pos, "eligibility.%s: gate %s: #require is missing", slug, g.name)
		g.require = &pattern{}
		return g
	}
	g.require = c.patternOf(require, text.field("#require"))
	g.bits = map[string]uint8{}
	for _, p := range []*pattern{g.when, g.unless, g.require} {
		if p == nil {
			continue
		}
		p.walk(func(l *leaf, _ bool) {
			if !slices.Contains(g.paths, l.path) {
				g.paths = append(g.paths, l.path)
			}
			if l.condition() {
				g.bits[l.path] = l.bit
				g.tests |= 1 << l.bit
			}
		})
	}
	return g
}

// nameOf is a gate's name, its code unless the policy gives one.
func nameOf(v cue.Value) string {
	name, _ := v.LookupPath(cue.ParsePath("name")).Default()
	if text, err := name.String(); err == nil {
		return text
	}
	return textOf(v, "code")
}

// shorthand names and places a generated gate by the field it stands for; one
// that is made for a condition type is named after the type as well.
func (c *compiler) shorthand(g *gate, policy cue.Value) {
	field, ok := shorthands[g.code]
	if !ok {
		return
	}
	written := policy.LookupPath(cue.ParsePath(field))
	if p := writtenAt(written); p.policy() {
		g.pos = p
	}
	for i := range g.require.tests {
		l := &g.require.tests[i]
		l.pos = g.pos
		if !l.condition() {
			continue
		}
		if field == "disqualifyingConditions" { // two gates, for True and for Unknown, ask this together
			g.expects = `"False"`
		}
		g.name = fmt.Sprintf("%s:%s", g.code, l.path[len("conditions."):])
		for list, err := written.List(); err == nil && list.Next(); {
			if name, _ := list.Value().String(); "conditions."+name == l.path {
				if p := posOf(list.Value().Pos()); p.policy() {
					g.pos, l.pos = p, p
				}
			}
		}
	}
}
