package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
)

// Semantics numbers how the engine judges by a bundle. It is recorded beside
// the version with every decision, and grows when the same policies would be
// judged otherwise.
const Semantics = 1

// Options say how a bundle is loaded.
type Options struct {
	// Bits gives condition types their bit in stored masks, as the database
	// remembers them. A type that is not in it gets the next free bit, in the
	// order of names.
	Bits map[string]uint8

	// Tests vets the files of policy tests too. They decide nothing.
	Tests bool

	// Schema is the tree of the binary's own bundle. A bundle whose schema/ is
	// another is refused; nil compares nothing.
	Schema fs.FS
}

// Load reads a bundle once, vets what it read and compiles it. A bundle with
// errors is not returned: the error is then a *VetError with every error
// found, and the findings hold the warnings and notes beside them.
func Load(fsys fs.FS, opts Options) (*Bundle, []Finding, error) {
	src, err := readSource(fsys)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		findings := []Finding{findingAt(Pos{File: refused.name}, Error, "%s", refused.why)}
		return nil, findings, &VetError{findings}
	case err != nil:
		return nil, nil, err
	}
	findings := illegible(src)
	var b *Bundle
	if len(findings) == 0 {
		b, findings = loadSource(src, opts)
	}
	if opts.Schema != nil {
		findings = append(findings, lintSchema(src, opts.Schema)...)
	}
	findings = sortFindings(findings)
	if hasErrors(findings) {
		errs := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != Error })
		return nil, findings, &VetError{errs}
	}
	return b, findings, nil
}

// loadSource loads without tests what production loads. With tests, errors of
// the tests are told only of a bundle whose policies have none: a test that
// fails because a rung is misspelt says nothing of its own.
func loadSource(src *source, opts Options) (*Bundle, []Finding) {
	if opts.Tests {
		_, findings := buildValues(cuecontext.New(), src)
		if hasErrors(findings) {
			if b, own := loadSource(src.withoutTests(), Options{Bits: opts.Bits}); b == nil {
				return nil, own
			}
			return nil, findings
		}
	}
	lean := src.withoutTests()
	ctx := cuecontext.New()
	values, findings := buildValues(ctx, lean)
	if hasErrors(findings) {
		return nil, findings
	}
	c := newCompiler(ctx, lean)
	c.ties(values)
	b := c.bundle(values, opts.Bits)
	c.joins()
	b.version, b.schema = src.version(), src.schema()
	findings = append(findings, lintText(src, values)...)
	if !hasErrors(c.findings) {
		c.derivation(b)
		findings = append(findings, lintBundle(b)...)
	}
	if findings = append(findings, c.findings...); hasErrors(findings) {
		return nil, findings
	}
	b.cost = c.cost
	b.cost.Files = len(lean.paths)
	return b, findings
}

// packages holds the built packages by folder, such as "policies/status".
type packages map[string]cue.Value

// buildValues loads and evaluates every package of the tree with CUE.
func buildValues(ctx *cue.Context, src *source) (packages, []Finding) {
	values := packages{}
	instances := load.Instances(src.packages(), &load.Config{
		FS:       src,
		Dir:      "/",
		Registry: refuseModules{},
		Env:      []string{},
	})
	own := map[string][]Finding{}
	var dirs []string
	for _, instance := range instances {
		dir := strings.TrimPrefix(path.Clean(instance.Dir), "/")
		dirs = append(dirs, dir)
		if instance.Err != nil {
			if instance.Dir == "" { // it is none of a package
				dir = "cue.mod/module.cue"
				dirs[len(dirs)-1] = dir
			}
			own[dir] = findingsOf(instance.Err, src, dir, cue.Value{})
			continue
		}
		v := ctx.BuildInstance(instance)
		values[dir] = v
		// Validate tells every error of a package, Err only the first.
		err := v.Validate(cue.Attributes(true), cue.Optional(true), cue.Hidden(true), cue.Concrete(true))
		if err == nil {
			err = v.Err()
		}
		if err != nil {
			own[dir] = findingsOf(err, src, dir, v)
		}
	}
	return values, atWorkflows(gathered(dirs, own), values)
}

// atWorkflows puts what is said of a workflow or operation without eligibility
// where that is: of what is missing CUE knows no place.
func atWorkflows(findings []Finding, values packages) []Finding {
	for i := range findings {
		f := &findings[i]
		slug, of := strings.CutPrefix(f.Message, "eligibility.")
		slug, missing := strings.CutSuffix(slug, ": is missing")
		if !of || !missing || strings.Contains(slug, ".") {
			continue
		}
		family, name, what := "workflows", slug, "workflow"
		if code, ok := strings.CutPrefix(slug, operationPrefix); ok {
			family, name, what = "operations", code, "operation"
		}
		entry := values["policies/"+family].LookupPath(cue.MakePath(cue.Str(family), cue.Str(name)))
		if at := entryField(entry, "title"); entry.Exists() && at.policy() {
			*f = findingAt(at, f.Severity, "eligibility.%s is missing: say in policies/eligibility/%[1]s.cue which devices the %s may run on", slug, what)
		}
	}
	return findings
}

// gathered joins the findings of all packages. A package repeats the errors of
// the packages that it imports: what lies in a package that has findings of its
// own is left to that package.
func gathered(dirs []string, own map[string][]Finding) []Finding {
	var all []Finding
	for _, dir := range dirs {
		for _, f := range own[dir] {
			if at := path.Dir(f.File); at == dir || f.File == dir || len(own[at]) == 0 {
				all = append(all, f)
			}
		}
	}
	return all
}

// family finds a package's field; where it is missing that is a finding.
func (c *compiler) family(values packages, dir, field string) (cue.Value, bool) {
	v, ok := values[dir]
	if !ok {
		c.fail(Pos{File: dir}, "%s is missing: a bundle needs it (muster policy init writes the shipped one)", dir)
		return cue.Value{}, false
	}
	found := v.LookupPath(cue.MakePath(cue.Str(field)))
	if !found.Exists() {
		c.fail(Pos{File: dir}, "%s: the field %s is missing", dir, field)
		return cue.Value{}, false
	}
	return found, true
}

// bundle compiles every family.
func (c *compiler) bundle(values packages, bits map[string]uint8) *Bundle {
	b := &Bundle{byName: map[string]*ConditionType{}, inventory: map[string]*inventoryAxes{}, eligibility: map[string]*eligibility{}, hardware: map[string]*HardwareProfile{}}
	if v, ok := c.family(values, "policies/conditions", "conditions"); ok {
		if !c.catalogue(b, v, bits) {
			return b // every pattern that names a type without a bit would be an error of its own
		}
	}
	if v, ok := c.family(values, "policies/conditions", "writers"); ok {
		c.writers(b, v)
	}
	c.status(b, values)
	if v, ok := c.family(values, "policies/inventory", "inventory"); ok {
		c.inventory(b, v)
	}
	if v, ok := c.family(values, "policies/limits", "limits"); ok {
		c.limits(b, v)
	}
	c.catalogues(b, values)
	c.hardware(b, values)
	c.progress(b, values)
	c.clean(b, values)
	c.operations(b, values["policies/operations"])
	if v, ok := c.family(values, "policies/eligibility", "eligibility"); ok {
		c.eligibility(b, v)
	}
	return b
}

// each calls f on the fields of a struct, and tells what keeps it from that.
func (c *compiler) each(v cue.Value, what string, f func(name string, value cue.Value)) {
	it, err := v.Fields()
	if err != nil {
		c.fail(c.posOf(v), "%s: %s", what, brief(err))
		return
	}
	for it.Next() {
		f(it.Selector().Unquoted(), it.Value())
	}
}

// textOf reads a text field, "" where there is none.
func textOf(v cue.Value, field string) string {
	text, _ := v.LookupPath(cue.MakePath(cue.Str(field))).String()
	return text
}

// textsOf reads a field that is a text or a list of texts.
func textsOf(v cue.Value, field string) []string {
	found := v.LookupPath(cue.MakePath(cue.Str(field)))
	if text, err := found.String(); err == nil {
		return []string{text}
	}
	var texts []string
	if err := found.Decode(&texts); err != nil {
		return nil
	}
	return texts
}

func flagOf(v cue.Value, field string) bool {
	flag, _ := v.LookupPath(cue.MakePath(cue.Str(field))).Bool()
	return flag
}

// wordOf is the text that a rung gives, "" for null.
func wordOf(then cue.Value) string {
	text, err := then.String()
	if err != nil {
		return ""
	}
	return text
}

// parsed reads a word as a value of a closed set; what is none is a finding.
func parsed[T any](c *compiler, then cue.Value, parse func(string) (T, bool)) T {
	value, ok := parse(wordOf(then))
	if !ok {
		c.fail(c.posOf(then), "%s is not a value that this ladder can give", fmt.Sprint(then))
	}
	return value
}
