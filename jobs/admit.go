package jobs

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// portion is how many devices are read and judged at a time: it bounds what
// their facts take in memory.
const portion = 500

// admission is one request under judgement.
type admission struct {
	report   Report
	workflow *engine.Workflow
	policy   *engine.Admission // ready for the parameters; nil where these are refused
	at       map[int64][]int   // device → places in report.Devices
	site     int64             // of the selected devices; 0: none, or several
	held     map[int64]string  // device → the parameter that names it
	selected []fleet.Device    // in the order of ids
	racks    map[int64]string  // names
	stamps   map[int64]map[string]any
	siteIs   map[string]any // what the server stamps of the site
}

// open looks up the workflow and judges what does not depend on devices. ok is
// false where nothing more can be said.
func (s *Service) open(bundle *engine.Bundle, r *Request) (a *admission, ok bool) {
	a = &admission{
		report: Report{Workflow: r.Workflow, BundleVersion: bundle.Version(), At: s.clock(), Devices: make([]Verdict, len(r.Devices))},
		at:     map[int64][]int{}, held: map[int64]string{}, racks: map[int64]string{}, stamps: map[int64]map[string]any{}, siteIs: map[string]any{},
	}
	for i, ref := range r.Devices {
		a.report.Devices[i].Ref = ref
	}
	if a.workflow, ok = bundle.Workflow(r.Workflow); !ok {
		a.report.refuse(CodeWorkflowNotFound, "there is no workflow %q: GET /api/v1/workflows/ lists them", r.Workflow)
		return a, false
	}
	_, implemented := s.options.Implemented(r.Workflow)
	a.report.Available = a.workflow.Available && implemented
	parameters, problems := bundle.ValidateParameters(r.Workflow, r.Parameters)
	for _, p := range problems {
		refusal := a.report.refuse(CodeParameterInvalid, "%s", p.Message)
		refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "parameters", p.Actual, p.Constraint, a.workflow.Pos.Short()
		if p.Path != "" {
			refusal.Path += "." + p.Path
		}
	}
	if a.report.Parameters = parameters; parameters != nil {
		a.policy = bundle.Admission(r.Workflow, parameters)
	}
	a.cardinality(len(r.Devices))
	return a, true
}

func (a *admission) cardinality(n int) {
	w := a.workflow
	most := MaxDevices
	if w.MaxDevices > 0 {
		most = min(most, w.MaxDevices)
	}
	switch {
	case n < max(w.MinDevices, 1):
		refusal := a.report.refuse(CodeTooFewDevices, "%s takes at least %d devices", w.Slug, max(w.MinDevices, 1))
		refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "devices", fmt.Sprint(n), fmt.Sprintf(">=%d", max(w.MinDevices, 1)), w.Pos.Short()
	case n > most:
		refusal := a.report.refuse(CodeTooManyDevices, "%s takes at most %d devices", w.Slug, most)
		refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "devices", fmt.Sprint(n), fmt.Sprintf("<=%d", most), w.Pos.Short()
	}
}

// names are the ids and the normalised names that the request names devices by.
func (r *Request) names() (ids []int64, names []string) {
	for _, ref := range r.Devices {
		if ref.ID != 0 {
			ids = append(ids, ref.ID)
		} else {
			names = append(names, fleet.NameKey(ref.Name))
		}
	}
	return ids, names
}

// find looks up the devices that the request names.
func (a *admission) find(ctx context.Context, q store.Querier, r *Request) error {
	ids, names := r.names()
	found, err := store.FindDevices(ctx, q, ids, names, r.Visible, r.Site)
	if err != nil {
		return err
	}
	a.resolve(found)
	return nil
}

// findWhole is find that reads the selected devices as well, in the order of ids.
func (a *admission) findWhole(ctx context.Context, q store.Querier, r *Request) ([]fleet.Device, error) {
	ids, names := r.names()
	found, all, err := store.FindWhole(ctx, q, ids, names, r.Visible, r.Site)
	if err != nil {
		return nil, err
	}
	a.resolve(found)
	return slices.DeleteFunc(all, func(d fleet.Device) bool { return len(a.at[d.ID]) == 0 }), nil
}

// resolve tells which of the found devices the request names where.
func (a *admission) resolve(found []store.Named) {
	byID, byName := make(map[int64]*store.Named, len(found)), map[string][]*store.Named{}
	for i := range found {
		byID[found[i].ID] = &found[i]
		byName[fleet.NameKey(found[i].Name)] = append(byName[fleet.NameKey(found[i].Name)], &found[i])
	}
	sites := map[int64]string{}
	for i := range a.report.Devices {
		v := &a.report.Devices[i]
		n := byID[v.Ref.ID]
		if v.Ref.ID == 0 {
			switch named := byName[fleet.NameKey(v.Ref.Name)]; len(named) {
			case 0:
			case 1:
				n = named[0]
			default:
				v.refuse(CodeDeviceNotFound, "%d devices have the name %q: name one by its id, or say the site", len(named), v.Ref.Name)
				continue
			}
		}
		if n == nil {
			v.refuse(CodeDeviceNotFound, "there is no %s", v.Ref)
			continue
		}
		v.ID, v.Name, v.Site = n.ID, n.Name, n.Site
		sites[n.SiteID] = n.Site
		if a.at[n.ID] = append(a.at[n.ID], i); len(a.at[n.ID]) == 2 {
			v.refuse(CodeDuplicateDevice, "%s is named twice", n.Name)
		}
		a.site = n.SiteID
	}
	if len(sites) > 1 {
		var of []string
		for _, name := range sites {
			of = append(of, name)
		}
		slices.Sort(of)
		a.report.refuse(CodeMixedSite, "a job is of one site, and these devices are of %s", strings.Join(of, ", ")).Actual = strings.Join(of, ", ")
		a.site = 0
	}
}

// ids lists the selected devices of a site (0: of all) in the order of ids.
func (a *admission) ids() []int64 {
	ids := make([]int64, 0, len(a.at))
	for id := range a.at {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// each gives the verdict on a device, the first place where it is named.
func (a *admission) verdict(id int64) *Verdict { return &a.report.Devices[a.at[id][0]] }

// findHeld looks up the devices that parameters name, in the job's site, and
// gives them.
func (a *admission) findHeld(ctx context.Context, q store.Querier, site string) ([]fleet.Device, error) {
	var all []fleet.Device
	for _, parameter := range a.workflow.Held {
		name, ok := a.report.Parameters[parameter].(string)
		if !ok || name == "" {
			continue
		}
		path := "parameters." + parameter
		_, found, err := store.FindWhole(ctx, q, nil, []string{fleet.NameKey(name)}, nil, site)
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			refusal := a.report.refuse(CodeDeviceNotFound, "%s: site %s has %d devices of the name %q", parameter, site, len(found), name)
			refusal.Path, refusal.Actual = path, name
			continue
		}
		id := found[0].ID
		if _, selected := a.at[id]; selected || a.held[id] != "" {
			refusal := a.report.refuse(CodeParameterInvalid, "%s: %s is a device of the job already", parameter, found[0].Name)
			refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = path, name, "another device", a.workflow.Pos.Short()
			continue
		}
		a.held[id] = parameter
		all = append(all, found[0])
	}
	return all, nil
}

// judge asks every gate about devices of one site.
func (a *admission) judge(ctx context.Context, q store.Querier, by *devices.Admission, list []fleet.Device) error {
	a.selected = slices.Grow(a.selected, len(list))
	for chunk := range slices.Chunk(list, portion) {
		candidates, err := by.Candidates(ctx, q, chunk)
		if err != nil {
			return err
		}
		for i := range candidates {
			c := &candidates[i]
			a.selected = append(a.selected, c.Device)
			a.racks[c.Device.RackID] = c.Rack
			a.stamp(c)
		}
		if a.policy != nil { // else a gate that reads the parameters could not be judged
			a.allGates(candidates)
		}
	}
	return nil
}

const judgesMost = 4

// allGates asks the gates about each candidate, on every processor: each has a
// verdict of its own.
func (a *admission) allGates(candidates []devices.Candidate) {
	var running sync.WaitGroup
	judges := min(runtime.GOMAXPROCS(0), judgesMost)
	for j := range judges {
		running.Go(func() {
			for i := j * len(candidates) / judges; i < (j+1)*len(candidates)/judges; i++ {
				a.gates(&candidates[i])
			}
		})
	}
	running.Wait()
}

func (a *admission) gates(c *devices.Candidate) {
	refused := a.policy.Admit(&engine.AdmitRequest{
		Facts: &c.Facts, Codes: &c.Codes, Conditions: c.Masks, Parameters: a.report.Parameters, StaleSources: c.Aged, StaleTypes: c.Stale,
	})
	v := a.verdict(c.Device.ID)
	for i := range refused {
		f := &refused[i]
		v.Refusals = append(v.Refusals, Refusal{
			Code: f.Code, Gate: f.Name, Message: f.Message, Path: f.Path, Actual: f.Actual, Expected: f.Expected,
			ConditionType: f.ConditionType, Policy: f.Pos.Short(),
		})
	}
}

// likeness judges what the devices of a job must have in common.
func (a *admission) likeness() {
	if len(a.selected) < 2 {
		return
	}
	first := &a.selected[0]
	differs := func(code, what string, of func(*fleet.Device) string) {
		for i := range a.selected {
			d := &a.selected[i]
			if is, was := of(d), of(first); is == "" || is != was {
				refusal := a.report.refuse(code, "the devices of %s have to be of one %s: %s has %s and %s has %s", a.workflow.Slug, what, first.Name, orNone(was), d.Name, orNone(is))
				refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "devices", orNone(is), orNone(was), a.workflow.Pos.Short()
				return
			}
		}
	}
	if a.workflow.SameResourceClass {
		differs(CodeMixedResourceClass, "resource class", func(d *fleet.Device) string { return d.ResourceClass })
	}
	if a.workflow.SameRack {
		differs(CodeMixedRack, "rack", func(d *fleet.Device) string {
			if d.RackID == 0 {
				return ""
			}
			if name := a.racks[d.RackID]; name != "" {
				return name
			}
			return fmt.Sprintf("rack %d", d.RackID)
		})
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// conflicts judges the locks that others have on the devices.
func (a *admission) conflicts(ctx context.Context, q store.Querier, names map[int64]string) error {
	if a.workflow.Contention == engine.None {
		return nil
	}
	ids := a.ids()
	for id := range a.held {
		ids = append(ids, id)
	}
	locks, err := store.LocksOf(ctx, q, ids)
	if err != nil {
		return err
	}
	for i := range locks {
		l := &locks[i]
		if a.workflow.Contention == engine.Shared && l.Mode == string(engine.Shared) {
			continue
		}
		name := names[l.DeviceID]
		var refusal *Refusal
		if parameter, held := a.held[l.DeviceID]; held {
			refusal = a.report.refuse(CodeWorkflowConflict, "%s (%s) holds %s, which %s names: wait for it to end, or cancel it", l.Holder, l.Work, name, parameter)
			refusal.Path = "parameters." + parameter
		} else {
			refusal = a.verdict(l.DeviceID).refuse(CodeWorkflowConflict, "%s (%s) holds %s: wait for it to end, or cancel it", l.Holder, l.Work, name)
		}
		refusal.Holder, refusal.Actual, refusal.Expected = l.Holder, l.Mode+" by "+l.Holder, "free"
		if a.workflow.Contention == engine.Shared {
			refusal.Expected = "not locked exclusively"
		}
	}
	return nil
}
