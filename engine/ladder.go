package engine

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// Masks are the conditions of one device, packed by bit. A bit that is set in
// neither True nor Unknown is False; Present says that a row exists.
type Masks struct {
	True    uint64
	Unknown uint64
	Present uint64
}

// Ladder is an ordered list of rungs: the first whose pattern matches decides,
// else "otherwise", whose index is len(Rungs). What a rung gives is decoded by
// the family that owns the ladder, in the same order with otherwise last.
type Ladder struct {
	Name  string // family.field, as the policy names it
	Pos   Pos
	Rungs []Rung

	// Gives spells what each rung gives, otherwise last: a word, "null", or an
	// emission's status.
	Gives []string

	// Conditions is the mask of every condition that some rung tests.
	Conditions uint64

	// Reads lists the fact families that some rung tests, in order.
	Reads []string

	otherwisePos Pos
	table        *table
	tokens       *tokens // beside a table: the rungs of single SLURM tokens
	wide         *wide   // in place of a table
}

// Rung is one rung of a ladder.
type Rung struct {
	Name string
	Pos  Pos

	// Tests is the mask of every condition that the rung's pattern mentions.
	Tests uint64

	// Tolerates is the mask of the conditions that may be Unknown although the
	// rung gives a gain; Why says so for each by type.
	Tolerates uint64
	Why       map[string]string

	// top is the mask of the conditions tested beside any and not; plain says
	// that nothing else is ever decisive.
	top     uint64
	plain   bool
	paths   []string // every fact and condition that the pattern asks
	pattern *pattern
}

// maxRungs leaves a byte of a table room for every rung and for otherwise.
const maxRungs = 250

// otherwise is the name under which falling through is recorded.
const otherwise = "otherwise"

// rungs are the rungs of a ladder that may not be there.
func (l *Ladder) rungs() []Rung {
	if l == nil {
		return nil
	}
	return l.Rungs
}

// RungName gives a rung's name by index, "otherwise" past the last.
func (l *Ladder) RungName(i int) string {
	if i < 0 || i >= len(l.Rungs) {
		return otherwise
	}
	return l.Rungs[i].Name
}

// RungPos gives the place of a rung by index, of `otherwise` past the last.
func (l *Ladder) RungPos(i int) Pos {
	if i < 0 || i >= len(l.Rungs) {
		return l.otherwisePos
	}
	return l.Rungs[i].Pos
}

// first gives the index of the first matching rung, len(Rungs) for otherwise.
func (l *Ladder) first(in *input) int {
	switch {
	case l.wide != nil:
		return l.wide.first(in)
	case l.tokens != nil:
		return min(l.table.first(in), l.tokens.first(in.facts.Slurm.States))
	}
	return l.table.first(in)
}

// scan gives the same answer from the patterns themselves.
func (l *Ladder) scan(in *input) int {
	for i := range l.Rungs {
		if l.Rungs[i].pattern.cubes.matches(in) {
			return i
		}
	}
	return len(l.Rungs)
}

// byMasks gives the first matching rung of a ladder that reads conditions only.
func (l *Ladder) byMasks(yes, unknown uint64) int {
	if l.table != nil && l.table.conditions != nil {
		return int(l.table.rungs[l.table.conditions.index(yes, unknown)])
	}
	return l.first(&input{yes: yes, unknown: unknown})
}

// decisive is the mask of the conditions that made rung i match; none for
// otherwise.
func (l *Ladder) decisive(i int, in *input) uint64 {
	if i < 0 || i >= len(l.Rungs) {
		return 0
	}
	if l.Rungs[i].plain {
		return l.Rungs[i].top
	}
	return l.Rungs[i].pattern.decisive(in)
}

// outcome decodes what rung i (len(rungs): otherwise) of a ladder gives.
type outcome func(i int, then cue.Value)

var (
	whenPath    = cue.MakePath(cue.Def("#when"))
	unlessPath  = cue.MakePath(cue.Def("#unless"))
	requirePath = cue.MakePath(cue.Def("#require"))
)

// ladderOf compiles a ladder. Each outcome is handed to decode in order, the
// one of otherwise last.
func (c *compiler) ladderOf(v cue.Value, name string, decode outcome) *Ladder {
	l := &Ladder{Name: name}
	rest := v.LookupPath(cue.ParsePath(otherwise))
	if !rest.Exists() {
		c.fail(c.posOf(v), "%s: otherwise is missing: say what is given when no rung matches", name)
		return l
	}
	l.otherwisePos = c.posOf(rest)
	l.Pos = l.otherwisePos
	list, err := v.LookupPath(cue.ParsePath("rungs")).List()
	if err != nil {
		c.fail(l.Pos, "%s: a ladder needs rungs: %s", name, brief(err))
		return l
	}
	families := map[string]bool{}
	for list.Next() {
		rung := c.rungOf(list.Value())
		rung.pattern.walk(func(leaf *leaf, _ bool) {
			family, _, _ := strings.Cut(leaf.path, ".")
			families[family] = true
			if !slices.Contains(rung.paths, leaf.path) {
				rung.paths = append(rung.paths, leaf.path)
			}
		})
		l.Conditions |= rung.Tests
		l.Rungs = append(l.Rungs, rung)
		l.give(len(l.Rungs)-1, list.Value().LookupPath(cue.ParsePath("then")), decode)
	}
	if len(l.Rungs) > maxRungs {
		c.fail(l.Pos, "%s: %v", name, errTooManyRungs)
		l.Rungs = l.Rungs[:maxRungs]
	}
	for _, family := range familyOrder {
		if families[family] {
			l.Reads = append(l.Reads, family)
		}
	}
	if len(l.Rungs) > 0 {
		l.Pos = l.Rungs[0].Pos
	}
	l.give(len(l.Rungs), rest, decode)
	l.build(c)
	return l
}

// give spells an outcome and hands it to the family.
func (l *Ladder) give(i int, then cue.Value, decode outcome) {
	word := wordOf(then)
	switch then.IncompleteKind() {
	case cue.NullKind:
		word = "null"
	case cue.StructKind:
		word = textOf(then, "status")
	}
	l.Gives = append(l.Gives, word)
	decode(i, then)
}

// familyOrder is the order in which a ladder lists what it reads.
var familyOrder = []string{"device", "enrollment", "site", "ironic", "placement", "slurm", "netbox", "bmc", "conditions", "parameters"}

func (c *compiler) rungOf(v cue.Value) Rung {
	rung := Rung{Pos: writtenAt(v.LookupPath(cue.ParsePath("name")))}
	rung.Name, _ = v.LookupPath(cue.ParsePath("name")).String()
	when := v.LookupPath(whenPath)
	if !when.Exists() {
		c.fail(rung.Pos, "rung %s: #when is missing", rung.Name)
		rung.pattern = &pattern{}
		return rung
	}
	rung.pattern = c.patternOf(when, c.places.holder(rung.Pos).field("#when"))
	rung.Tests, rung.top, rung.plain = rung.pattern.conditions(), rung.pattern.top(), len(rung.pattern.any) == 0
	tolerated := v.LookupPath(cue.ParsePath("unknownTolerated"))
	if !tolerated.Exists() {
		return rung
	}
	rung.Why = map[string]string{}
	it, err := tolerated.Fields()
	for err == nil && it.Next() {
		name := it.Selector().Unquoted()
		bit, ok := c.bits[name]
		if !ok {
			c.fail(c.posOf(it.Value()), "rung %s tolerates %s, which is no condition type", rung.Name, name)
			continue
		}
		rung.Tolerates |= 1 << bit
		rung.Why[name], _ = it.Value().String()
	}
	return rung
}
