package engine

import (
	"fmt"
	"strconv"
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// Cost counts what a load asked of CUE: a measure that needs no clock.
type Cost struct {
	Files     int // files read
	Leaves    int // field tests compiled
	Asked     int // values that CUE was asked about
	Cubes     int // alternatives that the patterns came to
	TableSize int // bytes of all tables
}

// compiler turns patterns into cubes. It lives for one load and holds the CUE
// context, which is dropped with it.
type compiler struct {
	ctx        *cue.Context
	src        *source
	places     *places
	bits       map[string]uint8 // condition type → bit
	all        domains
	members    map[string][]member // field path → its values
	null       cue.Value
	truth      [2]cue.Value
	tri        [3]cue.Value
	predicates map[string]*predicate
	short      bool      // what is compiled is the schema's own, made of lists whose members CUE has checked
	parameters cue.Value // of the workflow whose eligibility is compiled: types by name
	findings   []Finding
	cost       Cost
}

// member is one value of a finite fact.
type member struct {
	text  string // JSON literal
	code  uint8
	value cue.Value
}

func newCompiler(ctx *cue.Context, src *source) *compiler {
	c := &compiler{
		ctx:        ctx,
		src:        src,
		places:     newPlaces(src),
		bits:       map[string]uint8{},
		members:    map[string][]member{},
		null:       ctx.Encode(nil),
		truth:      [2]cue.Value{ctx.Encode(false), ctx.Encode(true)},
		tri:        [3]cue.Value{ctx.Encode("False"), ctx.Encode("True"), ctx.Encode("Unknown")},
		predicates: map[string]*predicate{},
	}
	values := map[string]cue.Value{}
	for _, f := range facts.Fields {
		if f.At < 0 {
			continue
		}
		c.all[f.At] = fullDomain(f)
		list := []member{{"null", 0, c.null}}
		for i, literal := range f.Values {
			if _, ok := values[literal]; !ok {
				values[literal] = ctx.CompileString(literal)
			}
			list = append(list, member{literal, uint8(i + 1), values[literal]})
		}
		c.members[f.Path] = list
	}
	return c
}

func (c *compiler) fail(p Pos, format string, args ...any) {
	c.findings = append(c.findings, findingAt(p, Error, format, args...))
}

func (c *compiler) warn(p Pos, format string, args ...any) {
	c.findings = append(c.findings, findingAt(p, Warning, format, args...))
}

// accepts asks CUE whether the leaf admits a value.
func (c *compiler) accepts(leaf, value cue.Value) bool {
	c.cost.Asked++
	return leaf.Subsume(value) == nil
}

// leafOf compiles the test of one fact, condition or parameter.
func (c *compiler) leafOf(v cue.Value, path string, text syntax) (leaf, error) {
	c.cost.Leaves++
	l := leaf{path: path}
	if pos, ok := text.pos(); ok {
		l.pos = pos
	} else {
		l.pos = c.posOf(v)
		text = c.places.literalAt(l.pos)
	}
	l.want = c.places.text(l.pos, v)
	if err := v.Err(); err != nil {
		return l, fmt.Errorf("%s: %s", path, brief(err))
	}
	if name, ok := strings.CutPrefix(path, "conditions."); ok {
		if !c.short && !text.plain() {
			c.dropped(v, &l, triValues)
		}
		return c.conditionLeaf(l, v, name)
	}
	if strings.HasPrefix(path, "parameters.") {
		if !text.literal() {
			c.droppedParameter(v, &l)
		}
		return c.scalarLeaf(l, v, nil)
	}
	field, ok := facts.FieldOf(path)
	if !ok {
		return l, fmt.Errorf("%s: no such fact, or one that no pattern may test", path)
	}
	if !c.short && !text.plain() {
		c.dropped(v, &l, literalsOf(field))
	}
	if field.Kind == facts.KindText {
		return c.scalarLeaf(l, v, field.Text)
	}
	return c.finiteLeaf(l, v, field)
}

func (c *compiler) conditionLeaf(l leaf, v cue.Value, name string) (leaf, error) {
	bit, ok := c.bits[name]
	if !ok {
		return l, fmt.Errorf("conditions.%s: no such condition type in policies/conditions", name)
	}
	l.bit = bit
	if text, err := v.String(); err == nil && v.Kind() == cue.StringKind {
		l.tri = map[string]uint8{"False": triFalse, "True": triTrue, "Unknown": triUnknown}[text]
	} else {
		for i, value := range c.tri {
			if c.accepts(v, value) {
				l.tri |= 1 << i
			}
		}
	}
	if l.tri == 0 {
		l.never = true
		return l, fmt.Errorf("%s: %s matches none of True, False and Unknown", l.path, l.want)
	}
	if c.short { // what is written is the schema's
		l.want = triText(l.tri)
	}
	l.cube = triCube(bit, l.tri)
	return l, nil
}

// triText spells the values of a condition that match.
func triText(tri uint8) string {
	var values []string
	for i, name := range [...]string{"False", "True", "Unknown"} {
		if tri>>i&1 == 1 {
			values = append(values, strconv.Quote(name))
		}
	}
	return strings.Join(values, " | ")
}

func (c *compiler) finiteLeaf(l leaf, v cue.Value, field facts.Field) (leaf, error) {
	var allow uint64
	if literal, ok := literalOf(v); ok {
		for _, m := range c.members[field.Path] {
			if m.text == literal {
				allow = 1 << m.code
			}
		}
	} else {
		for _, m := range c.members[field.Path] {
			if c.accepts(v, m.value) {
				allow |= 1 << m.code
			}
		}
	}
	switch allow {
	case 0:
		l.never = true
		return l, fmt.Errorf("%s: %s matches no value of the fact", l.path, l.want)
	case c.all[field.At]:
		return l, nil
	}
	l.cube.finite = []finiteTest{{field.At, allow}}
	return l, nil
}

// literalOf spells a value that can be only one, as JSON does.
func literalOf(v cue.Value) (string, bool) {
	switch v.Kind() { // bottom where a default stands for a disjunction
	case cue.NullKind:
		return "null", true
	case cue.BoolKind:
		b, err := v.Bool()
		return strconv.FormatBool(b), err == nil
	case cue.StringKind:
		s, err := v.String()
		return strconv.Quote(s), err == nil
	case cue.IntKind:
		n, err := v.Int64()
		return strconv.FormatInt(n, 10), err == nil
	}
	return "", false
}

// scalarLeaf compiles a test of a text or, where text is nil, of a parameter.
func (c *compiler) scalarLeaf(l leaf, v cue.Value, text func(*facts.Facts) facts.Text) (leaf, error) {
	s, err := scalarOf(v, 0)
	if err != nil {
		return l, fmt.Errorf("%s: %w", l.path, err)
	}
	if err := s.agrees(c.ctx, v); err != nil {
		return l, fmt.Errorf("%s: %w", l.path, err)
	}
	p := &predicate{path: l.path, text: text, str: s.str, num: s.num}
	p.null, p.no, p.yes = c.accepts(v, c.null), c.accepts(v, c.truth[0]), c.accepts(v, c.truth[1])
	p.key = fmt.Sprintf("%s\x00%s\x00%t%t%t", l.path, s.spelled, p.null, p.no, p.yes)
	if text != nil && v.IncompleteKind() == cue.StringKind && c.accepts(v, c.ctx.CompileString("string")) {
		p.known, p.key = true, l.path+"\x00known"
	}
	if text != nil && v.IncompleteKind() == cue.NullKind {
		// The opposite of "known": one predicate serves both.
		p.null, p.known, p.key = false, true, l.path+"\x00known"
		l.cube.checks = []check{{c.intern(p), false}}
		return l, nil
	}
	l.cube.checks = []check{{c.intern(p), true}}
	return l, nil
}

func (c *compiler) intern(p *predicate) *predicate {
	if known, ok := c.predicates[p.key]; ok {
		return known
	}
	c.predicates[p.key] = p
	return p
}

// familyOf is the first part of a path.
func familyOf(path string) string {
	family, _, _ := strings.Cut(path, ".")
	return family
}
