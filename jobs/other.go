package jobs

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Other is work that is no workflow of the catalogue and holds its devices alone,
// as an exclusive job does: an operation on racks.
type Other struct {
	Name       string         // by which caps and breakers count it
	Parameters map[string]any // that the policies know
	MayWait    bool           // a rack of which others hold a device waits, which is no refusal
	Parts      []Part         // no device is in two
}

// Part is devices that are judged by the same.
type Part struct {
	Devices    []fleet.Device
	Policies   []string // all of whose gates decide
	Disruptive bool     // they count under the caps
}

// Judge tells, with the rows of all devices held, whether other work may have
// them, and every reason why not. The devices are of one site. Racks of which
// others hold a device, where those may wait, are given with the refusal that
// names the holder and count under no cap; the caps of the rest stay locked until
// the end of tx.
func (s *Service) Judge(ctx context.Context, tx pgx.Tx, by *devices.Admission, o Other) (Report, map[int64]Refusal, error) {
	var all, taken []fleet.Device
	for _, p := range o.Parts {
		all = append(all, p.Devices...)
		if p.Disruptive {
			taken = append(taken, p.Devices...)
		}
	}
	a := &admission{
		report:   Report{Workflow: o.Name, Available: true, BundleVersion: by.Bundle.Version(), At: s.clock(), Parameters: o.Parameters, Devices: make([]Verdict, len(all))},
		workflow: &engine.Workflow{Slug: o.Name, Contention: engine.Exclusive, Disruptive: len(taken) > 0},
		at:       map[int64][]int{}, held: map[int64]string{}, racks: map[int64]string{}, stamps: map[int64]map[string]any{}, siteIs: map[string]any{}, site: by.Site.ID,
	}
	for i := range all {
		d := &all[i]
		a.at[d.ID] = []int{i}
		a.report.Devices[i] = Verdict{Ref: Ref{ID: d.ID}, ID: d.ID, Name: d.Name, Site: by.Site.Spec.Name}
	}
	for _, p := range o.Parts {
		for _, slug := range p.Policies {
			a.policy, a.selected = by.Bundle.Admission(slug, o.Parameters), nil
			if err := a.judge(ctx, tx, by, p.Devices); err != nil {
				return Report{}, nil, err
			}
		}
	}
	for i := range a.report.Devices { // policies that say the same say it once
		v := &a.report.Devices[i]
		v.Refusals = once(v.Refusals)
	}
	waiting := map[int64]Refusal{}
	if o.MayWait {
		held, err := heldRacks(ctx, tx, all)
		if err != nil {
			return Report{}, nil, err
		}
		waiting = held
		taken = slices.DeleteFunc(taken, func(d fleet.Device) bool { _, waits := held[d.RackID]; return waits })
	} else if err := a.conflicts(ctx, tx, namesOf(all)); err != nil {
		return Report{}, nil, err
	}
	if err := a.barred(ctx, tx, all); err != nil {
		return Report{}, nil, err
	}
	l := s.limits(by.Bundle)
	return a.report, waiting, a.caps(ctx, tx, &l, by.Site.Spec.Name, taken, true)
}

// Held reports whether others hold one of some devices.
func (s *Service) Held(ctx context.Context, q store.Querier, all []fleet.Device) (bool, error) {
	held, err := heldRacks(ctx, q, all)
	return len(held) > 0, err
}

// heldRacks tells of which racks others hold a device.
func heldRacks(ctx context.Context, q store.Querier, all []fleet.Device) (map[int64]Refusal, error) {
	ids, byID := make([]int64, len(all)), map[int64]*fleet.Device{}
	for i := range all {
		ids[i], byID[all[i].ID] = all[i].ID, &all[i]
	}
	locks, err := store.LocksOf(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	held := map[int64]Refusal{}
	for i := range locks {
		l := &locks[i]
		d := byID[l.DeviceID]
		if _, known := held[d.RackID]; !known {
			held[d.RackID] = Refusal{Code: CodeWorkflowConflict, Message: l.Holder + " (" + l.Work + ") holds " + d.Name, Actual: l.Mode + " by " + l.Holder, Expected: "free", Holder: l.Holder}
		}
	}
	return held, nil
}

// once drops what is said twice.
func once(refusals []Refusal) []Refusal {
	var kept []Refusal
	for _, r := range refusals {
		if !slices.ContainsFunc(kept, func(k Refusal) bool { return k.Code == r.Code && k.Gate == r.Gate && k.Path == r.Path }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// Trip opens the breakers that failures of work trip: some of its devices have
// just ended so, in the transaction.
func (s *Service) Trip(ctx context.Context, tx pgx.Tx, name, holder string, site int64, devices []int64) error {
	return s.trip(ctx, tx, failures{name, holder, site, devices})
}

// Tasks keeps account of executions that no job has: those of operations on racks.
type Tasks interface {
	Finish(ctx context.Context, workflowID string, e Ending) error
	Close(ctx context.Context, workflowID string, e Ending) error
	Expire(ctx context.Context, most int) (int, error)
	Promote(ctx context.Context) (int, error)
}

// Promote starts what waited for others and may go on now, and tells of how many
// tasks it decided.
func (s *Service) Promote(ctx context.Context) (int, error) {
	if s.tasks == nil {
		return 0, nil
	}
	return s.tasks.Promote(ctx)
}

// Join makes the service hand on what concerns executions of tasks, so that one
// dispatcher and one converger serve both. It is called once, before anything
// runs.
func (s *Service) Join(t Tasks) { s.tasks = t }

// ofTask tells whether an execution is a task's, and there is somebody to keep it.
func (s *Service) ofTask(ctx context.Context, workflowID string) (bool, error) {
	if s.tasks == nil {
		return false, nil
	}
	e, err := store.Execution(ctx, s.db, workflowID)
	return e.TaskID != 0, err
}
