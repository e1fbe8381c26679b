package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

// valueText is CUE's own spelling of a value.
func valueText(v cue.Value) string { return fmt.Sprintf("%v", v) }

// brief tells the first of CUE's errors in one line, without its path.
func brief(err error) string {
	for _, one := range errors.Errors(err) {
		if text := reworded(one); text != "" {
			return text
		}
	}
	return firstLine(err.Error())
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// told is one of CUE's errors on its way to a finding.
type told struct {
	at      Pos
	schema  Pos
	path    string
	text    string
	value   string   // of a conflict: what was written
	allowed []string // of a conflict: what would do
}

// findingsOf rewords CUE's errors about the package in dir: the policy's place
// first, the schema's after it, and one finding where CUE tells one for each
// member of a disjunction.
func findingsOf(err error, src *source, dir string) []Finding {
	var all []*told
	byPlace := map[string]*told{}
	for _, one := range errors.Errors(err) {
		next := tell(one, src, dir)
		if next == nil {
			continue
		}
		key := fmt.Sprint(next.at, next.path, next.text)
		if next.value != "" {
			key = fmt.Sprint(next.at, next.path, next.value)
		}
		if known, ok := byPlace[key]; ok {
			known.allowed = append(known.allowed, next.allowed...)
			continue
		}
		byPlace[key] = next
		all = append(all, next)
	}
	findings := make([]Finding, 0, len(all))
	for _, t := range all {
		if t.at.File == "" {
			t.at.File = dir
		}
		findings = append(findings, findingAt(t.at, Error, "%s", t.message()))
	}
	return findings
}

func (t *told) message() string {
	text := t.text
	if t.value != "" {
		slices.Sort(t.allowed)
		text = fmt.Sprintf("%s is not one of %s", t.value, strings.Join(shortened(slices.Compact(t.allowed)), ", "))
	}
	if t.path != "" {
		text = t.path + ": " + text
	}
	if t.schema.File != "" && t.schema != t.at {
		text += " (" + t.schema.Short() + ")"
	}
	return text
}

// shortened keeps a list readable.
func shortened(list []string) []string {
	const most = 16
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("… (%d more)", len(list)-most))
}

// tell reads one error, nil for the heading over the errors of a disjunction.
// Of the places that CUE names the best is the one where the offending value or
// field is written, then one in the package itself, then one in any policy.
func tell(err errors.Error, src *source, dir string) *told {
	t := &told{text: reworded(err)}
	if t.text == "" {
		return nil
	}
	path := err.Path()
	t.path = strings.Join(path, ".")
	format, args := err.Msg()
	spelled := []string{}
	if strings.HasPrefix(format, "conflicting values") && len(args) >= 2 {
		t.value, t.allowed = fmt.Sprint(args[1]), []string{fmt.Sprint(args[0])}
		spelled = append(spelled, t.value, t.allowed[0])
	} else if len(args) > 0 {
		spelled = append(spelled, fmt.Sprint(args[0]))
	}
	if len(path) > 0 {
		spelled = append(spelled, path[len(path)-1])
	}
	best := -1
	for _, p := range errors.Positions(err) {
		at := posOf(p)
		if !at.policy() {
			if t.schema.File == "" {
				t.schema = at
			}
			continue
		}
		score := 0
		if !at.test() {
			score++
		}
		if strings.HasPrefix(at.File, dir+"/") {
			score += 2
		}
		written := slices.IndexFunc(spelled, func(text string) bool { return src.writes(at.File, p.Offset(), text) })
		if written >= 0 {
			score += 4
		}
		if score <= best {
			continue
		}
		best, t.at = score, at
		if t.value != "" && written == 1 {
			t.value, t.allowed = spelled[1], spelled[:1:1]
		} else if t.value != "" {
			t.value, t.allowed = spelled[0], spelled[1:2:2]
		}
	}
	if t.at.File == "" {
		t.at = t.schema
	}
	return t
}

// writes reports whether a file has a text at an offset.
func (s *source) writes(file string, offset int, text string) bool {
	data := s.files[file]
	return text != "" && offset >= 0 && offset <= len(data) && strings.HasPrefix(string(data[offset:min(len(data), offset+len(text))]), text)
}

var (
	outOfBound = regexp.MustCompile(`^invalid value (.*) \(out of bound =~"\^\((.*)\)\$"\)$`)
	notPattern = regexp.MustCompile(`^invalid value (.*) \(out of bound =~(.*)\)$`)
)

// reworded tells an error in the words of whoever edits policies.
func reworded(err errors.Error) string {
	format, args := err.Msg()
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	switch {
	case strings.Contains(text, "errors in empty disjunction"):
		return ""
	case text == "field not allowed":
		return "no such field"
	case strings.HasPrefix(text, "field is required but not present"):
		return "is missing"
	case strings.HasPrefix(text, "incomplete value"):
		return "is missing or has no definite value: " + strings.TrimPrefix(text, "incomplete value ")
	}
	if m := outOfBound.FindStringSubmatch(text); m != nil && !strings.ContainsAny(m[2], `[](){}+*\`) {
		return fmt.Sprintf("%s is not one of %s", m[1], strings.Join(shortened(strings.Split(m[2], "|")), ", "))
	}
	if m := notPattern.FindStringSubmatch(text); m != nil {
		expr := []rune(m[2])
		if len(expr) > 120 {
			expr = append(expr[:119:119], '…')
		}
		return fmt.Sprintf("%s does not fit %s", m[1], string(expr))
	}
	return text
}
