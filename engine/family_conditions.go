package engine

import (
	"fmt"
	"slices"
	"time"

	"cuelang.org/go/cue"
)

// observationStatus is what one rung of an emission gives.
type observationStatus uint8

const (
	statusFalse observationStatus = iota
	statusTrue
	statusUnknown
	statusNotRead
)

var observationStatuses = map[string]observationStatus{"False": statusFalse, "True": statusTrue, "Unknown": statusUnknown, "NotRead": statusNotRead}

func (s observationStatus) String() string {
	return [...]string{"False", "True", "Unknown", "NotRead"}[s]
}

// observation is a decoded outcome of an emission.
type observation struct {
	status  observationStatus
	reason  template
	message template
}

// maxTypes is how many condition types fit the packed masks.
const maxTypes = 64

// catalogue compiles the condition types. Bits are given before any pattern is
// compiled, because patterns name types; it reports false where there are not
// enough.
func (c *compiler) catalogue(b *Bundle, v cue.Value, bits map[string]uint8) bool {
	entries := map[string]cue.Value{}
	var names []string
	c.each(v, "conditions", func(name string, entry cue.Value) {
		entries[name] = entry
		names = append(names, name)
	})
	slices.Sort(names)
	if !c.giveBits(names, bits, entries) {
		return false
	}
	b.types = make([]ConditionType, len(names))
	for i, name := range names {
		c.conditionType(&b.types[i], name, entries[name])
		t := &b.types[i]
		b.byName[name], b.byBit[t.Bit] = t, t
		if t.AbsentUnknown {
			b.absentUnknown |= 1 << t.Bit
		}
	}
	return true
}

// giveBits keeps the bits that the caller remembers and gives the others the
// lowest that nobody has or had.
func (c *compiler) giveBits(names []string, known map[string]uint8, entries map[string]cue.Value) bool {
	var taken uint64
	for name, bit := range known {
		if bit >= maxTypes || taken>>bit&1 == 1 {
			c.fail(Pos{File: "policies/conditions"}, "condition type %s: bit %d is given twice or is past %d", name, bit, maxTypes-1)
			return false
		}
		taken |= 1 << bit
	}
	for _, name := range names {
		if bit, ok := known[name]; ok {
			c.bits[name] = bit
			continue
		}
		if taken == 1<<64-1 {
			c.fail(c.entryPos(entries[name]), "condition type %s is one too many: at most %d types, retired ones included", name, maxTypes)
			return false
		}
		bit := uint8(0)
		for taken>>bit&1 == 1 {
			bit++
		}
		taken |= 1 << bit
		c.bits[name] = bit
	}
	return true
}

func (c *compiler) conditionType(t *ConditionType, name string, v cue.Value) {
	*t = ConditionType{
		Name:          name,
		Bit:           c.bits[name],
		Meaning:       textOf(v, "meaning"),
		Pos:           c.entryPos(v),
		Writers:       textsOf(v, "writer"),
		Feeds:         textOf(v, "feeds"),
		Durable:       flagOf(v, "durable"),
		AbsentUnknown: textOf(v, "absent") != "False",
		HoldLimit:     c.duration(v, "hold_limit"),
		holdPos:       writtenAt(v.LookupPath(cue.ParsePath("hold_limit"))),
	}
	emission := v.LookupPath(cue.ParsePath("emission"))
	if !emission.Exists() {
		return
	}
	t.Observed = true
	t.Emission = c.ladderOf(emission, "conditions."+name, func(_ int, then cue.Value) {
		t.emits = append(t.emits, c.observation(then))
	})
	for _, family := range t.Emission.Reads {
		if slices.Contains(sourceFamilies, family) {
			t.Sources = append(t.Sources, family)
		}
	}
	if t.Emission.Conditions != 0 {
		c.fail(t.Emission.Pos, "conditions.%s: an emission may not read conditions", name)
	}
}

// sourceFamilies are the fact families that a source system fills.
var sourceFamilies = []string{"ironic", "placement", "slurm", "netbox", "bmc"}

// entryPos is the place of a catalogue entry: of the first field that a policy
// wrote.
func (c *compiler) entryPos(v cue.Value) Pos {
	for _, field := range []string{"meaning", "writer", "feeds", "classes", "sources", "gates"} {
		if p := writtenAt(v.LookupPath(cue.MakePath(cue.Str(field)))); p.policy() {
			return p
		}
	}
	return c.posOf(v)
}

// writtenAt is the place of a value or, of a list that the schema shapes, of its
// first element. Unlike posOf it evaluates nothing.
func writtenAt(v cue.Value) Pos {
	p := posOf(v.Pos())
	if p.policy() || v.IncompleteKind() != cue.ListKind {
		return p
	}
	if list, err := v.List(); err == nil && list.Next() {
		if first := posOf(list.Value().Pos()); first.policy() {
			return first
		}
	}
	return p
}

func (c *compiler) observation(then cue.Value) observation {
	status, ok := observationStatuses[textOf(then, "status")]
	if !ok {
		c.fail(c.posOf(then), "status must be True, False, Unknown or NotRead")
	}
	return observation{status, c.template(then, "reason"), c.template(then, "message")}
}

func (c *compiler) template(v cue.Value, field string) template {
	t, err := templateOf(textOf(v, field))
	if err != nil {
		c.fail(c.posOf(v.LookupPath(cue.ParsePath(field))), "%s: %v", field, err)
	}
	return t
}

// duration reads a duration field, 0 where it is null or not there.
func (c *compiler) duration(v cue.Value, field string) time.Duration {
	found := v.LookupPath(cue.MakePath(cue.Str(field)))
	if found, _ = found.Default(); !found.Exists() || found.IncompleteKind() == cue.NullKind {
		return 0
	}
	text, err := found.String()
	if err != nil {
		c.fail(c.posOf(found), "%s: %s", field, brief(err))
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		c.fail(c.posOf(found), "%s: %q is not a duration such as 90s, 15m or 24h", field, text)
	}
	return d
}

// writers compiles who asserts conditions, and of which devices.
func (c *compiler) writers(b *Bundle, v cue.Value) {
	c.each(v, "writers", func(name string, entry cue.Value) {
		w := Writer{Name: name, Meaning: textOf(entry, "meaning"), Pos: c.entryPos(entry), Sources: textsOf(entry, "sources")}
		scope := entry.LookupPath(cue.ParsePath("scope"))
		if scope.Exists() {
			w.Scope = c.ladderOf(scope, "writers."+name+".scope", func(_ int, then cue.Value) {
				w.scopeIn = append(w.scopeIn, wordOf(then) == "in")
			})
		}
		b.writerList = append(b.writerList, w)
	})
	slices.SortFunc(b.writerList, func(x, y Writer) int { return compareText(x.Name, y.Name) })
	for i := range b.types {
		t := &b.types[i]
		for _, name := range t.Writers {
			at := b.WriterIndex(name)
			if at < 0 {
				c.fail(t.Pos, "conditions.%s: writer %s is not in writers", t.Name, name)
				continue
			}
			w := &b.writerList[at]
			w.Types |= 1 << t.Bit
			if t.Observed {
				w.Emits |= 1 << t.Bit
				w.alone = append(w.alone, t)
			}
		}
		if t.Observed && len(t.Writers) != 1 {
			c.fail(t.Pos, "conditions.%s: an observed type has one writer, not %s", t.Name, fmt.Sprint(t.Writers))
		}
	}
	b.pack()
}

// pack joins the emissions of each writer into panels. Until then they are all
// alone.
func (b *Bundle) pack() {
	for i := range b.writerList {
		w := &b.writerList[i]
		if like, fits := newLikeness(w.alone); fits {
			w.like = like
		}
		w.panels, w.alone = newPanels(w.alone)
	}
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
