package engine

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/facts"
)

// What a condition row holds, in runes.
const (
	maxReason  = 64
	maxMessage = 1024
)

// template is a text that quotes facts: "{family.fact}", or
// "{family.fact:camel}" for a fact spelt as a CamelCase reason. A fact that is
// null quotes as "null", so that a message never hides that it was not known.
type template struct {
	parts []part
}

// part is a stretch of text, or a quoted fact.
type part struct {
	text  string
	path  string
	camel bool
}

// templateOf reads a text. A path that is no fact is an error.
func templateOf(text string) (template, error) {
	var t template
	for rest := text; rest != ""; {
		plain, quoted, found := strings.Cut(rest, "{")
		if plain != "" {
			t.parts = append(t.parts, part{text: plain})
		}
		if !found {
			break
		}
		path, after, closed := strings.Cut(quoted, "}")
		if !closed {
			return t, fmt.Errorf("the text %q has { without }", text)
		}
		path, camel := strings.CutSuffix(path, ":camel")
		if _, ok := facts.FieldOf(path); !ok {
			return t, fmt.Errorf("the text %q quotes %s, which is no fact%s", text, path, nearest(path, quotable()))
		}
		t.parts = append(t.parts, part{path: path, camel: camel})
		rest = after
	}
	return t, nil
}

// quotable lists the facts that a text may quote.
func quotable() []string {
	var paths []string
	for _, f := range facts.Fields {
		if _, token := cutToken(f.Path); !token {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// render fills in the facts and keeps to a length in runes.
func (t template) render(f *facts.Facts, limit int) string {
	if len(t.parts) == 1 && t.parts[0].path == "" {
		return truncate(t.parts[0].text, limit)
	}
	var out strings.Builder
	for _, p := range t.parts {
		switch {
		case p.path == "":
			out.WriteString(p.text)
		case p.camel:
			out.WriteString(camel(f.Value(p.path)))
		default:
			out.WriteString(f.Value(p.path))
		}
	}
	return truncate(out.String(), limit)
}

// fixed reports whether the text quotes no fact.
func (t template) fixed() bool {
	for _, p := range t.parts {
		if p.path != "" {
			return false
		}
	}
	return true
}

// camel spells "deploy failed" DeployFailed. What is no letter or digit ends a
// word; a text without any gives "Unspecified", a leading digit an X before it.
func camel(text string) string {
	var out strings.Builder
	start := true
	for _, r := range text {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			start = true
			continue
		}
		if out.Len() == 0 && unicode.IsDigit(r) {
			out.WriteByte('X')
		}
		if start {
			r = unicode.ToUpper(r)
		}
		out.WriteRune(r)
		start = false
	}
	if out.Len() == 0 {
		return "Unspecified"
	}
	return out.String()
}

// truncate cuts a text to a number of runes, the last one "…", and drops what
// is no UTF-8 or no printable text, so that every row can be stored and shown.
func truncate(text string, limit int) string {
	if len(text) <= limit && clean(text) {
		return text
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError || r == 0:
			return -1
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r):
			return ' '
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return string(runes[:limit-1]) + "…"
}

func clean(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return false
		}
	}
	return true
}
