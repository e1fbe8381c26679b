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

// findingsOf rewords CUE's errors: the policy's place first, the schema's after
// it, and one finding where CUE tells one for each member of a disjunction.
func findingsOf(err error) []Finding {
	var all []*told
	byPlace := map[string]*told{}
	for _, one := range errors.Errors(err) {
		next := tell(one)
		if next == nil {
			continue
		}
		key := fmt.Sprint(next.at, next.path, next.value, next.value == "", next.text)
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
func tell(err errors.Error) *told {
	t := &told{path: strings.Join(err.Path(), "."), text: reworded(err)}
	if t.text == "" {
		return nil
	}
	for _, p := range errors.Positions(err) {
		at := posOf(p)
		switch {
		case at.policy() && (t.at.File == "" || !t.at.policy() || t.at.test() && !at.test()):
			t.at = at
		case !at.policy() && t.schema.File == "":
			t.schema = at
		}
	}
	if t.at.File == "" {
		t.at = t.schema
	}
	format, args := err.Msg()
	if strings.HasPrefix(format, "conflicting values") && len(args) >= 2 {
		t.value, t.allowed = conflict(args)
	}
	return t
}

// conflict tells what was written from what would do: CUE names the two in the
// order in which it met them, so the one that is a name pattern or stands in
// the schema is what would do.
func conflict(args []any) (value string, allowed []string) {
	first, second := fmt.Sprint(args[0]), fmt.Sprint(args[1])
	return second, []string{first}
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
