package placement

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/musterhq/muster/sources"
)

// Provider is a resource provider.
type Provider struct {
	UUID       string
	Name       string
	Generation int64  // raised by every change but the end of an allocation; -1: not read
	Root       string // uuid of the provider that it is within: its own, for a node
}

type rawProvider struct {
	UUID       json.RawMessage `json:"uuid"`
	Name       json.RawMessage `json:"name"`
	Generation json.RawMessage `json:"generation"`
	Root       json.RawMessage `json:"root_provider_uuid"`
}

// decodeProvider reads a provider. Without a readable uuid it is none.
func decodeProvider(body []byte) (*Provider, bool) {
	var raw rawProvider
	if json.Unmarshal(body, &raw) != nil {
		return nil, false
	}
	p := &Provider{UUID: text(raw.UUID), Name: text(raw.Name), Generation: -1, Root: text(raw.Root)}
	var generation int64
	if json.Unmarshal(raw.Generation, &generation) == nil && generation >= 0 && !null(raw.Generation) {
		p.Generation = generation
	}
	return p, validRef(p.UUID)
}

// text reads a text, "" for anything else.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return sources.CleanText(strings.TrimSpace(s), 255)
}

func null(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// validRef tells a uuid from what would lead elsewhere in a URL.
func validRef(ref string) bool {
	return ref != "" && len(ref) <= 64 && !strings.ContainsFunc(ref, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-')
	})
}

// decodeProviders takes a listing apart. What is not a listing is a failed read.
func decodeProviders(op string, body []byte) ([]json.RawMessage, error) {
	var raw struct {
		Providers json.RawMessage `json:"resource_providers"`
		Errors    json.RawMessage `json:"errors"`
	}
	var elements []json.RawMessage
	if json.Unmarshal(body, &raw) != nil || !null(raw.Errors) || null(raw.Providers) || json.Unmarshal(raw.Providers, &elements) != nil {
		return nil, foreign(op, body)
	}
	return elements, nil
}

// Allocation is what one consumer, such as an instance, holds of one provider.
type Allocation struct {
	Consumer  string
	Provider  string
	Resources map[string]int64 // by resource class; nil where it could not be read
}

var errNoAllocations = errors.New("the answer holds no allocations")

// decodeAllocations reads allocations, which are keyed by consumer or by provider:
// by makes of a key what it names. What is no answer of Placement is a failed read; one of its own that
// holds no object of allocations is errNoAllocations.
func decodeAllocations(op string, body []byte, by func(key string) Allocation) ([]Allocation, error) {
	var raw struct {
		Allocations json.RawMessage `json:"allocations"`
		Errors      json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(body, &raw) != nil || !null(raw.Errors) {
		return nil, foreign(op, body)
	}
	var elements map[string]json.RawMessage
	if json.Unmarshal(raw.Allocations, &elements) != nil || elements == nil {
		return nil, errNoAllocations
	}
	held := make([]Allocation, 0, len(elements))
	for key, element := range elements {
		var one struct {
			Resources map[string]int64 `json:"resources"`
		}
		a := by(sources.CleanText(key, 64))
		if json.Unmarshal(element, &one) == nil {
			a.Resources = one.Resources
		}
		held = append(held, a)
	}
	slices.SortFunc(held, func(a, b Allocation) int {
		return cmp.Or(strings.Compare(a.Consumer, b.Consumer), strings.Compare(a.Provider, b.Provider))
	})
	return held, nil
}
