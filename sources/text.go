package sources

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// CleanText gives a text that came from outside without NUL and invalid UTF-8,
// and no longer than max bytes (cut at a character's start; 0: no bound).
func CleanText(s string, max int) string {
	s = strings.ToValidUTF8(s, "")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if max <= 0 || len(s) <= max {
		return s
	}
	cut := max
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

var placeholderSerials = map[string]bool{
	"not specified": true, "not available": true, "not applicable": true, "not provided": true, "not set": true,
	"none": true, "null": true, "nil": true, "n/a": true, "na": true, "tbd": true, "unknown": true, "undefined": true,
	"invalid": true, "empty": true, "default": true, "default string": true, "serial": true, "serial number": true,
	"system serial number": true, "chassis serial number": true, "board serial number": true, "oem": true,
	"to be filled by o.e.m.": true, "to be filled by oem": true, "filled by oem": true, "unspecified": true,
	"0123456789": true, "123456789": true, "1234567890": true, "012345678": true, "12345678": true,
}

// PlaceholderSerial reports a serial number that names no particular machine:
// empty, one character repeated, or what vendors write where they set none.
// Such serials never join a record to a device.
func PlaceholderSerial(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	bare := strings.Trim(s, " .-_:")
	return bare == "" || placeholderSerials[s] || placeholderSerials[bare] || strings.Count(bare, bare[:1]) == len(bare)
}

var timeLayouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02T15:04:05.999999999-0700",
	"2006-01-02T15:04",
	"2006-01-02",
}

// ParseTime reads an instant of a source. Without a zone it is UTC. What says
// that there is none (empty, null, None, Unknown, year 1, the epoch's first
// second) gives the zero Time without an error.
func ParseTime(s string) (time.Time, error) {
	s = strings.TrimSpace(s)
	switch strings.ToLower(s) {
	case "", "null", "none", "unknown", "n/a", "never":
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, s); err == nil {
			if at.Year() <= 1 || at.Unix() == 0 {
				return time.Time{}, nil
			}
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not an instant", CleanText(s, 64))
}

// UnixTime gives the instant of a count of seconds, the zero Time for 0 and less.
func UnixTime(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
