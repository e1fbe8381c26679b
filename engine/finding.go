package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/token"
)

// Pos is a place in a file of the bundle. File is slash-separated and relative
// to the bundle; Line and Col count from 1. The zero Pos is nowhere.
type Pos struct {
	File string
	Line int
	Col  int
}

// String gives "file:line:col", the file alone where there is no line, or "-"
// for nowhere.
func (p Pos) String() string {
	switch {
	case p.File == "":
		return "-"
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Short gives "file:line", as traces quote it.
func (p Pos) Short() string {
	if p.File == "" {
		return "-"
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// policy reports whether the place is in a file that operators edit.
func (p Pos) policy() bool { return strings.HasPrefix(p.File, "policies/") }

// test reports whether the place is in a file of policy tests.
func (p Pos) test() bool { return strings.HasSuffix(p.File, "_tests.cue") }

func posOf(p token.Pos) Pos {
	if !p.IsValid() {
		return Pos{}
	}
	return Pos{File: strings.TrimPrefix(p.Filename(), "/"), Line: p.Line(), Col: p.Column()}
}

// Severity says how bad a finding is.
type Severity uint8

// The severities. A bundle with an error is not usable; a warning fails
// `muster vet --strict`; a note is for the reader.
const (
	Error Severity = iota
	Warning
	Note
)

// String gives "error", "warning" or "note".
func (s Severity) String() string { return [...]string{"error", "warning", "note"}[s] }

// Finding is one thing that vetting has to say about a bundle.
type Finding struct {
	File     string
	Line     int
	Col      int
	Severity Severity
	Message  string
}

// String gives "file:line:col: message", with the severity before the message
// unless it is an error.
func (f Finding) String() string {
	message := f.Message
	if f.Severity != Error {
		message = f.Severity.String() + ": " + message
	}
	return Pos{f.File, f.Line, f.Col}.String() + ": " + message
}

// findingAt makes a finding at a place.
func findingAt(p Pos, severity Severity, format string, args ...any) Finding {
	return Finding{File: p.File, Line: p.Line, Col: p.Col, Severity: severity, Message: fmt.Sprintf(format, args...)}
}

// VetError says why a bundle cannot be used: every error that was found, in
// policies first, then in the schema, in the order of files and lines.
type VetError struct{ Findings []Finding }

// Error lists the findings, one a line.
func (e *VetError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// sortFindings orders findings for people: errors before warnings before notes,
// policies before the rest, tests last, then by file, line and column; what is
// said twice of one place is said once.
func sortFindings(findings []Finding) []Finding {
	rank := func(f Finding) int {
		p := Pos{File: f.File}
		switch {
		case p.test():
			return 2
		case p.policy():
			return 0
		}
		return 1
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(findings)
}

func hasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error })
}
