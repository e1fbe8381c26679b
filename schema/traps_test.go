package schema_test

import (
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

// Forms of CUE that do not mean what they seem to. The schema avoids them; a
// version of CUE that changes one fails here, and the schema may be simplified.
func TestTrapsOfCUE(t *testing.T) {
	t.Parallel()
	for _, trap := range []struct {
		name    string
		source  string
		accepts bool
	}{
		{"a parameter declared {...} opens what it is embedded in, so a typo passes", `
			#Pattern: {maintenance?: bool}
			#Rung: {#reads: {...}, name!: string, #when!: {#reads, any?: [...#reads]}}
			rung: #Rung & {name: "x", #reads: #Pattern, #when: maintenence: true}`, true},
		{"a parameter declared _ does not", `
			#Pattern: {maintenance?: bool}
			#Rung: {#reads: _, name!: string, #when!: {#reads, any?: [...#reads]}}
			rung: #Rung & {name: "x", #reads: #Pattern, #when: maintenence: true}`, false},
		{"what refers to an optional field is never closed", `
			#Pattern: ironic?: {maintenance?: bool}
			#Reads: ironic?: #Pattern.ironic
			#Rung: {name!: string, #when!: #Reads}
			rung: #Rung & {name: "x", #when: ironic: maintenence: true}`, true},
		{"a member that cannot be is dropped from a disjunction in silence", `
			#Pattern: {state?: "active" | "error"}
			#Rung: {name!: string, #when!: #Pattern}
			rung: #Rung & {name: "x", #when: state: "error" | "errored"}`, true},
		{"an inline or() is such a disjunction", `
			#Pattern: {state?: "active" | "error"}
			#Rung: {name!: string, #when!: #Pattern}
			rung: #Rung & {name: "x", #when: state: or(["error", "errored"])}`, true},
		{"a typed list is checked member by member", `
			failure: [...("active" | "error")] & ["error", "errored"]
			#Pattern: {state?: "active" | "error"}
			#Rung: {name!: string, #when!: #Pattern}
			rung: #Rung & {name: "x", #when: state: or(failure)}`, false},
		{"!= takes no bool", `
			#Pattern: {maintenance?: null | bool}
			#Rung: {name!: string, #when!: #Pattern}
			rung: #Rung & {name: "x", #when: maintenance: !=true}`, false},
		{"a pattern in a regular field must be concrete", `
			rung: {name: "x", when: state: "active" | "error"}`, false},
		{"in a definition field it need not be", `
			rung: {name: "x", #when: state: "active" | "error"}`, true},
		{"a field named like an import hides it, and the typo passes", `
			import "strings"
			up: strings.ToUpper("x")
			#Pattern: {strings?: strings.#Pattern}
			rung: #Rung & {name: "x", #when: strings: typo: 3}
			#Rung: {name!: string, #when!: #Pattern}`, true},
	} {
		t.Run(trap.name, func(t *testing.T) {
			t.Parallel()
			err := cuecontext.New().CompileString(trap.source).Validate(cue.Concrete(true))
			if accepted := err == nil; accepted != trap.accepts {
				t.Errorf("CUE accepts it: %v, not %v (%v)", accepted, trap.accepts, err)
			}
		})
	}
}
