package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bool is a truth value that may be unknown; its zero value is null.
type Bool uint8

// The values of a Bool.
const (
	Null  Bool = 0
	False Bool = 1
	True  Bool = 2
)

// BoolOf gives the Bool of a known truth value.
func BoolOf(b bool) Bool { return Bool(boolCode(b)) }

func boolCode(b bool) uint8 {
	if b {
		return 2
	}
	return 1
}

// String gives "null", "false" or "true".
func (b Bool) String() string { return [...]string{"null", "false", "true"}[b] }

// MarshalJSON writes null, false or true.
func (b Bool) MarshalJSON() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalJSON reads null, false or true.
func (b *Bool) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "null":
		*b = Null
	case "false":
		*b = False
	case "true":
		*b = True
	default:
		return fmt.Errorf("%s is not true, false or null", data)
	}
	return nil
}

// Text is a text that may be unknown; its zero value is null.
type Text struct {
	Value string
	Known bool
}

// TextOf gives the Text of a known text.
func TextOf(s string) Text { return Text{Value: s, Known: true} }

// String gives the text, "" for null.
func (t Text) String() string { return t.Value }

// MarshalJSON writes the text, or null.
func (t Text) MarshalJSON() ([]byte, error) {
	if !t.Known {
		return []byte("null"), nil
	}
	return json.Marshal(t.Value)
}

// UnmarshalJSON reads a text, or null.
func (t *Text) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*t = Text{}
		return nil
	}
	t.Known = true
	if n := len(data); n >= 2 && data[0] == '"' && data[n-1] == '"' && bytes.IndexByte(data, '\\') < 0 && utf8.Valid(data) {
		t.Value = string(data[1 : n-1]) // as nearly every text is: most of a fleet's time goes into them
		return nil
	}
	return json.Unmarshal(data, &t.Value)
}

// SlurmStates is a set of SLURM's node-state tokens: one base state and any
// number of flags.
type SlurmStates uint64

// SlurmToken finds the set of one token by its spelling.
func SlurmToken(token string) (SlurmStates, bool) {
	for i, known := range slurmTokens {
		if known == token {
			return 1 << i, true
		}
	}
	return 0, false
}

// Has reports whether all tokens of t are in the set.
func (s SlurmStates) Has(t SlurmStates) bool { return s&t == t }

// Tokens lists the tokens of the set, the base state first.
func (s SlurmStates) Tokens() []string {
	tokens := make([]string, 0, bits.OnesCount64(uint64(s)))
	for i, token := range slurmTokens {
		if s>>i&1 == 1 {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// MarshalJSON writes the tokens as a list.
func (s SlurmStates) MarshalJSON() ([]byte, error) { return json.Marshal(s.Tokens()) }

// UnmarshalJSON reads a list of tokens, or a struct {TOKEN: bool} as policy
// tests write it.
func (s *SlurmStates) UnmarshalJSON(data []byte) error {
	var tokens []string
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		var set map[string]bool
		if err := json.Unmarshal(data, &set); err != nil {
			return err
		}
		for token, in := range set {
			if in {
				tokens = append(tokens, token)
			}
		}
	} else if err := json.Unmarshal(data, &tokens); err != nil {
		return err
	}
	*s = 0
	for _, token := range tokens {
		one, ok := SlurmToken(token)
		if !ok {
			return fmt.Errorf("%q is not a SLURM node state", token)
		}
		*s |= one
	}
	return nil
}

// Kind says which values a field has.
type Kind uint8

// The kinds of a field.
const (
	KindBool Kind = iota // null, false, true
	KindEnum             // null and the members of a closed set
	KindText             // null and any text
)

// Field is one fact that a pattern may test.
type Field struct {
	Path     string // family.fact, or slurm.states.TOKEN
	Kind     Kind
	Nullable bool
	Derived  bool
	At       int               // its place in Codes, -1 for a text
	Values   []string          // JSON literals by code: Values[0] has code 1; code 0 is null
	Text     func(*Facts) Text // of a KindText
}

// Family is the first part of the path.
func (f Field) Family() string { family, _, _ := strings.Cut(f.Path, "."); return family }

// FieldOf finds a field by its path.
func FieldOf(path string) (Field, bool) {
	f, ok := fieldIndex[path]
	return f, ok
}

var fieldIndex = func() map[string]Field {
	index := make(map[string]Field, len(Fields))
	for _, f := range Fields {
		index[f.Path] = f
	}
	return index
}()

// Value gives the fact at a path as a policy text quotes it: the text, the
// spelling of an enum, true or false, or "null".
func (f *Facts) Value(path string) string {
	field, ok := fieldIndex[path]
	if !ok {
		return ""
	}
	if field.Kind == KindText {
		if t := field.Text(f); t.Known {
			return t.Value
		}
		return "null"
	}
	var c Codes
	f.Intern(&c)
	code := c[field.At]
	if code == 0 {
		return "null"
	}
	literal := field.Values[code-1]
	if text, err := strconv.Unquote(literal); err == nil {
		return text
	}
	return literal
}

// enum is the table of one closed set.
type enum struct {
	name     string
	literals []string
	texts    []string
	codes    map[string]uint8
}

func newEnum(name string, literals []string) *enum {
	e := &enum{name: name, literals: literals, codes: make(map[string]uint8, len(literals))}
	for i, literal := range literals {
		text := literal
		if unquoted, err := strconv.Unquote(literal); err == nil {
			text = unquoted
		}
		e.texts = append(e.texts, text)
		e.codes[text] = uint8(i + 1)
	}
	return e
}

func (e *enum) text(code uint8) string {
	if code == 0 || int(code) > len(e.texts) {
		return ""
	}
	return e.texts[code-1]
}

func (e *enum) code(text string) (uint8, bool) {
	code, ok := e.codes[text]
	return code, ok
}

func (e *enum) marshal(code uint8) ([]byte, error) {
	if code == 0 {
		return []byte("null"), nil
	}
	if int(code) > len(e.literals) {
		return nil, fmt.Errorf("%s has no value of code %d", e.name, code)
	}
	return []byte(e.literals[code-1]), nil
}

func (e *enum) unmarshal(data []byte, into *uint8) error {
	if string(data) == "null" {
		*into = 0
		return nil
	}
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	code, ok := e.codes[text]
	if !ok {
		return fmt.Errorf("%s is not a %s: one of %s", data, e.name, strings.Join(e.literals, ", "))
	}
	*into = code
	return nil
}
