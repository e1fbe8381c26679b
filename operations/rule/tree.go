package rule

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// How large a document may be.
const (
	maxBytes = 512 << 10
	maxDepth = 24
	maxNodes = 50_000
)

// Document is a text that holds rules.
type Document struct {
	Name string // of the file, for messages and for its form; "" for none
	Data []byte
	YAML bool // else its form is told by the name, or it is JSON
}

func (d *Document) yaml() bool {
	switch strings.ToLower(filepath.Ext(d.Name)) {
	case ".yaml", ".yml":
		return true
	case ".json":
		return false
	}
	return d.YAML
}

type kind int

const (
	aMap kind = iota
	aList
	aText
	aNumber // its text is a decimal number
	aBool
	aNull
	anOddity // it may mean this or that: text says so, ready to be shown
)

// node is one value of a document and where it stands.
type node struct {
	kind   kind
	text   string // of a scalar
	line   int
	column int
	fields []*member
	items  []*node
}

// member is one field of a map.
type member struct {
	name   string
	line   int
	column int
	value  *node
}

func (n *node) field(name string) *node {
	for _, m := range n.fields {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// shown is how a message shows a value.
func (n *node) shown() string {
	switch n.kind {
	case aMap:
		return "an object"
	case aList:
		return "a list"
	case aText:
		return quoted(n.text)
	case aNull:
		return "nothing"
	}
	return clipped(n.text)
}

func quoted(text string) string { return fmt.Sprintf("%q", clipped(text)) }

func clipped(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return text
}

// reader turns a document into a tree. What the form of the document forbids is
// noted, and the rest is read on.
type reader struct {
	problems []Problem
	nodes    int
}

func (r *reader) note(path string, line, column int, format string, args ...any) {
	r.problems = append(r.problems, Problem{Path: path, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// room counts a value, and reports whether it may still be read.
func (r *reader) room(path string, depth, line, column int) bool {
	r.nodes++
	switch {
	case depth > maxDepth:
		r.note(path, line, column, "it nests deeper than %d levels", maxDepth)
	case r.nodes == maxNodes:
		r.note("", line, column, "it holds more than %d values", maxNodes)
	}
	return depth <= maxDepth && r.nodes < maxNodes
}

// read gives the tree of a document, nil where it has none.
func (r *reader) read(d *Document) *node {
	data := d.Data
	if len(data) > maxBytes {
		r.note("", 0, 0, "it is larger than %d KiB", maxBytes>>10)
		return nil
	}
	for at := 0; at < len(data); {
		c, size := utf8.DecodeRune(data[at:])
		if c == utf8.RuneError && size <= 1 || c == 0 {
			line, column := place(data, at)
			r.note("", line, column, "from here on it is not text in UTF-8: save it as UTF-8")
			return nil
		}
		at += size
	}
	if strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff")) == "" {
		r.note("", 0, 0, "it is empty")
		return nil
	}
	if d.yaml() {
		return r.readYAML(data)
	}
	return r.readJSON([]byte(strings.TrimPrefix(string(data), "\ufeff")))
}

// place is the line and column, from 1, of an offset.
func place(data []byte, offset int) (line, column int) {
	offset = max(0, min(offset, len(data)))
	before := string(data[:offset])
	return 1 + strings.Count(before, "\n"), offset - strings.LastIndexByte(before, '\n')
}

// under is the path of a field of what lies at a path.
func under(path, name string) string {
	if !plain(name) {
		name = quoted(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func plain(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 60
}

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
