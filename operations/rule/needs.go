package rule

import "slices"

// Capability is what a component manager can do with components of its type.
type Capability string

// The capabilities.
const (
	Power        Capability = "power"
	Firmware     Capability = "firmware"
	Reachability Capability = "reachability"
	Decommission Capability = "decommission"
)

// Managers says of which component types this build has a manager, and what that
// can do.
func Managers() map[string][]Capability {
	every := []Capability{Power, Firmware, Reachability, Decommission}
	return map[string][]Capability{"compute": every, "nvswitch": every, "powershelf": every}
}

// Need is a capability that a rule cannot be carried out without.
type Need struct {
	ComponentType string     `json:"component_type"`
	Capability    Capability `json:"capability"`
	Path          string     `json:"path"` // of the first action that needs it
}

// Needs lists what the rule needs where components of these types are there, each
// once, in the order of the rule.
func (r *Rule) Needs(counts Counts) []Need {
	var all []Need
	need := func(kind string, capability Capability, path string) {
		known := slices.ContainsFunc(all, func(n Need) bool { return n.ComponentType == kind && n.Capability == capability })
		if !known && counts[kind] > 0 {
			all = append(all, Need{kind, capability, path})
		}
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if counts[s.ComponentType] == 0 {
			continue
		}
		for j, a := range s.Actions() {
			path := s.path(i, j)
			switch a.Name {
			case PowerControl, VerifyPowerStatus, GetPowerStatus:
				need(s.ComponentType, Power, path)
			case FirmwareControl:
				need(s.ComponentType, Firmware, path)
			case DecommissionControl, WaitDecommissioned:
				need(s.ComponentType, Decommission, path)
			case VerifyReachability:
				for _, kind := range a.Parameters.ComponentTypes {
					need(kind, Reachability, path)
				}
			}
		}
	}
	return all
}

// path is that of the j-th action of the i-th step.
func (s *Step) path(i, j int) string {
	step := element("steps", i)
	switch {
	case j < len(s.Pre):
		return element(step+".pre_operation", j)
	case j == len(s.Pre):
		return step + ".main_operation"
	}
	return element(step+".post_operation", j-len(s.Pre)-1)
}

// Missing lists the needs that no manager meets.
func Missing(needs []Need, managers map[string][]Capability) []Need {
	var all []Need
	for _, n := range needs {
		if !slices.Contains(managers[n.ComponentType], n.Capability) {
			all = append(all, n)
		}
	}
	return all
}

// Command is an operation that a rule carries out on a component type.
type Command struct{ Operation, ComponentType string }

// Commands lists, each once, what the rule does to which types: the operation that
// it is for, on the type of every step, and the ones that its actions name. Their
// locks together are those of the rule.
func (r *Rule) Commands() []Command {
	var all []Command
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, code := range append([]string{r.Operation}, r.commands(s)...) {
			if c := (Command{code, s.ComponentType}); !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}
