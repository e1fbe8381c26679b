package engine

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
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
	l.forms()
	l.names(values)
	l.catalogues(values)
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
	l.silence()
	l.catalogue()
	l.scopes()
	l.gates()
	return l.findings
}

// lintSchema compares the bundle's module and schema with those that this
// binary was built with: policies are stored without either, and judged by rules
// that both must know.
func lintSchema(src *source, own fs.FS) []Finding {
	l := &linter{source: src}
	const remedy = "write this binary's schema with muster policy init --schema"
	var names []string
	for _, glob := range []string{"cue.mod/*.cue", "schema/*.cue"} {
		found, err := fs.Glob(own, glob)
		if err != nil {
			return nil
		}
		names = append(names, found...)
	}
	for _, name := range names {
		want, err := fs.ReadFile(own, name)
		have, ok := src.files[name]
		top := path.Dir(name)
		switch {
		case err != nil:
		case !ok && top == "schema":
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "the schema lacks %s: %s", name, remedy)
		case !ok:
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "%s is missing: %s", name, remedy)
		case !bytes.Equal(want, have):
			line := 1 + bytes.Count(have[:differ(want, have)], []byte("\n"))
			what := map[string]string{"schema": "the schema", "cue.mod": "the module"}[top]
			l.say(Pos{File: name, Line: line, Col: 1}, Error, "%s is not the one of this binary: %s", what, remedy)
		}
	}
	for _, name := range src.paths {
		switch {
		case slices.Contains(names, name):
		case strings.HasPrefix(name, "schema/"):
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "this binary's schema has no %s: %s", name, remedy)
		case strings.HasPrefix(name, "cue.mod/"):
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "nothing in cue.mod/ but module.cue takes part: a bundle may not depend on other CUE modules")
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

// entryField is the place of a field of a catalogue entry.
func entryField(v cue.Value, field string) Pos {
	return posOf(v.LookupPath(cue.ParsePath(field)).Pos())
}
