package fleet

import (
	"strings"
	"testing"
)

func TestAShareOfASiteIsReclassifiedByAPersonOnly(t *testing.T) {
	t.Parallel()
	held := []Reclassified{{Joinable{Device: 1, Ref: "a"}, "kettle"}, {Joinable{Device: 2}, "kettle"}}
	hash := ClassHash(held)
	for name, c := range map[string]struct {
		devices   int
		confirmed string
		waits     bool
	}{
		"few of many":              {100, "", false},
		"the share itself":         {10, "", false},
		"more than the share":      {9, "", true},
		"confirmed":                {2, hash, false},
		"another set is confirmed": {2, ClassHash(held[:1]), true},
	} {
		got, alert := JudgeClasses(held, c.devices, 0.2, map[string]bool{c.confirmed: true})
		if got != hash || (alert != "") != c.waits || c.waits && !strings.Contains(alert, hash) {
			t.Errorf("%s: alert %q", name, alert)
		}
	}
	other := []Reclassified{held[1], held[0]}
	if ClassHash(other) != hash {
		t.Error("the order decides")
	}
	if other[0].Role = "server"; ClassHash(other) == hash {
		t.Error("what they become is not in the hash")
	}
	if hash == MissingHash([]Joinable{held[0].Joinable, held[1].Joinable}) {
		t.Error("a set that is missing is confirmed by the same hash")
	}
}
