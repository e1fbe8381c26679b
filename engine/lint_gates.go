package engine

import "github.com/musterhq/muster/facts"

// gates checks every gate of every policy.
func (l *linter) gates() {
	for _, e := range l.bundle.eligibility {
		l.gatesTogether(e)
		for i := range e.gates {
			g := &e.gates[i]
			l.gateDecides(e.slug, g)
			if !g.generated() {
				l.gateIsClosed(e.slug, g)
			}
		}
	}
}

// generated reports whether the gate is one of a pair that a field before gates
// stands for, of which each admits what the other refuses: the condition is set
// or Unknown, the node in maintenance or nobody knows.
func (g *gate) generated() bool {
	switch g.code {
	case "condition_disqualifier_asserted", "condition_disqualifier_unproven", "maintenance_set", "maintenance_foreign":
		return g.short
	}
	return false
}

// gatesTogether tells of two gates of one name, and of gates that apply to
// every device and together admit none.
func (l *linter) gatesTogether(e *eligibility) {
	named := map[string]bool{}
	admitted, known := cubes{{}}, true
	for i := range e.gates {
		g := &e.gates[i]
		if named[g.name] {
			l.say(g.pos, Error, "eligibility.%s has two gates named %s: name one of them otherwise, or leave it out", e.slug, g.name)
		}
		named[g.name] = true
		if g.when != nil || g.unless != nil || !known {
			continue
		}
		if admitted, known = l.space.meet(admitted, l.space.within(g.require.cubes)); known && len(admitted) == 0 {
			l.say(g.pos, Error, "eligibility.%s admits no device: gate %s refuses whatever the gates before it admit", e.slug, g.name)
			known = false
		}
	}
}

// gateDecides tells of a gate that always refuses where it applies, never does,
// or never applies.
func (l *linter) gateDecides(slug string, g *gate) {
	applies, ok := cubes{{}}, true
	if g.when != nil {
		applies = l.space.within(g.when.cubes)
	}
	if g.unless != nil {
		applies, ok = l.space.minus(applies, l.space.within(g.unless.cubes))
	}
	if !ok {
		return
	}
	require := l.space.within(g.require.cubes)
	passes, known := l.space.meet(applies, require)
	refuses, ok := l.space.minus(applies, require)
	switch {
	case len(applies) == 0:
		l.say(g.pos, Error, "eligibility.%s: gate %s never applies: its #when and #unless exclude each other", slug, g.name)
	case known && len(passes) == 0:
		l.say(g.pos, Error, "eligibility.%s: gate %s can never pass where it applies: its #require excludes itself", slug, g.name)
	case ok && len(refuses) == 0:
		l.say(g.pos, Warning, "eligibility.%s: gate %s can never fail: its #require holds for every device that it applies to", slug, g.name)
	}
}

// gateIsClosed tells of a #require that something not known satisfies.
func (l *linter) gateIsClosed(slug string, g *gate) {
	g.require.walk(func(leaf *leaf, negated bool) {
		if negated {
			return // may read only what is always known, which the schema sees to
		}
		if leaf.condition() && leaf.tri&triUnknown != 0 {
			l.say(leaf.near(g.pos), Error, "eligibility.%s: gate %s admits a device of which %s is Unknown: a #require tests what is known", slug, g.name, leaf.path)
			return
		}
		field, isFact := facts.FieldOf(leaf.path)
		if isFact && field.Nullable && leaf.admitsNull(field) {
			l.say(leaf.near(g.pos), Error, "eligibility.%s: gate %s admits a device of which %s was not read (null): a #require tests what is known", slug, g.name, leaf.path)
		}
	})
}

func (l *leaf) admitsNull(field facts.Field) bool {
	for _, t := range l.cube.finite {
		if t.at == field.At {
			return t.allow&1 == 1
		}
	}
	for _, t := range l.cube.checks {
		return t.predicate.null == t.want
	}
	return true // no test at all
}
