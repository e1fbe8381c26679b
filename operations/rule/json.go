package rule

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// decimal is a number as JSON and YAML write it alike, of a size that no reader
// stumbles over.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$`)

// jsonWords says what its reader means by what it says.
var jsonWords = strings.NewReplacer(
	"invalid character", "found",
	"looking for beginning of object key string", "where a name in quotes should stand",
	"looking for beginning of value", "where a value should stand",
	"after object key:value pair", "where a comma or } should stand",
	"after object key", "where a colon should stand",
	"after array element", "where a comma or ] should stand",
	"after top-level value", "behind its end",
	"in string literal", "in a text, where it has to be escaped",
	"unexpected end of JSON input", "it ends too early",
)

// jsonReader reads token by token, for the places.
type jsonReader struct {
	*reader
	data    []byte
	decoder *json.Decoder
}

func (r *reader) readJSON(data []byte) *node {
	j := &jsonReader{reader: r, data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	j.decoder.UseNumber()
	tree, ok := j.value("", 1)
	if !ok {
		return nil
	}
	at := j.next()
	if _, err := j.decoder.Token(); !errors.Is(err, io.EOF) {
		line, column := place(data, at)
		r.note("", line, column, "it goes on after its first value: a document holds one")
	}
	return tree
}

// next is the offset of what the decoder reads next.
func (j *jsonReader) next() int {
	at := int(j.decoder.InputOffset())
	for at < len(j.data) && bytes.IndexByte([]byte(" \t\r\n,:"), j.data[at]) >= 0 {
		at++
	}
	return at
}

// token reads the next token and says where it begins.
func (j *jsonReader) token() (token json.Token, line, column int, ok bool) {
	line, column = place(j.data, j.next())
	token, err := j.decoder.Token()
	if err == nil {
		return token, line, column, true
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at := int(syntax.Offset) - 1
		if at < int(j.decoder.InputOffset()) {
			at = j.next()
		}
		line, column = place(j.data, at)
		j.note("", line, column, "it is no JSON: %s", jsonWords.Replace(syntax.Error()))
	} else {
		j.note("", line, column, "it is no JSON: it ends too early")
	}
	return nil, line, column, false
}

// value reads one value; not ok where the rest cannot be read.
func (j *jsonReader) value(path string, depth int) (*node, bool) {
	token, line, column, ok := j.token()
	if !ok || !j.room(path, depth, line, column) {
		return nil, false
	}
	n := &node{line: line, column: column}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return n, j.object(n, path, depth)
		}
		n.kind = aList
		return n, j.list(n, path, depth)
	case string:
		n.kind, n.text = aText, token
	case json.Number:
		n.kind, n.text = aNumber, token.String()
		if !decimal.MatchString(n.text) {
			n.kind, n.text = anOddity, "found "+clipped(n.text)+", a number that is too long"
		}
	case bool:
		n.kind, n.text = aBool, map[bool]string{true: "true", false: "false"}[token]
	case nil:
		n.kind = aNull
	}
	return n, true
}

func (j *jsonReader) object(n *node, path string, depth int) bool {
	n.kind = aMap
	for j.decoder.More() {
		token, line, column, ok := j.token()
		if !ok {
			return false
		}
		name, _ := token.(string) // the decoder takes nothing else for a name
		at := under(path, name)
		value, ok := j.value(at, depth+1)
		if !ok {
			return false
		}
		j.member(n, at, &member{name, line, column, value})
	}
	_, _, _, ok := j.token()
	return ok
}

func (j *jsonReader) list(n *node, path string, depth int) bool {
	for j.decoder.More() {
		value, ok := j.value(element(path, len(n.items)), depth+1)
		if !ok {
			return false
		}
		n.items = append(n.items, value)
	}
	_, _, _, ok := j.token()
	return ok
}

// member adds a field unless there is one of its name.
func (r *reader) member(n *node, path string, m *member) {
	for _, earlier := range n.fields {
		if earlier.name == m.name {
			r.note(path, m.line, m.column, "it is given twice, first in line %d", earlier.line)
			return
		}
	}
	n.fields = append(n.fields, m)
}
