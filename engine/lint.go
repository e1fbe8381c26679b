package engine

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// linter looks for what CUE cannot see and the compiler does not mind: names
// that are dropped in silence, rungs and gates that decide nothing, and what a
// policy promises without knowing. It changes nothing.
type linter struct {
	bundle   *Bundle
	source   *source
	space    *space
	findings []Finding
}

func (l *linter) say(p Pos, severity Severity, format string, args ...any) {
	l.findings = append(l.findings, findingAt(p, severity, format, args...))
}

// lintText looks at the files as they are written. It needs no bundle that
// compiles: a name that CUE dropped is often why it does not.
func lintText(src *source, values packages) []Finding {
	l := &linter{source: src}
	l.files()
	l.names(values)
	l.failures(values)
	return l.findings
}

// lintBundle looks at what the files came to.
func lintBundle(b *Bundle) []Finding {
	l := &linter{bundle: b, space: newSpace(b)}
	status := []*Ladder{b.operational, b.health, b.freeze, b.customerReady, b.entered}
	for _, ladder := range b.Ladders() {
		l.ladder(ladder, slices.Contains(status, ladder))
	}
	for i := range b.types {
		if b.types[i].Emission != nil {
			l.emission(&b.types[i])
		}
	}
	l.operational(b.operational)
	l.catalogue()
	l.gates()
	return l.findings
}

// lintSchema compares the bundle's schema with the one that this binary was
// built with: policies are judged by rules that both must know.
func lintSchema(src *source, own fs.FS) []Finding {
	l := &linter{source: src}
	const remedy = "write this binary's schema with muster policy init --schema"
	names, err := fs.Glob(own, "schema/*.cue")
	if err != nil {
		return nil
	}
	for _, name := range names {
		want, err := fs.ReadFile(own, name)
		have, ok := src.files[name]
		switch {
		case err != nil:
		case !ok:
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "the schema lacks %s: %s", name, remedy)
		case !bytes.Equal(want, have):
			line := 1 + bytes.Count(have[:differ(want, have)], []byte("\n"))
			l.say(Pos{File: name, Line: line, Col: 1}, Error, "the schema is not the one of this binary: %s", remedy)
		}
	}
	for _, name := range src.paths {
		if strings.HasPrefix(name, "schema/") && !slices.Contains(names, name) {
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "this binary's schema has no %s: %s", name, remedy)
		}
	}
	return l.findings
}

// differ gives the first place at which two texts differ.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// families are the packages that the engine reads, and their fields. A field
// that is none of these decides nothing, whatever it says.
var families = map[string][]string{
	"policies/conditions":  {"conditions", "writers"},
	"policies/status":      {"operational", "health", "freeze", "customer_ready", "entered_service"},
	"policies/inventory":   {"inventory"},
	"policies/limits":      {"limits"},
	"policies/eligibility": {"eligibility"},
	"policies/workflows":   {"workflows"},
	"policies/failures":    {"failures"},
}

// testFields are the fields of files of tests.
var testFields = []string{"tests", "scopeTests"}

// files tells of files and top-level fields that nobody reads.
func (l *linter) files() {
	for _, name := range l.source.paths {
		if !strings.HasPrefix(name, "policies/") {
			continue
		}
		fields, known := families[path.Dir(name)]
		switch {
		case strings.HasSuffix(name, "_test.cue"):
			l.say(Pos{File: name, Line: 1, Col: 1}, Warning, "CUE does not read files named _test.cue: name a file of policy tests _tests.cue")
			continue
		case !known:
			l.say(Pos{File: name, Line: 1, Col: 1}, Warning, "nothing reads the package %s", path.Dir(name))
			continue
		}
		if (Pos{File: name}).test() {
			fields = append(slices.Clone(fields), testFields...)
		}
		file, err := parser.ParseFile(name, l.source.files[name])
		if err != nil {
			continue // told by the loader
		}
		for _, decl := range file.Decls {
			field, ok := decl.(*ast.Field)
			if !ok {
				continue
			}
			label, _, err := ast.LabelName(field.Label)
			if err == nil && !strings.HasPrefix(label, "_") && !strings.HasPrefix(label, "#") && !slices.Contains(fields, label) {
				l.say(posOf(field.Label.Pos()), Error, "nothing reads the field %s%s", label, nearest(label, fields))
			}
		}
	}
}

// failures tells of failure codes that no workflow raises.
func (l *linter) failures(values packages) {
	catalogue := values["policies/failures"].LookupPath(cue.ParsePath("failures"))
	entries := values["policies/workflows"].LookupPath(cue.ParsePath("workflows"))
	if !catalogue.Exists() || !entries.Exists() {
		return
	}
	it, err := catalogue.Fields()
	if err != nil {
		return
	}
	raised := map[string]bool{}
	workflows, err := entries.Fields()
	for err == nil && workflows.Next() {
		for _, code := range textsOf(workflows.Value(), "failure_codes") {
			raised[code] = true
		}
	}
	for it.Next() {
		if code := it.Selector().Unquoted(); !raised[code] {
			l.say(entryField(it.Value(), "meaning"), Warning, "failures.%s: no workflow raises it", code)
		}
	}
}

// entryField is the place of a field of a catalogue entry.
func entryField(v cue.Value, field string) Pos {
	return posOf(v.LookupPath(cue.ParsePath(field)).Pos())
}
