package engine

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// illegible tells of files that are not text in UTF-8. CUE would put something
// else in place of what it cannot read, or read another encoding, where nobody
// else does.
func illegible(src *source) []Finding {
	l := &linter{source: src}
	for _, name := range src.paths {
		data := src.files[name]
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			at += size
		}
		if at < len(data) {
			line := 1 + bytes.Count(data[:at], []byte("\n"))
			l.say(Pos{File: name, Line: line, Col: at - bytes.LastIndexByte(data[:at], '\n')}, Error, "the file is not written in UTF-8 from here on: save it as UTF-8")
		}
	}
	return l.findings
}

// families are the packages that the engine reads, and their fields. A field
// that is none of these decides nothing, whatever it says.
var families = map[string][]string{
	"policies/conditions":  {"conditions", "writers"},
	"policies/status":      {"operational", "health", "freeze", "customer_ready", "entered_service"},
	"policies/inventory":   {"inventory", "progress"},
	"policies/limits":      {"limits"},
	"policies/eligibility": {"eligibility", "refusals"},
	"policies/workflows":   {"workflows", "clean_removes_trait"},
	"policies/hardware":    {"hardware"},
	"policies/operations":  {"operations", "locks", "resets", "components", "defaults", "failure_codes"},
	"policies/failures":    {"failures"},
}

// testFields are the fields of files of tests.
var testFields = []string{"tests", "scopeTests"}

// files tells of files, packages and top-level fields that nobody reads.
func (l *linter) files() {
	for _, name := range l.source.paths {
		if !strings.HasPrefix(name, "policies/") {
			continue
		}
		if why := leftOut(path.Base(name)); why != "" {
			l.say(Pos{File: name, Line: 1, Col: 1}, Warning, "%s", why)
			continue
		}
		file, err := parser.ParseFile(name, l.source.files[name], parser.ParseComments)
		if err != nil {
			continue // told by the loader
		}
		if passedOver(file) {
			l.say(Pos{File: name, Line: 1, Col: 1}, Error, "CUE does not read a file that has no package, or an @if or @ignore before it: begin it with package %s", path.Base(path.Dir(name)))
			continue
		}
		fields, known := families[path.Dir(name)]
		if !known {
			if !l.imported(path.Dir(name)) {
				l.say(Pos{File: name, Line: 1, Col: 1}, Warning, "nothing reads the package %s", path.Dir(name))
			}
			continue
		}
		l.topLevel(file, fields)
	}
}

// leftOut says why CUE reads no file of such a name, "" where it does.
func leftOut(base string) string {
	switch {
	case strings.HasSuffix(base, "_test.cue"):
		return "CUE does not read files named _test.cue: name a file of policy tests _tests.cue"
	case strings.HasSuffix(base, "_tool.cue"):
		return "CUE reads files named _tool.cue for its own commands only: give it another name"
	case strings.HasPrefix(base, "_"), strings.HasPrefix(base, "."):
		return "CUE does not read files whose name begins with _ or a dot: give it another name, or remove it"
	}
	return ""
}

// passedOver reports whether CUE passes a file over because of how it begins.
func passedOver(file *ast.File) bool {
	named, says := false, false
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.Package:
			named = true
		case *ast.CommentGroup:
		case *ast.Attribute:
			if name, _ := decl.Split(); !named && (name == "if" || name == "ignore") {
				return true
			}
			says = true
		default:
			says = true
		}
	}
	return says && !named
}

// imported reports whether a policy imports the package in a folder.
func (l *linter) imported(dir string) bool {
	for _, name := range l.source.paths {
		if !decides(name) || path.Dir(name) == dir {
			continue
		}
		file, err := parser.ParseFile(name, l.source.files[name], parser.ImportsOnly)
		if err != nil {
			continue
		}
		for spec := range file.ImportSpecs() {
			if to, err := literalText(spec.Path.Value); err == nil {
				if to, _, _ = strings.Cut(to, ":"); strings.HasSuffix(to, "/"+dir) {
					return true
				}
			}
		}
	}
	return false
}

// topLevel tells of fields that decide nothing: a file of tests is left out of
// what decides, so a family's own field in it would mean nothing either.
func (l *linter) topLevel(file *ast.File, fields []string) {
	test := (Pos{File: file.Filename}).test()
	for _, decl := range file.Decls {
		field, ok := decl.(*ast.Field)
		if !ok {
			continue
		}
		label, _, err := ast.LabelName(field.Label)
		if err != nil || strings.HasPrefix(label, "_") || strings.HasPrefix(label, "#") {
			continue
		}
		switch {
		case test && slices.Contains(testFields, label):
		case test && slices.Contains(fields, label):
			l.say(posOf(field.Label.Pos()), Error, "a file of tests decides nothing: write %s in a file that is none", label)
		case !slices.Contains(fields, label):
			l.say(posOf(field.Label.Pos()), Error, "nothing reads the field %s%s", label, nearest(label, fields))
		}
	}
}
