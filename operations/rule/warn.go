package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// many is from how many components on one after the other takes long.
const many = 9

// feeds says what powers what: the first of a pair the second.
var feeds = [][2]string{{"powershelf", "nvswitch"}, {"powershelf", "compute"}, {"nvswitch", "compute"}}

// Warnings tells what is odd about the rule although it is allowed, each with the
// path of the step that it is about.
func (r *Rule) Warnings() []Problem {
	var all []Problem
	warn := func(path, format string, args ...any) {
		all = append(all, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if len(r.Steps) == 0 {
		warn("steps", "the rule has no steps: the built-in rule of its operation is carried out in its place")
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		path := element("steps", i)
		if len(r.commands(s)) > 0 && !r.verified(s) {
			warn(path, "no stage from %d on verifies what is done with %s: add VerifyPowerStatus, VerifyReachability or WaitDecommissioned", s.Stage, s.ComponentType)
		}
		if r.OperationType != "decommission" && slices.ContainsFunc(s.Actions(), func(a Action) bool { return a.Name == DecommissionControl }) {
			warn(path, "a rule of %s decommissions %s", r.OperationType, s.ComponentType)
		}
	}
	r.order(warn)
	r.contrary(warn)
	return all
}

// contrary tells of a look for the opposite of what the last command before it
// leads to: it waits in vain.
func (r *Rule) contrary(warn func(path, format string, args ...any)) {
	last := map[string]string{} // by type, the last operation
	for _, i := range r.inStages() {
		s := &r.Steps[i]
		for j, a := range s.Actions() {
			switch code := cmp.Or(a.Parameters.Operation, r.Operation); {
			case a.Name == PowerControl:
				last[s.ComponentType] = code
			case a.Name == VerifyPowerStatus && last[s.ComponentType] != "":
				leaves := "on"
				if strings.HasSuffix(last[s.ComponentType], "power_off") {
					leaves = "off"
				}
				if a.Parameters.ExpectedStatus != leaves {
					warn(s.path(i, j), "it waits until %s is %s, after %s, which leaves it %s", s.ComponentType, a.Parameters.ExpectedStatus, last[s.ComponentType], leaves)
				}
			}
		}
	}
}

// WarningsFor tells what is odd about the rule in a rack of so many components.
func (r *Rule) WarningsFor(counts Counts) []Problem {
	var all []Problem
	for i := range r.Steps {
		s := &r.Steps[i]
		if n := counts[s.ComponentType]; s.MaxParallel == 1 && n >= many && slices.ContainsFunc(s.Actions(), func(a Action) bool { return a.PerComponent() }) {
			all = append(all, Problem{Path: element("steps", i) + ".max_parallel", Message: fmt.Sprintf("%d components of type %s one after the other", n, s.ComponentType)})
		}
	}
	return all
}

// commands lists the operations that a step carries out, in order.
func (r *Rule) commands(s *Step) []string {
	var codes []string
	for _, a := range s.Actions() {
		switch {
		case a.Name == PowerControl && a.Parameters.Operation != "":
			codes = append(codes, a.Parameters.Operation)
		case a.Name == PowerControl:
			codes = append(codes, r.Operation)
		case a.Name == DecommissionControl:
			codes = append(codes, "decommission")
		}
	}
	return codes
}

// verified reports whether a step of this stage or a later one looks at what
// came of it. FirmwareControl looks itself.
func (r *Rule) verified(of *Step) bool {
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Stage < of.Stage {
			continue
		}
		looks := s.Actions()
		if s == of { // before the command a look shows nothing
			for i := len(looks) - 1; i >= 0; i-- {
				if n := looks[i].Name; n == PowerControl || n == FirmwareControl || n == DecommissionControl {
					looks = looks[i+1:]
					break
				}
			}
		}
		for _, a := range looks {
			switch a.Name {
			case VerifyPowerStatus, WaitDecommissioned:
				if s.ComponentType == of.ComponentType {
					return true
				}
			case VerifyReachability:
				if slices.Contains(a.Parameters.ComponentTypes, of.ComponentType) {
					return true
				}
			}
		}
	}
	return false
}

// order tells of a type that is switched on before what feeds it, or loses its
// power before it is switched off.
func (r *Rule) order(warn func(path, format string, args ...any)) {
	first := func(kind string, last bool, codes ...string) int {
		found := -1
		for _, i := range r.inStages() {
			if r.Steps[i].ComponentType == kind && slices.ContainsFunc(r.commands(&r.Steps[i]), func(code string) bool { return slices.Contains(codes, code) }) && (found < 0 || last) {
				found = i
			}
		}
		return found
	}
	for _, pair := range feeds {
		source, load := pair[0], pair[1]
		on, needs := first(load, false, "power_on", "force_power_on"), first(source, false, "power_on", "force_power_on")
		if on >= 0 && needs >= 0 && r.Steps[on].Stage <= r.Steps[needs].Stage {
			warn(element("steps", on), "%s is switched on in stage %d, not after %s, which feeds it (stage %d)", load, r.Steps[on].Stage, source, r.Steps[needs].Stage)
		}
		off, cut := first(load, true, "power_off", "force_power_off"), first(source, false, "power_off", "force_power_off")
		if off >= 0 && cut >= 0 && r.Steps[off].Stage >= r.Steps[cut].Stage {
			warn(element("steps", cut), "%s is switched off in stage %d, not after %s, which it feeds (stage %d)", source, r.Steps[cut].Stage, load, r.Steps[off].Stage)
		}
	}
}
