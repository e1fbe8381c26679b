package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a document, or odd.
type Problem struct {
	Path    string `json:"path"`    // such as rules[1].steps[0].post_operation[2].parameters.duration; "" for the whole
	Line    int    `json:"line"`    // from 1; 0: it stands nowhere
	Column  int    `json:"column"`  // from 1, in bytes
	Message string `json:"message"` // what was found and what is allowed
}

// Invalid says everything that is wrong with a document.
type Invalid struct {
	Name     string // of the document, "" for none
	Problems []Problem
}

// Error tells one problem a line.
func (e *Invalid) Error() string { return Lines(e.Name, e.Problems) }

// Lines writes problems as name:line:column: path: message, one a line.
func Lines(name string, problems []Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		at := name
		if p.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d", cmp.Or(name, "line "), p.Line, p.Column)
			at = strings.Replace(at, "line :", "line ", 1)
		}
		parts := slices.DeleteFunc([]string{at, p.Path, p.Message}, func(part string) bool { return part == "" })
		lines[i] = strings.Join(parts, ": ")
	}
	return strings.Join(lines, "\n")
}

// sorted puts problems in the order of the document, one of a kind.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Path, b.Path))
	})
	return slices.Compact(problems)
}

// meant says which of the names was meant by one that is none of them.
func meant(name string, names []string) string {
	best, least := "", 1+len(name)/4
	for _, one := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(one)); d <= least && (best == "" || d < least) {
			best, least = one, d
		}
	}
	return best
}

// distance counts the letters to put in, to take out and to change.
func distance(a, b string) int {
	if len(a) > 60 || len(b) > 60 {
		return 60
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost++
			}
			above = row[j+1]
			row[j+1] = min(cost, row[j]+1, above+1)
		}
	}
	return row[len(b)]
}
