package operations

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// admitting takes of an admission what the work on rules needs.
func admitting(f func(tx pgx.Tx, bundle *engine.Bundle) error) func(tx pgx.Tx, a *devices.Admission) error {
	return func(tx pgx.Tx, a *devices.Admission) error { return f(tx, a.Bundle) }
}

// target is one rack of a request, and what a task of it would touch.
type target struct {
	rack       store.Rack
	resolved   Resolved
	components []fleet.Device // by id
	types      map[int64]string
	excluded   []int64 // devices of the rack that the request leaves out
	locks      []int64 // devices that the task locks, by id
	disruptive bool
	policies   []string // by which it is judged
}

func (t *target) counts() rule.Counts {
	counts := rule.Counts{}
	for _, kind := range t.types {
		counts[kind]++
	}
	return counts
}

// takes lists the types that a rule has steps for. Those that it only asks about
// are beside the task: nothing is done to them.
func takes(r *rule.Rule) map[string]bool {
	types := map[string]bool{}
	for i := range r.Steps {
		types[r.Steps[i].ComponentType] = true
	}
	return types
}

// choose finds the components of a rack that the request means: those that it
// names, else those that the rule is for, of firmware those that there is an image
// for.
func (t *target) choose(bundle *engine.Bundle, of []fleet.Device, want, exclude *pick, firmware []Firmware) {
	t.types = map[int64]string{}
	taken := takes(&t.resolved.Rule)
	for i := range of {
		d := &of[i]
		kind := bundle.ComponentType(d.Class)
		if exclude.single(d) || kind != "" && exclude.types[kind] {
			t.excluded = append(t.excluded, d.ID)
			continue
		}
		named := want.single(d)
		if !named && (!taken[kind] || d.InventoryOnly || !want.empty() && !want.types[kind] || want.empty() && len(firmware) > 0 && !updated(firmware, kind)) {
			continue
		}
		t.components = append(t.components, *d)
		t.types[d.ID] = kind
	}
}

// settle works out what the task locks and by which policies it is judged: that
// of its operation, and of every operation that the rule carries out.
func (t *target) settle(bundle *engine.Bundle, of []fleet.Device) {
	counts, whole := t.counts(), false
	policies := map[string]bool{}
	for _, c := range t.resolved.Rule.Commands() {
		o, ok := bundle.Operation(c.Operation)
		if !ok {
			policies[fleet.OperationWork(c.Operation)] = true // which refuses
			continue
		}
		if counts[c.ComponentType] == 0 {
			continue
		}
		policies[o.Policy()] = true
		t.disruptive = t.disruptive || o.Disruptive
		whole = whole || o.Rack[c.ComponentType]
	}
	t.policies = slices.Sorted(maps.Keys(policies))
	t.locks = nil
	for i := range t.components {
		t.locks = append(t.locks, t.components[i].ID)
	}
	for i := range of {
		// Of one that is for the inventory only, admission says that it may not be.
		if d := &of[i]; whole && !slices.Contains(t.locks, d.ID) {
			t.locks = append(t.locks, d.ID)
		}
	}
	slices.Sort(t.locks)
}

// cutsShelves tells whether the task takes the power from its rack's shelves.
func (t *target) cutsShelves(bundle *engine.Bundle) bool {
	return t.counts()["powershelf"] > 0 && slices.ContainsFunc(t.resolved.Rule.Commands(), func(c rule.Command) bool {
		o, ok := bundle.Operation(c.Operation)
		return ok && c.ComponentType == "powershelf" && o.Type == "power_control" && o.Disruptive
	})
}

// check says what is wrong with a target by itself.
func (t *target) check(bundle *engine.Bundle, exclude *pick, firmware []Firmware, managers map[string][]rule.Capability) []jobs.Refusal {
	var all []jobs.Refusal
	counts := t.counts()
	if len(t.components) == 0 {
		all = append(all, jobs.Refusal{Code: jobs.CodeTooFewDevices, Path: "components", Actual: "0", Expected: ">=1",
			Message: fmt.Sprintf("rack %s has no component that this request and the rule %q are for", t.rack.Name, t.resolved.Rule.Name)})
	}
	taken := takes(&t.resolved.Rule)
	for i := range t.components {
		d := &t.components[i]
		if kind := t.types[d.ID]; !taken[kind] {
			all = append(all, jobs.Refusal{Code: jobs.CodeParameterInvalid, Path: "components", Actual: d.Name, Expected: strings.Join(slices.Sorted(maps.Keys(taken)), ", "),
				Message: fmt.Sprintf("%s is of class %s, and the rule %q has no step for such components", d.Name, d.Class, t.resolved.Rule.Name)})
		}
	}
	if t.cutsShelves(bundle) && len(exclude.types) > 0 {
		all = append(all, jobs.Refusal{Code: jobs.CodeParameterInvalid, Path: "exclude", Actual: strings.Join(slices.Sorted(maps.Keys(exclude.types)), ", "), Expected: "single components",
			Message: fmt.Sprintf("the shelves of rack %s are cut, so what is excluded loses its power all the same: name each such component by itself", t.rack.Name)})
	}
	for _, need := range rule.Missing(t.resolved.Rule.Needs(counts), managers) {
		all = append(all, jobs.Refusal{Code: CodeCapabilityMissing, Path: need.Path, Actual: string(need.Capability), Expected: "a component manager that has it",
			Message: fmt.Sprintf("no component manager has %s for %s, which rack %s has %d of", need.Capability, need.ComponentType, t.rack.Name, counts[need.ComponentType])})
	}
	return append(all, t.images(firmware)...)
}

// updated tells whether there is an image for a type.
func updated(firmware []Firmware, kind string) bool {
	return slices.ContainsFunc(firmware, func(f Firmware) bool { return f.ComponentType == kind })
}

// images says which types the rule updates without an image.
func (t *target) images(firmware []Firmware) []jobs.Refusal {
	var all []jobs.Refusal
	counts, said := t.counts(), map[string]bool{}
	for i := range t.resolved.Rule.Steps {
		s := &t.resolved.Rule.Steps[i]
		updates := slices.ContainsFunc(s.Actions(), func(a rule.Action) bool { return a.Name == rule.FirmwareControl })
		if updates && !updated(firmware, s.ComponentType) && counts[s.ComponentType] > 0 && !said[s.ComponentType] {
			said[s.ComponentType] = true
			all = append(all, jobs.Refusal{Code: jobs.CodeParameterInvalid, Path: "firmware", Actual: "none", Expected: "an image for " + s.ComponentType,
				Message: fmt.Sprintf("the rule updates %s, which rack %s has %d of: give an image for them, or leave them out by exclude", s.ComponentType, t.rack.Name, counts[s.ComponentType])})
		}
	}
	return all
}

// unreachable says of a component why no manager can reach it for what is done
// with its type, "" if one can.
func unreachable(d *fleet.Device, kind string, needs []rule.Need) string {
	if d.BMCAddress != "" {
		return ""
	}
	for _, need := range needs {
		switch {
		case need.ComponentType != kind, need.Capability == rule.Decommission: // asked of the inventory
		case need.Capability != rule.Firmware && kind == "compute" && d.InfrastructureRef != "": // Ironic does it
		default:
			return "the inventory knows no address of its BMC"
		}
	}
	return ""
}

// identity tells tasks apart: equal ones ask for the same. What a rule is called is
// no part of it.
func (t *target) identity(firmware []Firmware, override bool) []byte {
	ids := make([]int64, len(t.components))
	for i := range t.components {
		ids[i] = t.components[i].ID
	}
	slices.Sort(ids)
	body, _ := json.Marshal([]any{t.rack.ID, t.resolved.Rule.OperationType, t.resolved.Rule.Operation, ids, content(&t.resolved.Rule), firmware, override}) // plain values: cannot fail
	sum := sha256.Sum256(body)
	return sum[:]
}
