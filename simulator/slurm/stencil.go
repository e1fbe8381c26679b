package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// stencil writes JSON objects that are all alike but for some members.
type stencil struct {
	members []member
}

type member struct {
	key   []byte // with the colon
	name  string
	fixed json.RawMessage // nil: asked for each time
}

// cut makes a stencil of an example; the named members, where it has them, are
// asked for.
func cut(example json.RawMessage, asked ...string) (*stencil, error) {
	decoder := json.NewDecoder(bytes.NewReader(example))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(errors.New("the example is no object"), err)
	}
	s := &stencil{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m := member{name: name, key: append(quote(nil, name), ':')}
		if !slices.Contains(asked, name) {
			var compact bytes.Buffer
			if err := json.Compact(&compact, value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			m.fixed = compact.Bytes()
		}
		s.members = append(s.members, m)
	}
	return s, nil
}

// write appends an object. value appends a member that is asked for, or gives b
// back as it is where the object has none.
func (s *stencil) write(b []byte, value func(b []byte, name string) []byte) []byte {
	b = append(b, '{')
	first := true
	for i := range s.members {
		m := &s.members[i]
		before := len(b)
		if !first {
			b = append(b, ',')
		}
		b = append(b, m.key...)
		if m.fixed != nil {
			b = append(b, m.fixed...)
		} else {
			start := len(b)
			if b = value(b, m.name); len(b) == start {
				b = b[:before]
				continue
			}
		}
		first = false
	}
	return append(b, '}')
}

// quote appends a text as JSON.
func quote(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			quoted, err := json.Marshal(text)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// quoteAll appends texts as a JSON list.
func quoteAll(b []byte, texts []string) []byte {
	b = append(b, '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(b, text)
	}
	return append(b, ']')
}
