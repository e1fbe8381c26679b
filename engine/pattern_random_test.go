package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

// asked is CUE with a schema of the facts in fieldPool, and a compiler that
// knows the same condition types.
type asked struct {
	ctx   *cue.Context
	scope cue.Value
	c     *compiler
	names []string // condition types
	seen  int      // patterns and devices that CUE was told of
}

// manySeen is how much one context is told: it keeps all of it.
const manySeen = 1000

// fresh is a, or one with a new context when this one has been told enough: a
// property that fails is tried thousands of times to make it smaller.
func (a *asked) fresh(t failer) *asked {
	if a.seen < manySeen {
		return a
	}
	return newAsked(t)
}

// failer is what a test and a property have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// schemaText declares what a random pattern may read, in the shape of
// schema/facts.cue.
func schemaText(names []string) string {
	families := map[string][]string{}
	for _, path := range fieldPool {
		field, _ := facts.FieldOf(path)
		family, name, _ := strings.Cut(path, ".")
		values := slices.Clone(field.Values)
		if field.Kind == facts.KindText {
			values = []string{"string"}
		}
		if field.Nullable {
			values = append([]string{"null"}, values...)
		}
		families[family] = append(families[family], strings.ReplaceAll(name, ".", "?: ")+"?: "+strings.Join(values, " | "))
	}
	for _, name := range names {
		families["conditions"] = append(families["conditions"], name+`?: "True" | "False" | "Unknown"`)
	}
	families["parameters"] = []string{"flag?: bool", `mode?: "a" | "b" | "c"`, "depth?: null | int", "note?: null | string"}
	var text strings.Builder
	text.WriteString("#Reads: {\n")
	for _, family := range familyOrder {
		if len(families[family]) > 0 {
			fmt.Fprintf(&text, "%s?: {%s}\n", family, strings.Join(families[family], "\n"))
		}
	}
	text.WriteString(`}
#When: {#Reads, any?: [#Reads, ...#Reads], not?: [#Reads, ...#Reads]}
failure: ["deploy failed", "clean failed", "error"]
compute: ["gpu_compute", "cpu_baremetal", "cpu_hypervisor"]
underWay: ["deploying", "wait call-back", "active"]
`)
	return text.String()
}

func newAsked(t failer) *asked {
	t.Helper()
	a := &asked{ctx: cuecontext.New(), names: []string{"A", "B", "C", "D", "E", "F"}}
	a.scope = a.ctx.CompileString(schemaText(a.names))
	if err := a.scope.Err(); err != nil {
		t.Fatal(err)
	}
	a.c = newCompiler(a.ctx, &source{files: map[string][]byte{}})
	for i, name := range a.names {
		a.c.bits[name] = uint8(7 * i)
	}
	return a
}

// pattern gives the CUE value of a pattern's text.
func (a *asked) pattern(text string) cue.Value {
	a.seen++
	return a.ctx.CompileString("#When & {"+text+"}", cue.Scope(a.scope))
}

// whole gives the CUE value of a device.
func (a *asked) whole(body []byte) cue.Value {
	a.seen++
	return a.ctx.CompileBytes(body)
}

// matches is CUE's own answer: the body subsumes the completed facts, and so
// does one of any, and none of not.
func (a *asked) matches(v, whole cue.Value) bool {
	holds := func(v cue.Value) bool {
		all := true
		for it, _ := v.Fields(); it.Next(); {
			name := it.Selector().Unquoted()
			if name == "any" || name == "not" {
				continue
			}
			all = all && it.Value().Subsume(whole.LookupPath(cue.MakePath(cue.Str(name))), cue.Final()) == nil
		}
		return all
	}
	some := func(field string) (exists, one bool) {
		list := v.LookupPath(cue.ParsePath(field))
		if !list.Exists() {
			return false, false
		}
		for it, _ := list.List(); it.Next(); {
			one = one || holds(it.Value())
		}
		return true, one
	}
	if !holds(v) {
		return false
	}
	if exists, one := some("any"); exists && !one {
		return false
	}
	_, one := some("not")
	return !one
}

var textPool = []string{"", "deploy failed", "power failure", "gpu-h100", "x", "null", "True"}

// leafText draws one test of a field.
func leafText(t *rapid.T, field facts.Field) string {
	value := func() string {
		if field.Kind == facts.KindText {
			return fmt.Sprintf("%q", rapid.SampledFrom(textPool).Draw(t, "text"))
		}
		return rapid.SampledFrom(field.Values).Draw(t, "value")
	}
	forms := []string{"value", "value", "or"}
	if field.Kind != facts.KindBool {
		forms = append(forms, "differs", "default", "differs twice")
		if field.Path != "bmc.failures" {
			forms = append(forms, "regex", "no regex", "below", "between")
		} else {
			forms = append(forms, "below", "between")
		}
	}
	if field.Nullable {
		forms = append(forms, "null", "known", "null or", "null or differs")
	}
	if field.Path == "ironic.provision_state" {
		forms = append(forms, "failure", "not failure", "underWay")
	}
	if field.Path == "device.device_class" {
		forms = append(forms, "compute")
	}
	switch rapid.SampledFrom(forms).Draw(t, "form") {
	case "or":
		return value() + " | " + value()
	case "differs":
		return "!=" + value()
	case "differs twice":
		return "!=" + value() + " & !=" + value()
	case "default":
		return "*" + value() + " | " + value()
	case "regex":
		return fmt.Sprintf("=~%q", rapid.SampledFrom([]string{"failed$", "^d", "a", "(?i)GPU", "^$"}).Draw(t, "regex"))
	case "no regex":
		return fmt.Sprintf("!~%q", rapid.SampledFrom([]string{"failed$", "^a", "i"}).Draw(t, "regex"))
	case "below":
		return "<" + value()
	case "between":
		return ">=" + value() + " | <" + value()
	case "null":
		return "null"
	case "known":
		return "!=null"
	case "null or":
		return "null | " + value()
	case "null or differs":
		return "null | !=" + value()
	case "failure":
		return "or(failure)"
	case "not failure":
		return `!="error" & !="clean failed"`
	case "underWay":
		return "or(underWay)"
	case "compute":
		return "or(compute)"
	}
	return value()
}

// fieldPool keeps patterns about few enough facts that they meet.
var fieldPool = []string{
	"device.device_class", "device.operational_status", "device.in_triage", "device.serial", "device.name", "enrollment.proof", "site.engagement_mode",
	"site.placement_enabled", "ironic.listed", "ironic.provision_state", "ironic.maintenance", "ironic.fault", "ironic.lessee_role",
	"placement.allocated", "slurm.listed", "slurm.reason", "slurm.states.DRAIN", "slurm.states.IDLE", "netbox.role", "bmc.failures", "bmc.chassis_health",
}

// body draws the tests of one pattern, alternatives apart. Conditions are half
// of them: their negations are the easiest to get wrong.
func (a *asked) body(t *rapid.T) string {
	var lines []string
	for range rapid.IntRange(1, 3).Draw(t, "tests") {
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind < 5:
			name := rapid.SampledFrom(a.names).Draw(t, "type")
			test := rapid.SampledFrom([]string{`"True"`, `"False"`, `"Unknown"`, `"True" | "False"`, `"False" | "Unknown"`, `!="True"`, `!="False"`, `!="Unknown"`, `=~"^(T|U)"`, `*"True" | "Unknown"`}).Draw(t, "tri")
			lines = append(lines, "conditions: "+name+": "+test)
		case kind == 5:
			lines = append(lines, "parameters: "+rapid.SampledFrom([]string{
				"flag: true", "flag: false", `mode: "a"`, `mode: "a" | "b"`, `mode: !="a"`, "depth: >=2", "depth: null | <3", "depth: !=null", "depth: 2", "depth: >0 & <=3",
				`note: =~"^x"`, "note: null", `note: !=""`, `note: null | "x"`,
			}).Draw(t, "parameter"))
		default:
			field, _ := facts.FieldOf(rapid.SampledFrom(fieldPool).Draw(t, "field"))
			lines = append(lines, strings.ReplaceAll(field.Path, ".", ": ")+": "+leafText(t, field))
		}
	}
	return strings.Join(lines, "\n")
}

func (a *asked) text(t *rapid.T) string {
	text := a.body(t)
	for _, part := range []string{"any", "not"} {
		if n := rapid.IntRange(-2, 3).Draw(t, part); n > 0 {
			text += "\n" + part + ": ["
			for range n {
				text += "{" + strings.ReplaceAll(a.body(t), "\n", ", ") + "},"
			}
			text += "]"
		}
	}
	return text
}

// device is what one device is, said in JSON for CUE and as an input for us.
type device struct {
	whole map[string]any
	in    input
}

// deviceFor draws facts near a pattern: for each test it asks, as often one
// that passes as any other.
func (a *asked) deviceFor(t *rapid.T, p *pattern) *device {
	s := &device{whole: map[string]any{}}
	liked := map[string]*leaf{}
	p.walk(func(l *leaf, _ bool) {
		if rapid.Bool().Draw(t, "like") {
			liked[l.path] = l
		}
	})
	for _, path := range fieldPool {
		field, _ := facts.FieldOf(path)
		s.put(field.Path, a.valueFor(t, field, liked[field.Path]))
	}
	conditions := map[string]any{}
	for _, name := range a.names {
		bit := a.c.bits[name]
		tri := rapid.SampledFrom([]uint8{triFalse, triTrue, triUnknown}).Draw(t, name)
		if l := liked["conditions."+name]; l != nil && l.tri&tri == 0 {
			tri = l.tri & -l.tri
		}
		conditions[name] = map[uint8]string{triFalse: "False", triTrue: "True", triUnknown: "Unknown"}[tri]
		switch tri {
		case triTrue:
			s.in.yes |= 1 << bit
		case triUnknown:
			s.in.unknown |= 1 << bit
		}
	}
	s.whole["conditions"] = conditions
	s.in.parameters = map[string]any{
		"flag":  rapid.Bool().Draw(t, "flag"),
		"mode":  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "mode"),
		"depth": rapid.SampledFrom([]any{nil, 0, 1, 2, 3, 4}).Draw(t, "depth"),
		"note":  rapid.SampledFrom([]any{nil, "", "x", "xy"}).Draw(t, "note"),
	}
	s.whole["parameters"] = s.in.parameters
	var f facts.Facts
	body, err := json.Marshal(s.whole)
	if err == nil {
		err = json.Unmarshal(body, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.in.facts, s.in.codes = &f, &facts.Codes{}
	f.Intern(s.in.codes)
	return s
}

// valueFor draws the JSON value of one fact.
func (a *asked) valueFor(t *rapid.T, field facts.Field, liked *leaf) any {
	if field.Kind == facts.KindText {
		if field.Nullable && rapid.IntRange(0, 2).Draw(t, "null") == 0 {
			return nil
		}
		return rapid.SampledFrom(textPool).Draw(t, field.Path)
	}
	least := 0
	if !field.Nullable {
		least = 1
	}
	code := rapid.IntRange(least, len(field.Values)).Draw(t, field.Path)
	if liked != nil && len(liked.cube.finite) == 1 {
		for n := range len(field.Values) + 1 - least {
			if try := least + (code-least+n)%(len(field.Values)+1-least); liked.cube.finite[0].allow>>try&1 == 1 {
				code = try
				break
			}
		}
	}
	if code == 0 {
		return nil
	}
	var value any
	if err := json.Unmarshal([]byte(field.Values[code-1]), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func (s *device) put(path string, value any) {
	parts := strings.Split(path, ".")
	at := s.whole
	for _, part := range parts[:len(parts)-1] {
		next, ok := at[part].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[part] = next
		}
		at = next
	}
	at[parts[len(parts)-1]] = value
}
