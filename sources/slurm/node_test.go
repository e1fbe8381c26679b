package slurm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

func TestNumbersOfEveryForm(t *testing.T) {
	t.Parallel()
	at := time.Unix(1757682160, 0).UTC()
	for in, want := range map[string]time.Time{
		`1757682160`:   at,
		`"1757682160"`: at,
		`1.75768216e9`: at,
		`{"set":true,"infinite":false,"number":1757682160}`: at,
		`{"number":1757682160}`:                             at,
		`0`:                                                 {},
		`null`:                                              {},
		``:                                                  {},
		`-2`:                                                {},
		`4294967294`:                                        {},
		`18446744073709551614`:                              {},
		`{"set":true,"infinite":false,"number":0}`:           {},
		`{"set":false,"infinite":false,"number":1757682160}`: {},
		`{"set":true,"infinite":true,"number":1757682160}`:   {},
		`{}`: {},
	} {
		if got, err := instant(json.RawMessage(in)); err != nil || !got.Equal(want) {
			t.Errorf("%s gives %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{`"soon"`, `[]`, `true`, `{"set":"yes"}`, `999999999999999`} {
		if got, err := instant(json.RawMessage(in)); err == nil {
			t.Errorf("%s gives %v", in, got)
		}
	}
}

func TestABadFieldCostsThatField(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"name": `"n1"`, "state": `["IDLE","DRAIN"]`, "reason": `"bad HBM"`, "reason_set_by_user": `"root"`, "reason_changed_at": `1757682160`,
		"comment": `"c"`, "extra": `"e"`, "partitions": `["main","live"]`, "gres": `"gpu:h100:8"`,
	}
	whole := facts.Slurm{
		Listed: facts.True, States: facts.SlurmIdle | facts.SlurmDrain, Reason: facts.TextOf("bad HBM"), ReasonSetBy: "root",
		ReasonChangedAt: time.Unix(1757682160, 0).UTC(), Comment: "c", Extra: "e", Partitions: []string{"main", "live"},
	}
	lost := func(fact, why string, without func(*facts.Slurm)) facts.Slurm {
		f := whole
		without(&f)
		f.Unreadable = map[string]string{fact: why}
		return f
	}
	noStates := func(f *facts.Slurm) { f.States = 0 }
	for name, c := range map[string]struct {
		field, value string
		want         facts.Slurm
	}{
		"all well":                     {"name", `"n1"`, whole},
		"state a number":               {"state", `7`, lost("states", "DecodeFailed", noStates)},
		"state an object":              {"state", `{"a":1}`, lost("states", "DecodeFailed", noStates)},
		"a number among the states":    {"state", `["IDLE",5]`, lost("states", "DecodeFailed", noStates)},
		"a null among the states":      {"state", `["IDLE",null]`, lost("states", "DecodeFailed", noStates)},
		"flags unreadable hide DRAIN":  {"state_flags", `{"x":1}`, lost("states", "DecodeFailed", noStates)},
		"state null":                   {"state", `null`, lost("states", "FieldNotServed", noStates)},
		"state empty":                  {"state", `[]`, lost("states", "FieldNotServed", noStates)},
		"one word and no flags at all": {"state", `"idle"`, lost("states", "FieldNotServed", noStates)},
		"a compound word":              {"state", `"IDLE+DRAIN"`, whole},
		"flags in one string":          {"state_flags", `"DRAIN"`, whole},
		"reason a number":              {"reason", `7`, lost("reason", "DecodeFailed", func(f *facts.Slurm) { f.Reason = facts.Text{} })},
		"reason null":                  {"reason", `null`, func() facts.Slurm { f := whole; f.Reason = facts.Text{}; return f }()},
		"reason empty":                 {"reason", `""`, func() facts.Slurm { f := whole; f.Reason = facts.TextOf(""); return f }()},
		"instant a list":               {"reason_changed_at", `[1]`, lost("reason_changed_at", "DecodeFailed", func(f *facts.Slurm) { f.ReasonChangedAt = time.Time{} })},
		"instant past the year 9999":   {"reason_changed_at", `999999999999999`, lost("reason_changed_at", "DecodeFailed", func(f *facts.Slurm) { f.ReasonChangedAt = time.Time{} })},
		"partitions a number":          {"partitions", `3`, lost("partitions", "DecodeFailed", func(f *facts.Slurm) { f.Partitions = nil })},
		"partitions with commas":       {"partitions", `"main,live"`, whole},
		"extra an object":              {"extra", `{}`, lost("extra", "DecodeFailed", func(f *facts.Slurm) { f.Extra = "" })},
		"NUL in the reason":            {"reason", `"bad\u0000 HBM"`, whole},
		"a field that is not read":     {"gres", `{"gpu":["odd",null]}`, whole},
		"another that is not read":     {"free_mem", `"N/A"`, whole},
	} {
		fields := map[string]json.RawMessage{}
		for k, v := range good {
			fields[k] = json.RawMessage(v)
		}
		fields[c.field] = json.RawMessage(c.value)
		raw, _ := json.Marshal(fields)
		n, ok := decode(raw, "v0.0.42")
		if !ok || !reflect.DeepEqual(n.facts, c.want) {
			t.Errorf("%s: %+v, want %+v", name, n.facts, c.want)
		}
		if _, err := json.Marshal(n.facts); err != nil {
			t.Errorf("%s: the facts cannot be stored: %v", name, err)
		}
	}
}

func TestANodeWithoutAReadableNameIsDropped(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`{}`, `{"name":""}`, `{"name":null}`, `{"name":7}`, `{"name":"a\u0000b"}`, `{"name":"a\ud800"}`, `{"name":"` + strings.Repeat("x", 300) + `"}`, `7`, `null`, `[]`, `"n1"`} {
		if n, ok := decode(json.RawMessage(raw), "v0.0.42"); ok {
			t.Errorf("%s is taken for node %q", raw, n.name)
		}
	}
}

func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	long, _ := json.Marshal(strings.Repeat("é", 20000))
	n, ok := decode(json.RawMessage(fmt.Sprintf(`{"name":"n1","state":["IDLE"],"reason":%s,"comment":%s}`, long, long)), "v0.0.42")
	if !ok || len(n.facts.Reason.Value) > maxText || len(n.facts.Comment) > maxNotes {
		t.Errorf("reason %d, comment %d bytes", len(n.facts.Reason.Value), len(n.facts.Comment))
	}
}

// Whatever an element is, decoding it ends, keeps its name if it has one, and
// never gives a base state that is not written there.
func TestDecodeStandsAnyElement(t *testing.T) {
	t.Parallel()
	value := rapid.SampledFrom([]string{`null`, `7`, `-1e99`, `true`, `""`, `"x"`, `[]`, `[null]`, `["IDLE"]`, `{}`, `{"set":true,"number":{}}`, `"2026-01-01"`, `["a",{"b":[]}]`})
	rapid.Check(t, func(t *rapid.T) {
		fields := map[string]json.RawMessage{"name": json.RawMessage(`"n1"`)}
		for _, k := range []string{"state", "state_flags", "reason", "reason_set_by_user", "reason_changed_at", "comment", "extra", "partitions"} {
			if rapid.Bool().Draw(t, k) {
				fields[k] = json.RawMessage(value.Draw(t, k+" value"))
			}
		}
		raw, _ := json.Marshal(fields)
		n, ok := decode(raw, "v0.0.42")
		if !ok || n.name != "n1" {
			t.Fatalf("%s is dropped", raw)
		}
		if n.facts.States.Has(facts.SlurmIdle) && !strings.Contains(string(raw), "IDLE") {
			t.Fatalf("%s is idle", raw)
		}
		if n.facts.States == 0 && !n.facts.Unmodelled && n.facts.Unreadable["states"] == "" {
			t.Fatalf("%s has no state and does not tell why", raw)
		}
	})
}
