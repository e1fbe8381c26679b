package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

// Submit makes a task of each rack, or a jobs.RefusedError with every reason why
// not: all of them or none. Everything is judged in the transaction that stores
// it, with the racks' and the devices' rows held. A task that waits or runs and
// asks for the same is given in the place of a new one. With the idempotency key
// of an earlier request that one's tasks are given; with another content it is a
// jobs.Error (CodeIdempotencyKeyReused).
func (s *Service) Submit(ctx context.Context, asked Request) (Submitted, error) {
	r := asked.clean()
	doing := "submit " + r.Operation
	hash := r.hash()
	if r.IdempotencyKey != "" { // what it once asked for may be refused by now
		done, err := s.repeated(ctx, &r, hash)
		if err != nil || done.Repeated {
			return done, refusedOr(err, doing)
		}
	}
	racks, site, err := s.racks(ctx, &r)
	if err != nil {
		return Submitted{}, refusedOr(err, doing)
	}
	var done Submitted
	err = s.devices.Admitting(ctx, site, func(tx pgx.Tx, by *devices.Admission) error {
		done = Submitted{}
		if r.IdempotencyKey != "" {
			ids, body, err := store.ClaimTaskKey(ctx, tx, r.By.Name, r.IdempotencyKey, hash)
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				done, err = earlier(ctx, tx, ids, body, hash)
				return err
			}
		}
		var err error
		if done, err = s.admit(ctx, tx, by, r, racks); err != nil || r.IdempotencyKey == "" {
			return err
		}
		ids := make([]int64, len(done.Tasks))
		for i := range done.Tasks {
			ids[i] = done.Tasks[i].ID
		}
		return store.PutTaskKey(ctx, tx, r.By.Name, r.IdempotencyKey, ids)
	})
	if errors.Is(err, store.ErrLockConflict) { // somebody wrote locks without the devices' rows
		err = refuse(jobs.CodeWorkflowConflict, "other work took one of the devices at this instant: submit again")
	}
	if err != nil {
		return Submitted{}, refusedOr(err, doing)
	}
	return done, nil
}

func (s *Service) repeated(ctx context.Context, r *Request, hash []byte) (Submitted, error) {
	ids, body, err := store.TaskKey(ctx, s.db, r.By.Name, r.IdempotencyKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(ids) == 0 {
		return Submitted{}, nil
	}
	if err != nil {
		return Submitted{}, err
	}
	return earlier(ctx, s.db, ids, body, hash)
}

func earlier(ctx context.Context, q store.Querier, ids []int64, body, hash []byte) (Submitted, error) {
	if !bytes.Equal(body, hash) {
		return Submitted{}, refuse(jobs.CodeIdempotencyKeyReused, "the Idempotency-Key stands for task %d, which asked for something else: take another key", ids[0])
	}
	rows, err := store.ListTasks(ctx, q, store.TaskFilter{IDs: ids, Limit: len(ids)})
	if err != nil {
		return Submitted{}, err
	}
	done := Submitted{Repeated: true}
	for _, id := range ids {
		for i := range rows {
			if rows[i].ID == id {
				done.Tasks = append(done.Tasks, rows[i].Task)
			}
		}
	}
	return done, nil
}

// racks finds the racks of a request and their one site.
func (s *Service) racks(ctx context.Context, r *Request) ([]store.Rack, int64, error) {
	if n := len(r.Racks); n == 0 || n > MaxRacks {
		refusal := jobs.Refusal{Code: jobs.CodeParameterInvalid, Path: "racks", Actual: fmt.Sprint(n), Expected: fmt.Sprintf("1 to %d", MaxRacks), Message: fmt.Sprintf("a request is for 1 to %d racks", MaxRacks)}
		return nil, 0, &jobs.RefusedError{Report: jobs.Report{Workflow: r.Operation, Refusals: []jobs.Refusal{refusal}}}
	}
	var ids []int64
	var names []string
	for _, ref := range r.Racks {
		if ref.ID != 0 {
			ids = append(ids, ref.ID)
		} else {
			names = append(names, ref.Name)
		}
	}
	found, err := store.FindRacks(ctx, s.db, ids, names, r.Visible, r.Site)
	if err != nil {
		return nil, 0, err
	}
	var racks []store.Rack
	for _, ref := range r.Racks {
		var one []store.Rack
		for _, rack := range found {
			if ref.ID == rack.ID || ref.ID == 0 && strings.EqualFold(ref.Name, rack.Name) {
				one = append(one, rack)
			}
		}
		switch {
		case len(one) == 0:
			return nil, 0, refuse(CodeRackNotFound, "there is no rack %s: list them at /api/v1/racks/", strings.TrimPrefix(ref.String(), "device "))
		case len(one) > 1:
			return nil, 0, refuse(CodeRackNotFound, "%d racks have the name %q: name one by its id, or say the site", len(one), ref.Name)
		case slices.Contains(racks, one[0]):
			continue
		case len(racks) > 0 && racks[0].SiteID != one[0].SiteID:
			return nil, 0, refuse(jobs.CodeMixedSite, "a request is of one site, and rack %s is of %s, rack %s of %s", racks[0].Name, racks[0].Site, one[0].Name, one[0].Site)
		}
		racks = append(racks, one[0])
	}
	slices.SortFunc(racks, func(a, b store.Rack) int { return int(a.ID - b.ID) })
	return racks, racks[0].SiteID, nil
}

// admit judges a request with everything that it touches held, and stores it.
func (s *Service) admit(ctx context.Context, tx pgx.Tx, by *devices.Admission, r Request, racks []store.Rack) (Submitted, error) {
	report := jobs.Report{Workflow: r.Operation, Available: true, BundleVersion: by.Bundle.Version(), At: s.clock()}
	var err error
	if report.Refusals, err = s.complete(&r, by.Bundle); err != nil {
		return Submitted{}, err
	}
	if !report.Admitted() { // the rest rests on what is wrong
		return Submitted{}, &jobs.RefusedError{Report: report}
	}
	targets, err := s.targets(ctx, tx, by, &r, racks, &report)
	if err != nil {
		return Submitted{}, err
	}
	tasks := make([]fleet.Task, len(targets)) // zero: to be made
	var fresh []*target
	for i, t := range targets {
		if tasks[i], err = store.OpenTaskLike(ctx, tx, t.rack.ID, t.identity(r.Firmware, r.overrides())); errors.Is(err, store.ErrNotFound) {
			fresh = append(fresh, t)
		} else if err != nil {
			return Submitted{}, err
		}
	}
	if len(fresh) == 0 && report.Admitted() {
		return Submitted{tasks, true}, nil
	}
	waiting, err := s.judge(ctx, tx, by, &report, fresh, r.overrides(), r.Conflict == ConflictQueue)
	if err != nil {
		return Submitted{}, err
	}
	if !report.Admitted() {
		return Submitted{}, &jobs.RefusedError{Report: report}
	}
	if r.Conflict == ConflictQueue { // who came before is before
		if err := behind(ctx, tx, fresh, waiting); err != nil {
			return Submitted{}, err
		}
	}
	for i, t := range targets {
		if tasks[i].ID != 0 {
			continue
		}
		_, waits := waiting[t.rack.ID]
		if tasks[i], err = s.store(ctx, tx, by, t, &r, waits); err != nil {
			return Submitted{}, err
		}
	}
	return Submitted{Tasks: tasks}, nil
}

// behind adds the racks on which tasks wait already.
func behind(ctx context.Context, tx pgx.Tx, targets []*target, waiting map[int64]jobs.Refusal) error {
	ids := make([]int64, len(targets))
	for i, t := range targets {
		ids[i] = t.rack.ID
	}
	queued, err := store.QueuedTasks(ctx, tx, ids)
	for i := range queued {
		waiting[queued[i].RackID] = jobs.Refusal{Code: jobs.CodeWorkflowConflict, Holder: queued[i].Holder()}
	}
	return err
}

// targets works out what each rack's task would touch, with racks and devices held.
func (s *Service) targets(ctx context.Context, tx pgx.Tx, by *devices.Admission, r *Request, racks []store.Rack, report *jobs.Report) ([]*target, error) {
	var all []*target
	var ids, locks []int64
	for _, rack := range racks {
		resolved, err := s.resolve(ctx, tx, by.Bundle, rack.ID, r.OperationType, r.Operation, r.RuleID)
		if err != nil {
			return nil, err
		}
		all, ids = append(all, &target{rack: rack, resolved: resolved}), append(ids, rack.ID)
	}
	if err := store.LockRacks(ctx, tx, ids); err != nil {
		return nil, err
	}
	found, err := store.DevicesOfRacks(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	want, exclude := s.pick(r.Components), s.pick(r.Exclude)
	strangers(found, r.Components, "components", report, &want)
	strangers(found, r.Exclude, "exclude", report, &exclude)
	for _, t := range all {
		of := ofRack(found, t.rack.ID)
		t.choose(by.Bundle, of, &want, &exclude, r.Firmware)
		t.settle(by.Bundle, of)
		report.Refusals = append(report.Refusals, t.check(by.Bundle, &exclude, r.Firmware, s.options.Managers)...)
		locks = append(locks, t.locks...)
	}
	held, err := store.LockDevices(ctx, tx, locks)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if !t.hold(held) {
			return nil, refuse(jobs.CodeBusy, "the devices of rack %s changed at this instant: submit again", t.rack.Name)
		}
	}
	return all, nil
}

func ofRack(all []fleet.Device, rack int64) []fleet.Device {
	return slices.DeleteFunc(slices.Clone(all), func(d fleet.Device) bool { return d.RackID != rack })
}

// hold takes the components as they are under their locks; false where one is not
// what it was.
func (t *target) hold(held []fleet.Device) bool {
	byID := map[int64]*fleet.Device{}
	for i := range held {
		byID[held[i].ID] = &held[i]
	}
	for _, id := range t.locks {
		if d := byID[id]; d == nil || d.RackID != t.rack.ID || !d.RetiredAt.IsZero() {
			return false
		}
	}
	for i := range t.components {
		t.components[i] = *byID[t.components[i].ID]
	}
	return true
}

// strangers refuses what is named and in none of the racks.
func strangers(found []fleet.Device, refs []jobs.Ref, path string, report *jobs.Report, p *pick) {
	for i, ref := range refs {
		if ref.ID == 0 && p.types[componentType(ref.Name)] {
			continue
		}
		if !slices.ContainsFunc(found, func(d fleet.Device) bool {
			return ref.ID == d.ID || ref.ID == 0 && fleet.NameKey(ref.Name) == fleet.NameKey(d.Name)
		}) {
			report.Refusals = append(report.Refusals, jobs.Refusal{Code: jobs.CodeDeviceNotFound, Path: fmt.Sprintf("%s[%d]", path, i), Actual: ref.String(),
				Message: fmt.Sprintf("%s is neither a device of these racks nor a component type", ref)})
		}
	}
}

// judge asks about every device that the tasks lock. It adds to the report, and
// gives the racks that have to wait where they may.
func (s *Service) judge(ctx context.Context, tx pgx.Tx, by *devices.Admission, report *jobs.Report, targets []*target, override, mayWait bool) (map[int64]jobs.Refusal, error) {
	o := jobs.Other{Name: fleet.OperationWork(report.Workflow), Parameters: map[string]any{"override": override}, MayWait: mayWait}
	reach := map[int64]string{}
	for _, t := range targets {
		all, err := store.DevicesByID(ctx, tx, t.locks) // held already
		if err != nil {
			return nil, err
		}
		o.Parts = append(o.Parts, jobs.Part{Devices: all, Policies: t.policies, Disruptive: t.disruptive})
		needs := t.resolved.Rule.Needs(t.counts())
		for i := range t.components {
			if why := unreachable(&t.components[i], t.types[t.components[i].ID], needs); why != "" {
				reach[t.components[i].ID] = why
			}
		}
	}
	judged, waiting, err := s.jobs.Judge(ctx, tx, by, o)
	if err != nil {
		return nil, err
	}
	report.Refusals, report.Devices, report.Parameters = append(report.Refusals, judged.Refusals...), judged.Devices, judged.Parameters
	for i := range report.Devices {
		v := &report.Devices[i]
		if why := reach[v.ID]; why != "" {
			v.Refusals = append(v.Refusals, jobs.Refusal{Code: CodeCapabilityMissing, Path: "device.bmc_address", Actual: "none", Expected: "an address", Message: v.Name + " cannot be reached: " + why})
		}
	}
	return waiting, nil
}

// store writes an admitted task, which waits or is handed on.
func (s *Service) store(ctx context.Context, tx pgx.Tx, by *devices.Admission, t *target, r *Request, waits bool) (fleet.Task, error) {
	firmware, _ := json.Marshal(append([]Firmware{}, r.Firmware...)) // plain values: cannot fail
	task := fleet.Task{
		SiteID: by.Site.ID, RackID: t.rack.ID, OperationType: r.OperationType, Operation: r.Operation, Rule: t.resolved.Rule.JSON(), RuleSource: t.resolved.Source,
		RuleID: t.resolved.ID, RuleRevision: t.resolved.Revision, Identity: t.identity(r.Firmware, r.overrides()), Disruptive: t.disruptive, Status: fleet.TaskPending, Conflict: r.Conflict,
		Reason: r.Reason, Firmware: firmware, Excluded: t.excluded, Worst: time.Duration(t.resolved.Rule.Plan(t.counts()).Worst), BundleVersion: by.Bundle.Version(), RequestedBy: r.By.Name,
	}
	if waits {
		task.Status = fleet.TaskQueued
	}
	if r.Override != nil {
		task.OverrideReason = *r.Override
	}
	if err := store.InsertTask(ctx, tx, &task, r.QueueFor); err != nil {
		return task, err
	}
	rows := make([]fleet.TaskComponent, len(t.components))
	for i := range t.components {
		rows[i] = fleet.TaskComponent{DeviceID: t.components[i].ID, Type: t.types[t.components[i].ID]}
	}
	if err := store.InsertTaskComponents(ctx, tx, task.ID, rows); err != nil {
		return task, err
	}
	if !waits {
		if err := s.start(ctx, tx, &task, t.locks); err != nil {
			return task, err
		}
	}
	detail := map[string]any{
		"operation": r.Operation, "site": by.Site.Spec.Name, "rack": t.rack.Name, "components": len(rows), "locks": len(t.locks), "excluded": t.excluded, "rule": task.RuleID,
		"rule_source": task.RuleSource, "reason": r.Reason, "queued": waits, "bundle": task.BundleVersion,
	}
	if r.Override != nil {
		detail["override"] = *r.Override
	}
	if err := store.Audit(ctx, tx, store.AuditEntry{Principal: r.By.Name, Remote: r.By.Remote, Action: "operation.submit", Target: task.Holder(), Detail: detail}); err != nil {
		return task, err
	}
	return task, store.Notify(ctx, tx, store.TasksChannel, task.ID)
}

// start locks what an admitted task locks, and puts it up for Temporal.
func (s *Service) start(ctx context.Context, tx pgx.Tx, t *fleet.Task, locks []int64) error {
	work := fleet.OperationWork(t.Operation)
	if err := store.PutLocks(ctx, tx, fleet.DeviceLock{Holder: t.Holder(), Mode: string(engine.Exclusive), Work: work, Disruptive: t.Disruptive}, locks); err != nil {
		return err
	}
	e := fleet.Execution{WorkflowID: t.Holder(), Kind: fleet.ExecutionTask, Holder: t.Holder(), TaskID: t.ID, Workflow: work, SiteID: t.SiteID}
	if err := store.InsertExecutions(ctx, tx, []fleet.Execution{e}, s.options.DispatchWithin); err != nil {
		return err
	}
	return store.Notify(ctx, tx, store.ExecutionsChannel, t.ID)
}
