package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/facts"
)

// leafOracle answers the shipped ladders by asking CUE about each leaf: it unifies
// and validates, where the compiler subsumes, and walks the patterns itself.
type leafOracle struct {
	ctx     *cue.Context
	values  packages
	names   map[string]uint8
	answers map[string]bool
	members map[string]cue.Value
}

func newLeafOracle(t testing.TB, b *Bundle) *leafOracle {
	t.Helper()
	src, err := readSource(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	o := &leafOracle{ctx: cuecontext.New(), names: map[string]uint8{}, answers: map[string]bool{}, members: map[string]cue.Value{}}
	var findings []Finding
	if o.values, findings = buildValues(o.ctx, src.withoutTests()); len(findings) > 0 {
		t.Fatal(findings)
	}
	for _, kind := range b.Catalogue() {
		o.names[kind.Name] = kind.Bit
	}
	return o
}

// ladder finds the CUE value of a ladder by the engine's name for it.
func (o *leafOracle) ladder(name string) cue.Value {
	family, rest, nested := strings.Cut(name, ".")
	switch {
	case family == "clean_removes_trait":
		return o.values["policies/workflows"].LookupPath(cue.ParsePath(family))
	case !nested:
		return o.values["policies/status"].LookupPath(cue.ParsePath(family))
	case family == "conditions":
		return o.values["policies/conditions"].LookupPath(cue.MakePath(cue.Str("conditions"), cue.Str(rest), cue.Str("emission")))
	case family == "writers":
		return o.values["policies/conditions"].LookupPath(cue.MakePath(cue.Str("writers"), cue.Str(strings.TrimSuffix(rest, ".scope")), cue.Str("scope")))
	}
	source, axis, _ := strings.Cut(rest, ".")
	return o.values["policies/inventory"].LookupPath(cue.MakePath(cue.Str("inventory"), cue.Str(source), cue.Str(axis)))
}

// asking is a pattern whose leaves are asked of CUE.
type asking struct {
	leaves   []askedLeaf
	any, not []*asking
}

type askedLeaf struct {
	path  string
	value cue.Value
	id    string
}

func (o *leafOracle) read(v cue.Value, id string) *asking {
	p := &asking{}
	var walk func(v cue.Value, at string)
	walk = func(v cue.Value, at string) {
		for it, _ := v.Fields(); it.Next(); {
			name := it.Selector().Unquoted()
			if at == "" && (name == "any" || name == "not") {
				for list, _ := it.Value().List(); list.Next(); {
					q := o.read(list.Value(), fmt.Sprintf("%s/%s/%d/%d", id, name, len(p.any), len(p.not)))
					if name == "any" {
						p.any = append(p.any, q)
					} else {
						p.not = append(p.not, q)
					}
				}
				continue
			}
			path := strings.TrimPrefix(at+"."+name, ".")
			if it.Value().IncompleteKind() == cue.StructKind {
				walk(it.Value(), path)
				continue
			}
			p.leaves = append(p.leaves, askedLeaf{path, it.Value(), id + "/" + path})
		}
	}
	walk(v, "")
	return p
}

func (o *leafOracle) matches(p *asking, given map[string]string) bool {
	for _, l := range p.leaves {
		if !o.ask(l, given[l.path]) {
			return false
		}
	}
	holds := func(q *asking) bool { return o.matches(q, given) }
	return (len(p.any) == 0 || slices.ContainsFunc(p.any, holds)) && !slices.ContainsFunc(p.not, holds)
}

// ask asks CUE about one leaf and one JSON literal, once.
func (o *leafOracle) ask(l askedLeaf, literal string) bool {
	key := l.id + "=" + literal
	answer, known := o.answers[key]
	if !known {
		member, ok := o.members[literal]
		if !ok {
			member = o.ctx.CompileString(literal)
			o.members[literal] = member
		}
		answer = l.value.Unify(member).Validate(cue.Concrete(true)) == nil
		o.answers[key] = answer
	}
	return answer
}

// axis is one thing that a ladder looks at: a fact, by its JSON literals, or a
// condition.
type axis struct {
	path     string
	literals []string
	field    facts.Field
	bit      uint8
}

// axesOf lists what a ladder looks at. A text is tried null and with every text
// that stands in the policies' regular expressions and beside them.
func (o *leafOracle) axesOf(l *Ladder) []axis {
	var axes []axis
	seen := map[string]bool{}
	for i := range l.Rungs {
		l.Rungs[i].pattern.walk(func(leaf *leaf, _ bool) {
			if seen[leaf.path] {
				return
			}
			seen[leaf.path] = true
			if leaf.condition() {
				axes = append(axes, axis{path: leaf.path, literals: []string{`"False"`, `"True"`, `"Unknown"`}, bit: leaf.bit})
				return
			}
			field, _ := facts.FieldOf(leaf.path)
			a := axis{path: leaf.path, field: field}
			if field.Nullable {
				a.literals = []string{"null"}
			}
			if field.Kind == facts.KindText {
				a.literals = append(a.literals, `""`, `"x"`, `"gpu"`, `"cpu-node"`, `"nvlink_switch"`, `"hypervisor"`, `"active"`, `"rma"`, `"inventory"`)
			} else {
				a.literals = append(a.literals, field.Values...)
			}
			axes = append(axes, a)
		})
	}
	return axes
}

// put sets one value in the engine's input.
func (a *axis) put(in *input, literal string) {
	switch {
	case a.field.Path == "":
		in.yes, in.unknown = in.yes&^(1<<a.bit), in.unknown&^(1<<a.bit)
		switch literal {
		case `"True"`:
			in.yes |= 1 << a.bit
		case `"Unknown"`:
			in.unknown |= 1 << a.bit
		}
	case a.field.Kind == facts.KindText:
		setText(in.facts, a.path, literal)
	default:
		code := uint8(slices.Index(a.field.Values, literal) + 1)
		in.codes[a.field.At] = code
		if token, ok := cutToken(a.path); ok {
			if in.facts.Slurm.States &^= token; code == 2 {
				in.facts.Slurm.States |= token
			}
		}
	}
}

func setText(f *facts.Facts, path, literal string) {
	t := facts.Text{Known: literal != "null"}
	if t.Known {
		t.Value = strings.Trim(literal, `"`)
	}
	switch path {
	case "ironic.fault":
		f.Ironic.Fault = t
	case "ironic.resource_class":
		f.Ironic.ResourceClass = t
	case "ironic.driver":
		f.Ironic.Driver = t
	case "ironic.name":
		f.Ironic.Name = t
	case "device.bmc_address":
		f.Device.BMCAddress = t
	case "netbox.role":
		f.Netbox.Role = t
	case "netbox.status":
		f.Netbox.Status = t
	default:
		panic("the test does not know how to set " + path)
	}
}

// Every shipped ladder gives, over its whole space, the rung that CUE gives leaf
// by leaf. A ladder over many facts is walked with every fact at its first
// value but a few at a time.
func TestShippedLaddersMeanWhatCUESays(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	o := newLeafOracle(t, b)
	for _, l := range b.Ladders() {
		v := o.ladder(l.Name)
		var rungs []*asking
		for it, _ := v.LookupPath(cue.ParsePath("rungs")).List(); it.Next(); {
			rungs = append(rungs, o.read(it.Value().LookupPath(whenPath), fmt.Sprint(l.Name, len(rungs))))
		}
		if len(rungs) != len(l.Rungs) {
			t.Errorf("%s: %d rungs in CUE, %d compiled", l.Name, len(rungs), len(l.Rungs))
			continue
		}
		axes := o.axesOf(l)
		states := 0
		o.walk(axes, func(in *input, given map[string]string) bool {
			states++
			want := slices.IndexFunc(rungs, func(p *asking) bool { return o.matches(p, given) })
			if want < 0 {
				want = len(rungs)
			}
			if got := l.first(in); got != want {
				t.Errorf("%s: %v: the engine gives %s, CUE %s", l.Name, given, l.RungName(got), l.RungName(want))
				return false
			}
			return true
		})
		t.Logf("%s: %d states", l.Name, states)
	}
}

// maxStates bounds an exhaustive walk.
const maxStates = 200_000

// walk visits every combination, or, where they are too many, every pair of
// axes with the others at their first value.
func (o *leafOracle) walk(axes []axis, visit func(in *input, given map[string]string) bool) {
	in := &input{facts: &facts.Facts{}, codes: &facts.Codes{}}
	in.facts.Intern(in.codes)
	given := map[string]string{}
	set := func(a *axis, literal string) {
		a.put(in, literal)
		given[a.path] = literal
	}
	size := 1
	for i := range axes {
		set(&axes[i], axes[i].literals[0])
		size = min(size*len(axes[i].literals), maxStates+1)
	}
	if size <= maxStates {
		var each func(rest []axis) bool
		each = func(rest []axis) bool {
			if len(rest) == 0 {
				return visit(in, given)
			}
			for _, literal := range rest[0].literals {
				set(&rest[0], literal)
				if !each(rest[1:]) {
					return false
				}
			}
			return true
		}
		each(axes)
		return
	}
	// The first axis (listed) is walked whole with every pair of the others.
	for _, first := range axes[0].literals {
		set(&axes[0], first)
		for i := 1; i < len(axes); i++ {
			for j := i + 1; j < len(axes); j++ {
				for _, x := range axes[i].literals {
					set(&axes[i], x)
					for _, y := range axes[j].literals {
						set(&axes[j], y)
						if !visit(in, given) {
							return
						}
					}
				}
				set(&axes[i], axes[i].literals[0])
				set(&axes[j], axes[j].literals[0])
			}
		}
	}
}
