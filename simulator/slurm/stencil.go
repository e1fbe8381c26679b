package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/simulator/wire"
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
		m := member{name: name, key: append(wire.Quote(nil, name), ':')}
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
