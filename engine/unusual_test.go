package engine

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// Patterns that are right but that few would write compile, and to what CUE says
// of them.
func TestUnusualPatternsMeanWhatCUESays(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a let":                       `let on = "True" | "Unknown", conditions: {A: on, B: on}`,
		"a loop over types":           `conditions: {for type in ["A", "B"] {(type): "True"}}`,
		"a loop over alternatives":    `any: [for type in ["A", "B", "C"] {conditions: (type): "False"}]`,
		"a loop over values":          `ironic: provision_state: or([for state in failure if state != "error" {state}])`,
		"a computed label":            `conditions: ("A" + ""): "True"`,
		"a quoted label":              `"conditions": "A": "True"`,
		"fields written in parts":     `conditions: A: "True" | "Unknown", conditions: A: !="Unknown", conditions: B: "False"`,
		"a guard on a constant":       `if len(failure) > 2 {conditions: A: "True"}`,
		"an element of a list":        `conditions: A: ["False", "True"][1]`,
		"a set without a member":      `device: device_class: or(compute) & !="cpu_hypervisor"`,
		"a bound on texts":            `netbox: role: >"d" & <"h"`,
		"a bound on numbers":          `bmc: failures: >=1 & <3`,
		"an interpolation":            `conditions: A: "Tr\("ue")"`,
		"a default":                   `ironic: maintenance: *true | null`,
		"not of not":                  `not: [{conditions: A: !="True"}]`,
		"an open list of one":         `any: [{conditions: A: "True"}, ...]`,
		"a struct that names nothing": `ironic: {}, conditions: A: "True"`,
		"a builtin over a closed set": `conditions: A: matchN(1, ["True", "Unknown"])`,
		"the same test twice":         `conditions: A: "True", any: [{conditions: A: "True"}, {conditions: A: "False"}]`,
		"everything but null":         `device: serial: !=null, ironic: fault: null | =~"^p"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAsked(t)
			matched := 0
			compare := func(t *rapid.T) {
				a = a.fresh(t)
				v := a.pattern(text)
				if err := v.Err(); err != nil {
					t.Fatal(err)
				}
				p := a.c.patternOf(v, nil)
				if len(a.c.findings) > 0 {
					t.Fatal(a.c.findings)
				}
				s := a.deviceFor(t, p)
				body, err := json.Marshal(s.whole)
				if err != nil {
					t.Fatal(err)
				}
				want := a.matches(v, a.whole(body))
				if got := p.cubes.matches(&s.in); got != want {
					t.Fatalf("CUE says %v, the engine %v of %s", want, got, body)
				}
				if want {
					matched++
				}
			}
			// A narrow pattern may match none of a round's devices: it must of some.
			for round := 0; round == 0 || matched == 0 && round < 50; round++ {
				rapid.Check(t, compare)
			}
			if matched == 0 {
				t.Error("no device matched")
			}
		})
	}
}
