// Package wire appends JSON to a buffer, for the simulator's faces: they write
// thousands of like objects an answer, whose form is known beforehand.
package wire

import (
	"encoding/json"
	"time"
)

// Quote appends a text.
func Quote(b []byte, text string) []byte {
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

// QuoteAll appends texts as a list.
func QuoteAll(b []byte, texts []string) []byte {
	b = append(b, '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = Quote(b, text)
	}
	return append(b, ']')
}

// Value appends any value that JSON has; what it has not becomes null.
func Value(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return Quote(b, v)
	}
	body, err := json.Marshal(value)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, body...)
}

// Time appends an instant in a layout of package time.
func Time(b []byte, at time.Time, layout string) []byte {
	b = append(b, '"')
	b = at.AppendFormat(b, layout)
	return append(b, '"')
}
