package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
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
	other   Pos // of a conflict within the policies: where the other value stands
	path    string
	text    string
	value   string   // of a conflict: what was written
	allowed []string // of a conflict: what would do
}

// findingsOf rewords CUE's errors about the package in dir: the policy's place
// first, the schema's after it, and one finding where CUE tells one for each
// member of a disjunction. v is what was built of the package, if anything was.
func findingsOf(err error, src *source, dir string, v cue.Value) []Finding {
	var all []*told
	byPlace := map[string]*told{}
	bounds := map[string]bool{}
	for _, one := range errors.Errors(err) {
		next := tell(one, src, dir)
		if next == nil {
			continue
		}
		next.twice(one, v)
		if !next.at.policy() {
			if at := nearestWritten(v, one.Path()); at.policy() {
				next.at = at
			}
		}
		spot := fmt.Sprint(next.at, next.path)
		key := spot + next.text
		if next.value != "" {
			key = spot + next.value
		} else {
			bounds[spot] = true
		}
		if known, ok := byPlace[key]; ok {
			known.allowed = append(known.allowed, next.allowed...)
			continue
		}
		byPlace[key] = next
		all = append(all, next)
	}
	if root := slices.DeleteFunc(slices.Clone(all), (*told).follows); len(root) > 0 {
		all = root
	}
	findings := make([]Finding, 0, len(all))
	for _, t := range all {
		if t.value != "" && bounds[fmt.Sprint(t.at, t.path)] {
			continue // of a choice that has a pattern and a value, the pattern tells more
		}
		if t.at.File == "" {
			t.at.File = dir
		}
		findings = append(findings, findingAt(t.at, Error, "%s", t.message()))
	}
	return findings
}

// twice rewords the conflict that the schema makes of two rungs or gates of one
// name: its values are their places in the list.
func (t *told) twice(err errors.Error, v cue.Value) {
	path := err.Path()
	at := len(path) - 2
	if at < 0 || path[at] != "_rung" && path[at] != "_gate" {
		return
	}
	list, name := map[string]string{"_rung": "rungs", "_gate": "gates"}[path[at]], path[at+1]
	later := strconv.Itoa(max(number(t.value), number(t.allowed...)))
	t.path, t.text, t.value, t.schema = strings.Join(path[:at], "."), fmt.Sprintf("two %s are named %s", list, name), "", Pos{}
	if place := nearestWritten(v, append(slices.Clone(path[:at]), list, later)); place.policy() {
		t.at = place
	}
}

func number(texts ...string) int {
	for _, text := range texts {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return 0
}

// follows reports whether the error only says that something which failed was
// used.
func (t *told) follows() bool {
	for _, how := range []string{"invalid interpolation", "invalid left-hand value", "error in call to"} {
		if strings.HasPrefix(t.text, how) {
			return true
		}
	}
	return false
}

// nearestWritten is where a policy writes the value at a path or, where it does
// not, the nearest value above it: the place at which something is missing.
func nearestWritten(v cue.Value, path []string) Pos {
	var best Pos
	for _, name := range path {
		selector := cue.Str(name)
		switch {
		case strings.HasPrefix(name, "_"):
			return best
		case strings.HasPrefix(name, "#"):
			selector = cue.Def(name)
		case v.IncompleteKind() == cue.ListKind:
			if at, err := strconv.Atoi(name); err == nil {
				selector = cue.Index(at)
			}
		default:
			if unquoted, err := literalText(name); err == nil {
				selector = cue.Str(unquoted)
			}
		}
		if v = v.LookupPath(cue.MakePath(selector)); !v.Exists() {
			return best
		}
		if at := writtenStruct(v); at.policy() {
			best = at
		}
	}
	return best
}

// writtenStruct is where a policy writes a value: what is unified with it
// directly goes before what ties it to the schema.
func writtenStruct(v cue.Value) Pos {
	op, args := v.Expr()
	if op != cue.AndOp {
		return posOf(v.Pos())
	}
	var tied Pos
	for _, arg := range args {
		at := posOf(arg.Pos())
		if sub, _ := arg.Expr(); sub == cue.NoOp && at.policy() {
			return at
		}
		if at.policy() && tied.File == "" {
			tied = at
		}
	}
	return tied
}

func (t *told) message() string {
	text := t.text
	switch {
	case t.value != "" && t.other.File != "":
		text = fmt.Sprintf("%s conflicts with %s, which %s says", t.value, t.allowed[0], t.other.Short())
	case t.value != "":
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
	var places []Pos
	for _, p := range errors.Positions(err) {
		at := posOf(p)
		places = append(places, at)
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
	if t.value != "" && t.schema.File == "" && len(places) == 2 {
		t.other = places[0]
		if t.other == t.at {
			t.other = places[1]
		}
	}
	return t
}

// writes reports whether a file has a text at an offset, spaces apart.
func (s *source) writes(file string, offset int, text string) bool {
	data := s.files[file]
	if text == "" || offset < 0 || offset > len(data) {
		return false
	}
	near := string(data[offset:min(len(data), offset+2*len(text))])
	return strings.HasPrefix(strings.ReplaceAll(near, " ", ""), strings.ReplaceAll(text, " ", ""))
}

var (
	outOfBound = regexp.MustCompile(`^invalid value (.*) \(out of bound =~"\^\((.*)\)\$"\)$`)
	notPattern = regexp.MustCompile(`^invalid value (.*) \(out of bound =~(.*)\)$`)
)

// reworded tells an error in the words of whoever edits policies.
func reworded(err errors.Error) string {
	text := said(err)
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
	if strings.Contains(text, "does not satisfy strings.MaxRunes") {
		return fmt.Sprintf("the text is longer than %d letters", maxMessage)
	}
	m := notPattern.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	if why := unfitText(err.Path(), m[1]); why != "" {
		return why
	}
	expr := []rune(m[2])
	if len(expr) > 120 {
		expr = append(expr[:119:119], '…')
	}
	return fmt.Sprintf("%s does not fit %s", m[1], string(expr))
}

// said is what an error says in one line, what it stands for included: an
// import that failed is told by why it failed.
func said(err errors.Error) string {
	format, args := err.Msg()
	text := fmt.Sprintf(format, args...)
	if inner := errors.Unwrap(err); inner != nil {
		for next := inner; next != nil; next = errors.Unwrap(next) {
			inner = next
		}
		why := inner.Error()
		if told, ok := inner.(errors.Error); ok {
			format, args := told.Msg()
			why = fmt.Sprintf(format, args...)
		}
		if len(args) == 0 && format == "%s" {
			text = why
		} else if !strings.Contains(text, why) {
			text += ": " + why
		}
	}
	return strings.TrimPrefix(strings.Join(strings.Fields(text), " "), ": ")
}

// unfitText says what is wrong with a reason or message that does not fit the
// schema's pattern for it, "" for another field.
func unfitText(path []string, quoted string) string {
	field := path[max(0, len(path)-1):]
	text, err := strconv.Unquote(quoted)
	if err != nil || !slices.Contains([]string{"reason", "message"}, strings.Join(field, "")) {
		return ""
	}
	if _, err := templateOf(text); err != nil {
		return err.Error()
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Sprintf("%s says nothing: write a %s", quoted, field[0])
	}
	if field[0] == "reason" {
		return fmt.Sprintf("%s is no reason: write one CamelCase word of at most %d letters and digits, or one fact as {ironic.provision_state:camel}", quoted, maxReason)
	}
	return fmt.Sprintf("%s is no text: braces quote facts, as in {ironic.last_error}, and nothing in it may be unprintable", quoted)
}
