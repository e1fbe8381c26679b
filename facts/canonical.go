package facts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Canonical is a family's facts in a form that names them: two values of a
// family have one form exactly if they say the same. Derived facts are left out.
// It is not read back; Hash makes of it what is stored to compare with.
type Canonical interface {
	// AppendCanonical appends the form. It begins with the family's layout, so
	// that a build with other facts or other values never mistakes one for another.
	AppendCanonical(form []byte) []byte
}

// Hash identifies what a source said, by its canonical form: facts are written
// only when it changes.
func Hash(form []byte) [16]byte {
	sum := sha256.Sum256(form)
	return [16]byte(sum[:16])
}

func appendBool(b []byte, v bool) []byte { return append(b, boolCode(v)) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendText(b []byte, t Text) []byte {
	if !t.Known {
		return append(b, 0)
	}
	return appendString(append(b, 1), t.Value)
}

// appendTime appends an instant; the zone in which it was written says nothing.
func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

// appendCount appends how many follow; what is null has a count of its own.
func appendCount(b []byte, n int, null bool) []byte {
	if null {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(n)+1)
}

func appendStrings(b []byte, list []string) []byte {
	b = appendCount(b, len(list), list == nil)
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

const fewKeys = 32 // so many keys are sorted without an allocation

func appendStringMap(b []byte, m map[string]string) []byte {
	b = appendCount(b, len(m), m == nil)
	var few [fewKeys]string
	for _, key := range sortedKeys(m, few[:0]) {
		b = appendString(appendString(b, key), m[key])
	}
	return b
}

func appendAnyMap(b []byte, m map[string]any) []byte {
	b = appendCount(b, len(m), m == nil)
	var few [fewKeys]string
	for _, key := range sortedKeys(m, few[:0]) {
		b = appendAny(appendString(b, key), m[key])
	}
	return b
}

func sortedKeys[V any](m map[string]V, keys []string) []string {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// The kinds of a recorded JSON value.
const (
	tagNull byte = iota
	tagFalse
	tagTrue
	tagNumber
	tagString
	tagList
	tagMap
	tagOther
)

// appendAny appends a value as JSON has it. Numbers are what reading them back
// gives: a float64.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, tagNull)
	case bool:
		if v {
			return append(b, tagTrue)
		}
		return append(b, tagFalse)
	case float64:
		return appendNumber(b, v)
	case int:
		return appendNumber(b, float64(v))
	case int64:
		return appendNumber(b, float64(v))
	case string:
		return appendString(append(b, tagString), v)
	case []any:
		if v == nil {
			return append(b, tagNull)
		}
		b = appendCount(append(b, tagList), len(v), false)
		for _, one := range v {
			b = appendAny(b, one)
		}
		return b
	case map[string]any:
		if v == nil {
			return append(b, tagNull)
		}
		return appendAnyMap(append(b, tagMap), v)
	}
	return appendOther(b, v)
}

func appendNumber(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, tagNumber), math.Float64bits(f))
}

// appendOther takes whatever no adapter gives by the JSON value that it is
// stored as; what has none is told apart by its spelling.
func appendOther(b []byte, v any) []byte {
	var plain any
	body, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(body, &plain)
	}
	if err != nil {
		return appendString(append(b, tagOther), fmt.Sprintf("%T %v", v, v))
	}
	return appendAny(b, plain)
}
