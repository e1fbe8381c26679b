package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
)

// emission checks that no definite status rests on a fact that was not read: a
// rung that gives True or False although a fact is null, where some value of
// that fact would have given another status.
func (l *linter) emission(t *ConditionType) {
	ladder := t.Emission
	regions := l.space.regions(ladder)
	if regions == nil {
		return // said by ladder
	}
	for _, f := range facts.Fields {
		// Of a node that is not listed nothing else is read: only listed ones count.
		if !f.Nullable || f.Path == "ironic.listed" || !l.reads(ladder, f.Path) {
			continue
		}
		l.unread(ladder, regions, f)
	}
}

func (l *linter) reads(ladder *Ladder, path string) bool {
	found := false
	for i := range ladder.Rungs {
		ladder.Rungs[i].pattern.walk(func(leaf *leaf, _ bool) { found = found || leaf.path == path })
	}
	return found
}

func (l *linter) unread(ladder *Ladder, regions []cubes, f facts.Field) {
	for i, region := range regions {
		if ladder.Gives[i] != "True" && ladder.Gives[i] != "False" {
			continue
		}
		null := l.project(region, f, true)
		for k, other := range regions {
			if ladder.Gives[k] == ladder.Gives[i] || ladder.Gives[k] == "NotRead" {
				continue
			}
			both, ok := l.space.meet(null, l.project(other, f, false))
			if !ok || len(both) == 0 {
				continue
			}
			l.say(ladder.RungPos(i), Error, "%s: rung %s gives %s although %s was not read, and a value of it may give %s (rung %s): put a rung that gives NotRead before it; seen with %s",
				ladder.Name, ladder.RungName(i), ladder.Gives[i], f.Path, ladder.Gives[k], ladder.RungName(k), l.space.witness(&both[0]))
			return
		}
	}
}

// project gives the inputs of a region in which the fact is null, or is not,
// without what they say of the fact.
func (l *linter) project(region cubes, f facts.Field, null bool) cubes {
	listed, _ := facts.FieldOf("ironic.listed")
	var out cubes
next:
	for i := range region {
		c := region[i]
		c.finite = slices.Clone(c.finite)
		for _, t := range c.finite {
			unlisted := t.at == listed.At && t.allow>>uint(facts.True)&1 == 0
			unfit := t.at == f.At && (null && t.allow&1 == 0 || !null && t.allow&^1 == 0)
			if unlisted || unfit {
				continue next
			}
		}
		for _, t := range c.checks {
			if t.predicate.path == f.Path && null && t.predicate.null != t.want {
				continue next
			}
		}
		c.finite = slices.DeleteFunc(c.finite, func(t finiteTest) bool { return t.at == f.At })
		c.checks = slices.DeleteFunc(slices.Clone(c.checks), func(t check) bool { return t.predicate.path == f.Path })
		out = append(out, c)
	}
	return out
}

// catalogue checks the entries of the catalogue against who reads them.
func (l *linter) catalogue() {
	var gates, scopes uint64
	for _, e := range l.bundle.eligibility {
		for i := range e.gates {
			for _, p := range []*pattern{e.gates[i].when, e.gates[i].unless, e.gates[i].require} {
				if p != nil {
					gates |= p.conditions()
				}
			}
		}
	}
	for i := range l.bundle.writerList {
		if scope := l.bundle.writerList[i].Scope; scope != nil {
			scopes |= scope.Conditions
		}
	}
	for i := range l.bundle.types {
		t := &l.bundle.types[i]
		mask := uint64(1) << t.Bit
		switch {
		case !t.Durable && !t.AbsentUnknown:
			l.say(t.Pos, Error, "conditions.%s: an observed type counts as Unknown where nobody has read it: absent may not be False", t.Name)
		case t.Feeds == "operational" && l.bundle.operational.Conditions&mask == 0:
			l.say(t.Pos, Warning, "conditions.%s feeds the operational status, but no rung reads it: nobody reads it", t.Name)
		case t.Feeds == "none" && (gates|scopes)&mask == 0:
			l.say(t.Pos, Note, "conditions.%s feeds none, and no gate reads it: it is shown only", t.Name)
		}
		l.asserted(t)
		if t.Observed && !slices.ContainsFunc(t.Emission.Gives, func(gives string) bool { return gives == "True" || gives == "False" }) {
			l.say(t.Emission.Pos, Warning, "conditions.%s: no rung gives True or False: nobody emits it", t.Name)
		}
	}
}

// asserted checks who writes a type, for how long it is judged by, and what its
// reasons may come to.
func (l *linter) asserted(t *ConditionType) {
	reads := func(name string) bool { return len(l.bundle.writerList[l.bundle.WriterIndex(name)].Sources) > 0 }
	if !t.Observed && !slices.ContainsFunc(t.Writers, func(name string) bool { return !reads(name) }) {
		l.say(t.Pos, Warning, "conditions.%s: nobody asserts it: %s only reads sources, and a durable type has no emission", t.Name, strings.Join(t.Writers, ", "))
	}
	for _, source := range t.Sources {
		if ttl := l.bundle.limitValues.Sources[source].TTL; t.HoldLimit > 0 && t.HoldLimit < ttl {
			l.say(t.holdPos, Error, "conditions.%s: a hold_limit of %s ends before %s's facts are stale, after %s", t.Name, t.HoldLimit, source, ttl)
		}
	}
	for i := range t.Emission.rungs() {
		t.Emission.Rungs[i].pattern.walk(func(leaf *leaf, _ bool) {
			if !l.mayRead(t, leaf.path) {
				l.say(leaf.near(t.Emission.Rungs[i].Pos), Error, "conditions.%s: rung %s tests %s, which %s does not read", t.Name, t.Emission.Rungs[i].Name, leaf.path, t.Writers[0])
			}
		})
	}
	for i := range t.emits {
		for _, p := range slices.Concat(t.emits[i].reason.parts, t.emits[i].message.parts) {
			if p.path != "" && !l.mayRead(t, p.path) {
				l.say(t.Emission.RungPos(i), Error, "conditions.%s: %s: a text quotes %s, which %s does not read: it would go stale unseen", t.Name, t.Emission.RungName(i), p.path, t.Writers[0])
			}
		}
		for _, p := range t.emits[i].reason.parts {
			if p.path != "" && !p.camel && !camelCased(p.path) {
				l.say(t.Emission.RungPos(i), Error, "conditions.%s: %s: the reason {%s} may be no CamelCase word: write {%[3]s:camel}", t.Name, t.Emission.RungName(i), p.path)
			}
		}
	}
}

// mayRead reports whether an emission may test or quote a fact: what its writer
// reads, and of device and site what no status leads to.
func (l *linter) mayRead(t *ConditionType, path string) bool {
	w := &l.bundle.writerList[l.bundle.WriterIndex(t.Writers[0])]
	return w.reads(path) && !strings.HasPrefix(path, "device.") || slices.Contains([]string{"device.name", "device.device_class", "device.inventory_status", "device.resource_class"}, path)
}

// reads reports whether a fact is one of the writer's sources, the device or the
// site.
func (w *Writer) reads(path string) bool {
	family := familyOf(path)
	return family == "site" || family == "device" || slices.Contains(w.Sources, family)
}

// scopes checks what decides of which devices a writer speaks: what it reads
// itself, conditions, and nothing that they lead to.
func (l *linter) scopes() {
	for i := range l.bundle.writerList {
		w := &l.bundle.writerList[i]
		for k := range w.Scope.rungs() {
			rung := &w.Scope.Rungs[k]
			rung.pattern.walk(func(leaf *leaf, _ bool) {
				status := leaf.path == "device.operational_status" || leaf.path == "device.health_status"
				if !leaf.condition() && (!w.reads(leaf.path) || status) {
					l.say(leaf.near(rung.Pos), Error, "writers.%s: rung %s of its scope tests %s, which it does not read before there are conditions", w.Name, rung.Name, leaf.path)
				}
			})
		}
	}
}

// camelCased reports whether every value of a fact is a CamelCase word.
func camelCased(path string) bool {
	f, _ := facts.FieldOf(path)
	return len(f.Values) > 0 && !slices.ContainsFunc(f.Values, func(literal string) bool {
		return literal != strconv.Quote(camel(strings.Trim(literal, `"`)))
	})
}
