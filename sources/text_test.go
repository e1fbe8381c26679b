package sources

import (
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		max  int
		want string
	}{
		"plain":                   {"bad HBM", 100, "bad HBM"},
		"NUL":                     {"a\x00b", 100, "ab"},
		"invalid UTF-8":           {"a\xff\xfeb", 100, "ab"},
		"NUL between broken code": {"\xc3\x00\xa9", 100, ""},
		"cut at a character":      {"aéé", 4, "aé"},
		"no bound":                {"aéé", 0, "aéé"},
	} {
		if got := CleanText(c.in, c.max); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCleanTextIsValidAndBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in, max := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in")), rapid.IntRange(1, 40).Draw(t, "max")
		out := CleanText(in, max)
		if !utf8.ValidString(out) || len(out) > max || CleanText(out, max) != out {
			t.Fatalf("%q", out)
		}
		for _, r := range out {
			if r == 0 {
				t.Fatalf("%q holds NUL", out)
			}
		}
	})
}

func TestPlaceholderSerial(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "  ", "0", "00000000", "Not Specified", "NOT SPECIFIED ", "None", "N/A", "To Be Filled By O.E.M.", "Default string",
		"xxxxxxxx", "........", "----", "System Serial Number", "0123456789", "Unknown", "null"} {
		if !PlaceholderSerial(s) {
			t.Errorf("%q names a machine", s)
		}
	}
	for _, s := range []string{"J1K2L3M", "1660223000123", "00000001", "SN-0000000000010"} {
		if PlaceholderSerial(s) {
			t.Errorf("%q is taken for a placeholder", s)
		}
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"2026-03-01T12:00:00Z":             noon,
		"2026-03-01T12:00:00":              noon,
		"2026-03-01 12:00:00":              noon,
		"2026-03-01T12:00:00.000000":       noon,
		"2026-03-01T14:00:00+02:00":        noon,
		"2026-03-01T14:00:00.000000+02:00": noon,
		"2026-03-01T14:00:00+0200":         noon,
		"":                                 {},
		"None":                             {},
		"0001-01-01T00:00:00Z":             {},
		"1970-01-01T00:00:00Z":             {},
	} {
		if got, err := ParseTime(in); err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q: %v %v, want %v", in, got, err, want)
		}
	}
	if _, err := ParseTime("yesterday"); err == nil {
		t.Error("a text that is no instant is taken for one")
	}
	if !UnixTime(0).IsZero() || !UnixTime(-2).IsZero() || UnixTime(1757682160).Year() != 2025 {
		t.Error("UnixTime")
	}
}
