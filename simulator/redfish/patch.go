package redfish

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// setter takes the new value of a property; a message's id where it does not.
type setter func(value any) (problem string, ok bool)

func text(to *string) setter {
	return func(value any) (string, bool) {
		s, ok := value.(string)
		if !ok {
			return "PropertyValueTypeError", false
		}
		*to = s
		return "", true
	}
}

// opposite takes a boolean into its opposite.
func opposite(to *bool) setter {
	return func(value any) (string, bool) {
		b, ok := value.(bool)
		if !ok {
			return "PropertyValueTypeError", false
		}
		*to = !b
		return "", true
	}
}

// oneOf takes one of some words.
func oneOf(to *string, words ...string) setter {
	return func(value any) (string, bool) {
		s, ok := value.(string)
		if !ok {
			return "PropertyValueTypeError", false
		}
		if !slices.Contains(words, s) {
			return "PropertyValueNotInList", false
		}
		*to = s
		return "", true
	}
}

// apply gives each property of a body to its setter. A value that is refused
// refuses the request; a property that nobody knows is told of beside what was
// set, unless nothing was. A lenient BMC ignores it.
func apply(body object, setters map[string]setter, lenient bool) (ignored []object, refused *answer) {
	var known int
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if strings.HasPrefix(name, "@") {
			continue
		}
		set := setters[name]
		if set == nil {
			ignored = append(ignored, info("PropertyUnknown", name, name))
			continue
		}
		known++
		if problem, ok := set(body[name]); !ok {
			return nil, refuseAt(problem, name, fmt.Sprint(body[name]), name)
		}
	}
	switch {
	case lenient:
		return nil, nil
	case known == 0 && len(ignored) > 0:
		return nil, refuseAll(ignored...)
	case known == 0:
		return nil, refuse("NoOperation")
	}
	return ignored, nil
}

// changed is the answer of a change that was made: the resource as it is now,
// with what was not changed.
func (v *view) changed(body object, ignored []object) *answer {
	if v.lenient() {
		return &answer{status: http.StatusNoContent}
	}
	if len(ignored) > 0 {
		list := make([]any, len(ignored))
		for i := range ignored {
			list[i] = ignored[i]
		}
		body["@Message.ExtendedInfo"] = list
	}
	return tell(http.StatusOK, body)
}
