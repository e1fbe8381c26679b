package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"cuelang.org/go/cue"
)

// passes is reached by a machine that is as its profile says.
const passes = "passes"

// hardware runs the tests of one profile: which parts differ, and how.
func (r *testRun) hardware(class string, tests cue.Value) {
	profile, ok := r.bundle.Hardware(class)
	if !ok {
		r.problems = append(r.problems, fmt.Sprintf("%s: policies/hardware describes no resource class %q", firstField(tests), class))
		return
	}
	r.each(tests, "", func(name string, test cue.Value) {
		differs := test.LookupPath(cue.ParsePath("differs"))
		result := TestResult{Policy: "hardware." + class, Name: name, Pos: r.compiler.posOf(differs)}
		var m Machine
		body, err := test.LookupPath(cue.ParsePath("given")).MarshalJSON()
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			result.Got = "given: " + brief(err)
			r.results = append(r.results, result)
			return
		}
		var got []string
		for _, d := range profile.Judge(m) {
			if kind := d.Part + " " + string(d.Kind); !slices.Contains(got, kind) {
				got = append(got, kind)
			}
			result.Reached = append(result.Reached, d.Part+" differs")
		}
		if len(got) == 0 {
			result.Reached = []string{passes}
		}
		result.Got, result.Want = fmt.Sprintf("differs in %q", got), fmt.Sprintf("differs in %q", textsOf(test, "differs"))
		result.Passed = result.Got == result.Want
		r.results = append(r.results, result)
	})
}

// parts names what the profile asks, as differences do.
func (p *HardwareProfile) parts() []string {
	var parts []string
	for _, one := range []struct {
		name  string
		asked bool
	}{{"cpus", p.CPUs.Asked()}, {"cpu_arch", p.CPUArch != ""}, {"memory", p.MemoryMB.Asked()}, {"gpus", p.GPUs.Asked()}, {"cabling", p.Cabling == CablingLLDP}} {
		if one.asked {
			parts = append(parts, one.name)
		}
	}
	for i := range p.NICs {
		parts = append(parts, "nics."+strconv.Itoa(i))
	}
	for i := range p.Disks {
		parts = append(parts, "disks."+strconv.Itoa(i))
	}
	return parts
}
