package rule

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// switches are what older YAML takes for true or false where it stands without
// quotes, and newer YAML for a text.
var switches = []string{"y", "n", "yes", "no", "on", "off"}

func (r *reader) readYAML(data []byte) *node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		r.note("", 0, 0, "it is empty")
		return nil
	} else if err != nil {
		r.noYAML(data, err)
		return nil
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			r.noYAML(data, err)
		} else {
			r.note("", more.Line, more.Column, "a second document begins here: a file holds one")
		}
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		r.note("", 0, 0, "it is empty")
		return nil
	}
	return r.ofYAML(document.Content[0], "", 1)
}

var yamlPlace = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)$`)

// yamlWords says what its reader means by what it says.
var yamlWords = []struct{ said, meant string }{
	{"mapping values are not allowed", "a colon stands where none may: is the line indented like its neighbours, and is a text with a colon in quotes?"},
	{"did not find expected key", "the line does not fit the lines above it: is it indented as they are?"},
	{"did not find expected '-' indicator", "the line does not fit the list above it: is it indented as its items are?"},
	{"could not find expected ':'", "a name without a colon and a value stands here"},
	{"did not find expected ',' or '}'", "a comma or } is missing"},
	{"did not find expected ',' or ']'", "a comma or ] is missing"},
	{"found unexpected end of stream", "a text is not closed: a quote is missing"},
	{"unknown anchor", "an alias (*) without an anchor: rules are written out, without aliases"},
}

// noYAML tells why the text is no YAML.
func (r *reader) noYAML(data []byte, err error) {
	line, why := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		why = m[2]
	}
	for i, text := range strings.Split(string(data), "\n") {
		if indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]; strings.Contains(indent, "\t") && strings.TrimSpace(text) != "" {
			r.note("", i+1, 1+strings.IndexByte(text, '\t'), "the line is indented with a tab: YAML takes spaces only")
			return
		}
	}
	for _, words := range yamlWords {
		if strings.Contains(why, words.said) {
			why = words.meant
			break
		}
	}
	column := 0
	if line > 0 {
		column = 1
	}
	r.note("", line, column, "it is no YAML: %s", why)
}

// ofYAML makes a node of one of YAML's; it follows no alias.
func (r *reader) ofYAML(y *yaml.Node, path string, depth int) *node {
	n := &node{line: y.Line, column: y.Column, kind: aNull}
	if !r.room(path, depth, y.Line, y.Column) {
		n.kind, n.text = anOddity, ""
		return n
	}
	if y.Anchor != "" {
		r.note(path, y.Line, y.Column, "found the anchor &%s: rules are written out, without anchors and aliases", clipped(y.Anchor))
	}
	if y.Style&yaml.TaggedStyle != 0 {
		r.note(path, y.Line, y.Column, "found the tag %s: rules have no tags", clipped(y.Tag))
	}
	switch y.Kind {
	case yaml.AliasNode:
		n.kind, n.text = anOddity, "found the alias *"+clipped(y.Value)+": rules are written out, without anchors and aliases"
	case yaml.MappingNode:
		n.kind = aMap
		for i := 0; i+1 < len(y.Content); i += 2 {
			r.yamlMember(n, path, y.Content[i], y.Content[i+1], depth)
		}
	case yaml.SequenceNode:
		n.kind = aList
		for i, item := range y.Content {
			n.items = append(n.items, r.ofYAML(item, element(path, i), depth+1))
		}
	case yaml.ScalarNode:
		n.scalar(y)
	}
	return n
}

func (r *reader) yamlMember(n *node, path string, key, value *yaml.Node, depth int) {
	switch {
	case key.Kind == yaml.ScalarNode && key.Tag == "!!merge":
		r.note(path, key.Line, key.Column, "found the merge key <<: rules are written out, without it")
	case key.Kind != yaml.ScalarNode:
		r.note(path, key.Line, key.Column, "a name is a plain text")
	default:
		at := under(path, key.Value)
		r.member(n, at, &member{key.Value, key.Line, key.Column, r.ofYAML(value, at, depth+1)})
	}
}

// scalar reads what is neither map nor list. What readers of YAML take for
// different things is an oddity.
func (n *node) scalar(y *yaml.Node) {
	n.kind, n.text = aText, y.Value
	if y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}
	odd := func(text string) { n.kind, n.text = anOddity, "found "+clipped(y.Value)+text }
	switch {
	case slices.Contains(switches, strings.ToLower(y.Value)):
		odd(" without quotes, which YAML takes for true or false: write " + quoted(y.Value) + ", in quotes, for the word, or else true or false")
	case y.Tag == "!!null":
		n.kind = aNull
	case y.Tag == "!!bool":
		n.kind, n.text = aBool, strings.ToLower(y.Value)
	case y.Tag == "!!int" || y.Tag == "!!float":
		n.kind = aNumber
		if !decimal.MatchString(y.Value) {
			odd(", which readers of YAML take for different numbers: write a plain decimal number, or a text in quotes")
		}
	}
}
