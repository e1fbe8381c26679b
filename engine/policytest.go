package engine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/facts"
)

// TestResult is one policy test, run through the engine that production runs.
type TestResult struct {
	Policy string // conditions.TYPE, writers.NAME.scope, operational, eligibility.SLUG, …
	Name   string
	Pos    Pos
	Passed bool
	Got    string
	Want   string

	// Reached names what the test exercised: "rung NAME" and "branch NAME any 1"
	// of its ladder, "gate NAME refuses" and "gate NAME admits" of its policy.
	Reached []string
}

// Uncovered is a part of a policy that no test reaches.
type Uncovered struct {
	Policy string
	Part   string // as in TestResult.Reached
	Pos    Pos
}

// RunTests runs every policy test of the tree (*_tests.cue) against a bundle,
// which is usually the one that the tree loads to. It fails where the tests
// themselves cannot be read.
func RunTests(fsys fs.FS, b *Bundle) ([]TestResult, error) {
	src, err := readSource(fsys)
	if err != nil {
		return nil, err
	}
	ctx := cuecontext.New()
	values, findings := buildValues(ctx, src)
	if hasErrors(findings) {
		return nil, fmt.Errorf("read the policy tests: %w", &VetError{sortFindings(findings)})
	}
	r := &testRun{bundle: b, compiler: newCompiler(ctx, src)}
	for _, dir := range slices.Sorted(keysOf(values)) {
		r.family(strings.TrimPrefix(dir, "policies/"), values[dir])
	}
	if len(r.problems) > 0 {
		return r.results, fmt.Errorf("read the policy tests: %s", strings.Join(r.problems, "; "))
	}
	return r.results, nil
}

func keysOf[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// testRun collects the results of one run.
type testRun struct {
	bundle   *Bundle
	compiler *compiler // for places only
	results  []TestResult
	problems []string
}

// family runs the tests of one package by the names of its policies.
func (r *testRun) family(name string, v cue.Value) {
	switch name {
	case "conditions":
		r.each(v, "tests", func(kind string, tests cue.Value) {
			if t, ok := r.bundle.byName[kind]; ok {
				r.ladder(t.Emission, tests, t)
			}
		})
		r.each(v, "scopeTests", func(writer string, tests cue.Value) {
			if i := r.bundle.WriterIndex(writer); i >= 0 {
				r.ladder(r.bundle.writerList[i].Scope, tests, nil)
			}
		})
	case "status":
		r.each(v, "tests", func(ladder string, tests cue.Value) { r.ladder(r.bundle.statusLadder(ladder), tests, nil) })
	case "inventory":
		r.each(v, "tests", func(source string, axes cue.Value) {
			if ladders, ok := r.bundle.inventory[source]; ok {
				r.ladder(ladders.class, axes.LookupPath(cue.ParsePath("device_class")), nil)
				r.ladder(ladders.status, axes.LookupPath(cue.ParsePath("inventory_status")), nil)
			}
		})
	case "eligibility":
		r.each(v, "tests", r.eligibility)
	case "workflows":
		r.each(v, "tests", func(field string, tests cue.Value) {
			if field == "clean_removes_trait" {
				r.ladder(r.bundle.cleanTrait, tests, nil)
			}
		})
	case "hardware":
		r.each(v, "tests", r.hardware)
	}
}

// statusLadder finds a ladder of policies/status by its field, nil for none.
func (b *Bundle) statusLadder(field string) *Ladder {
	switch field {
	case "operational":
		return b.operational
	case "health":
		return b.health
	case "freeze":
		return b.freeze
	case "customer_ready":
		return b.customerReady
	case "entered_service":
		return b.entered
	}
	return nil
}

// each calls f on the fields of a field, if it is there.
func (r *testRun) each(v cue.Value, field string, f func(name string, value cue.Value)) {
	if field != "" {
		v = v.LookupPath(cue.MakePath(cue.Str(field)))
	}
	if !v.Exists() {
		return
	}
	it, err := v.Fields()
	if err != nil {
		r.problems = append(r.problems, fmt.Sprintf("%s: %s", r.compiler.posOf(v), brief(err)))
		return
	}
	for it.Next() {
		f(it.Selector().Unquoted(), it.Value())
	}
}

// ladder runs the tests of one ladder; t is set where it is an emission.
func (r *testRun) ladder(l *Ladder, tests cue.Value, t *ConditionType) {
	if l == nil {
		return
	}
	r.each(tests, "", func(name string, test cue.Value) {
		result := TestResult{Policy: l.Name, Name: name, Pos: r.compiler.posOf(test.LookupPath(cue.ParsePath("rung")))}
		in, _, err := r.given(test)
		if err != nil {
			result.Got = err.Error()
			r.results = append(r.results, result)
			return
		}
		rung := l.first(in)
		expect := test.LookupPath(cue.ParsePath("expect"))
		result.Got = l.RungName(rung) + " gives " + l.Gives[rung]
		result.Want = textOf(test, "rung") + " gives " + expectedWord(expect)
		if t != nil {
			result.Got += r.texts(t, rung, in.facts, expect)
			result.Want += expectedTexts(expect)
		}
		result.Passed = result.Got == result.Want
		result.Reached = reached(l, rung, in)
		r.results = append(r.results, result)
	})
}

func expectedWord(expect cue.Value) string {
	switch expect.IncompleteKind() {
	case cue.NullKind:
		return "null"
	case cue.StructKind:
		return textOf(expect, "status")
	}
	return wordOf(expect)
}

// texts are compared as far as the test gives them: always the reason, the
// message where it is not empty.
func (r *testRun) texts(t *ConditionType, rung int, f *facts.Facts, expect cue.Value) string {
	reason, message := r.bundle.Texts(t.Bit, int16(rung), f)
	if textOf(expect, "message") == "" {
		message = ""
	}
	return spellTexts(reason, message)
}

func expectedTexts(expect cue.Value) string {
	return spellTexts(textOf(expect, "reason"), textOf(expect, "message"))
}

func spellTexts(reason, message string) string {
	if message == "" {
		return " " + reason
	}
	return fmt.Sprintf(" %s %q", reason, message)
}

// reached names the rung that decided and, of its alternatives, the ones that
// hold.
func reached(l *Ladder, rung int, in *input) []string {
	parts := []string{"rung " + l.RungName(rung)}
	if rung < len(l.Rungs) {
		for k, q := range l.Rungs[rung].pattern.any {
			if q.matches(in) {
				parts = append(parts, branchName("rung "+l.Rungs[rung].Name, k))
			}
		}
	}
	return parts
}

func branchName(of string, k int) string { return fmt.Sprintf("%s any %d", of, k+1) }

// eligibility runs the tests of one policy.
func (r *testRun) eligibility(slug string, tests cue.Value) {
	policy := r.bundle.eligibility[slug]
	if policy == nil {
		return
	}
	r.each(tests, "", func(name string, test cue.Value) {
		refused := test.LookupPath(cue.ParsePath("refused"))
		result := TestResult{Policy: "eligibility." + slug, Name: name, Pos: r.compiler.posOf(refused)}
		in, masks, err := r.given(test)
		if err != nil {
			result.Got = err.Error()
			r.results = append(r.results, result)
			return
		}
		var codes []string
		for _, refusal := range r.bundle.Admit(slug, &AdmitRequest{Facts: in.facts, Codes: in.codes, Conditions: masks, Parameters: in.parameters}) {
			codes = append(codes, refusal.Code)
		}
		result.Got, result.Want = "refused "+fmt.Sprint(codes), "refused "+fmt.Sprint(textsOf(test, "refused"))
		result.Passed = result.Got == result.Want
		for i := range policy.gates {
			result.Reached = append(result.Reached, policy.gates[i].reached(in)...)
		}
		r.results = append(r.results, result)
	})
}

// reached names what a gate did with an input.
func (g *gate) reached(in *input) []string {
	switch {
	case !g.applies(in):
		return nil
	case !g.require.matches(in):
		return []string{"gate " + g.name + " refuses"}
	}
	parts := []string{"gate " + g.name + " admits"}
	for k, q := range g.require.any {
		if q.matches(in) {
			parts = append(parts, branchName("gate "+g.name, k))
		}
	}
	return parts
}

// given reads the facts, conditions and parameters of a test. What it leaves
// out is null, and a condition has no row.
func (r *testRun) given(test cue.Value) (*input, Masks, error) {
	var given struct {
		facts.Facts
		Conditions map[string]string `json:"conditions"`
		Parameters map[string]any    `json:"parameters"`
	}
	var masks Masks
	body, err := test.LookupPath(cue.ParsePath("given")).MarshalJSON()
	if err != nil {
		return nil, masks, fmt.Errorf("given: %s", brief(err))
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return nil, masks, fmt.Errorf("given: %w", err)
	}
	for name, status := range given.Conditions {
		t, ok := r.bundle.byName[name]
		if !ok {
			return nil, masks, fmt.Errorf("given: no condition type %s in the bundle", name)
		}
		bit := uint64(1) << t.Bit
		masks.Present |= bit
		switch status {
		case "True":
			masks.True |= bit
		case "Unknown":
			masks.Unknown |= bit
		}
	}
	in := inputOf(&given.Facts)
	in.parameters = given.Parameters
	in.yes, in.unknown = r.bundle.whole(masks)
	return in, masks, nil
}

// Uncovered lists the rungs, gates and alternatives that no passing test
// reaches: a rung by deciding, a gate by refusing and by admitting.
func (b *Bundle) Uncovered(results []TestResult) []Uncovered {
	seen := map[[2]string]bool{}
	for _, result := range results {
		for _, part := range result.Reached {
			if result.Passed {
				seen[[2]string{result.Policy, part}] = true
			}
		}
	}
	var missing []Uncovered
	need := func(policy, part string, at Pos) {
		if !seen[[2]string{policy, part}] {
			missing = append(missing, Uncovered{policy, part, at})
		}
	}
	for _, l := range b.Ladders() {
		for i := range l.Rungs {
			need(l.Name, "rung "+l.Rungs[i].Name, l.Rungs[i].Pos)
			for k := range l.Rungs[i].pattern.any {
				need(l.Name, branchName("rung "+l.Rungs[i].Name, k), l.Rungs[i].Pos)
			}
		}
		need(l.Name, "rung "+otherwise, l.otherwisePos)
	}
	for _, class := range slices.Sorted(keysOf(b.hardware)) {
		p := b.hardware[class]
		need("hardware."+class, passes, p.Pos)
		for _, part := range p.parts() {
			need("hardware."+class, part+" differs", p.Pos)
		}
	}
	for _, slug := range b.Policies() {
		for i := range b.eligibility[slug].gates {
			g := &b.eligibility[slug].gates[i]
			need("eligibility."+slug, "gate "+g.name+" refuses", g.pos)
			need("eligibility."+slug, "gate "+g.name+" admits", g.pos)
			for k := range g.require.any {
				need("eligibility."+slug, branchName("gate "+g.name, k), g.pos)
			}
		}
	}
	return missing
}

// Ladders lists every ladder of the bundle: emissions, scopes, status, inventory
// and workflows, each in the order of names.
func (b *Bundle) Ladders() []*Ladder {
	var all []*Ladder
	for i := range b.types {
		if b.types[i].Emission != nil {
			all = append(all, b.types[i].Emission)
		}
	}
	for i := range b.writerList {
		if b.writerList[i].Scope != nil {
			all = append(all, b.writerList[i].Scope)
		}
	}
	all = append(all, b.operational, b.health, b.freeze, b.customerReady, b.entered)
	for _, source := range slices.Sorted(keysOf(b.inventory)) {
		all = append(all, b.inventory[source].class, b.inventory[source].status)
	}
	if b.cleanTrait != nil {
		all = append(all, b.cleanTrait)
	}
	return all
}
