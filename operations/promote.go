package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// promoteMost bounds how many tasks of one rack one call decides.
const promoteMost = 100

// Promote lets waiting tasks go on: of each rack the one that came first. It is
// judged anew in every way but the rule, which was resolved at submission. While
// others hold a device it waits on, and so do those behind it; any other refusal
// ends it with that code and the next is tried. It tells of how many tasks it
// decided.
func (s *Service) Promote(ctx context.Context) (int, error) {
	queued, err := store.QueuedTasks(ctx, s.db, nil)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	done := map[int64]bool{}
	for i := range queued {
		t := &queued[i]
		if done[t.RackID] {
			continue
		}
		done[t.RackID] = true
		for range promoteMost {
			decided, err := s.promoteFirst(ctx, t.SiteID, t.RackID)
			if err != nil {
				errs = append(errs, fmt.Errorf("promote the first task of rack %d: %w", t.RackID, err))
			}
			if err != nil || !decided {
				break
			}
			n++
		}
	}
	return n, errors.Join(errs...)
}

// promoteFirst decides the first waiting task of a rack; false where none waits,
// or it has to wait on.
func (s *Service) promoteFirst(ctx context.Context, site, rack int64) (decided bool, err error) {
	err = s.devices.Admitting(ctx, site, func(tx pgx.Tx, by *devices.Admission) error {
		decided = false
		if err := store.LockRacks(ctx, tx, []int64{rack}); err != nil {
			return err
		}
		queued, err := store.QueuedTasks(ctx, tx, []int64{rack})
		if err != nil || len(queued) == 0 {
			return err
		}
		if first := &queued[0]; !s.db.Now().Before(first.QueueUntil) {
			decided = true
			now, err := store.LockTask(ctx, tx, first.ID)
			if err != nil || now.Status != fleet.TaskQueued {
				return err
			}
			return s.end(ctx, tx, &now, fleet.TaskExpired, "", waitedOut)
		}
		t, refused, locks, waits, err := s.again(ctx, tx, by, &queued[0])
		if err != nil || waits {
			return err
		}
		if now, err := store.LockTask(ctx, tx, t.ID); err != nil || now.Status != fleet.TaskQueued {
			return err // it was cancelled, or expired: the next look finds the next one
		}
		decided = true
		if refused != nil {
			return s.end(ctx, tx, t, fleet.TaskFailed, refused.Code, "it may not go on after it waited: "+refused.Message)
		}
		if err := store.PutTask(ctx, tx, t.ID, store.TaskChange{Status: fleet.TaskPending, BundleVersion: by.Bundle.Version()}); err != nil {
			return err
		}
		if err := s.start(ctx, tx, t, locks); err != nil {
			return err
		}
		return store.Notify(ctx, tx, store.TasksChannel, t.ID)
	})
	if errors.Is(err, store.ErrLockConflict) || store.LockTimedOut(err) { // it waits on
		return false, nil
	}
	return decided, err
}

// again judges a waiting task as a submission is judged, with what it touches held.
func (s *Service) again(ctx context.Context, tx pgx.Tx, by *devices.Admission, t *fleet.Task) (task *fleet.Task, refused *jobs.Refusal, locks []int64, waits bool, err error) {
	anew, firmware, refused, err := s.revive(ctx, tx, by.Bundle, t)
	if err != nil || refused != nil {
		return t, refused, nil, false, err
	}
	held, err := store.LockDevices(ctx, tx, anew.locks)
	if err != nil {
		return t, nil, nil, false, err
	}
	if !anew.hold(held) {
		return t, nil, nil, true, nil // they change at this instant
	}
	if waits, err = s.jobs.Held(ctx, tx, held); err != nil || waits { // what else forbids it may have passed when its turn comes
		return t, nil, nil, waits, err
	}
	report := jobs.Report{Workflow: t.Operation}
	report.Refusals = anew.check(by.Bundle, &pick{}, firmware, s.options.Managers)
	waiting, err := s.judge(ctx, tx, by, &report, []*target{anew}, t.OverrideReason != "", true)
	if err != nil {
		return t, nil, nil, false, err
	}
	if first := firstRefusal(&report); first != nil {
		return t, first, nil, false, nil
	}
	_, waits = waiting[t.RackID]
	return t, nil, anew.locks, waits, nil
}

// revive makes the target of a stored task: its rule as it was resolved, its
// components as they are now.
func (s *Service) revive(ctx context.Context, tx pgx.Tx, bundle *engine.Bundle, t *fleet.Task) (*target, []Firmware, *jobs.Refusal, error) {
	out := &target{rack: store.Rack{ID: t.RackID, SiteID: t.SiteID}, types: map[int64]string{}, excluded: t.Excluded}
	racks, err := store.FindRacks(ctx, tx, []int64{t.RackID}, nil, nil, "")
	if err != nil || len(racks) == 0 {
		return nil, nil, &jobs.Refusal{Code: CodeRackNotFound, Message: fmt.Sprintf("rack %d is not there any more", t.RackID)}, err
	}
	out.rack = racks[0]
	var firmware []Firmware
	err = json.Unmarshal(t.Firmware, &firmware)
	if err == nil {
		out.resolved.Rule, err = ruleOf(t)
	}
	if err != nil { // another version wrote it: this one never reads it
		return nil, nil, &jobs.Refusal{Code: CodeRuleInvalid, Message: err.Error()}, nil
	}
	rows, err := store.TaskComponents(ctx, tx, t.ID)
	if err != nil {
		return nil, nil, nil, err
	}
	of, err := store.DevicesOfRacks(ctx, tx, []int64{t.RackID})
	if err != nil {
		return nil, nil, nil, err
	}
	for i := range rows {
		at := slices.IndexFunc(of, func(d fleet.Device) bool { return d.ID == rows[i].DeviceID })
		if at < 0 {
			return nil, nil, &jobs.Refusal{Code: jobs.CodeDeviceNotFound, Message: rows[i].Name + " has left the rack"}, nil
		}
		out.components = append(out.components, of[at])
		out.types[rows[i].DeviceID] = rows[i].Type
	}
	out.settle(bundle, of)
	return out, firmware, nil, nil
}

// ruleOf reads the rule that a task embeds, which is in its normal form.
func ruleOf(t *fleet.Task) (rule.Rule, error) {
	var r rule.Rule
	if err := json.Unmarshal(t.Rule, &r); err != nil {
		return r, fmt.Errorf("read the rule of task %d: %w", t.ID, err)
	}
	return r, nil
}

// firstRefusal is one refusal of a report, those of the whole first.
func firstRefusal(r *jobs.Report) *jobs.Refusal {
	if len(r.Refusals) > 0 {
		return &r.Refusals[0]
	}
	for i := range r.Devices {
		if all := r.Devices[i].Refusals; len(all) > 0 {
			return &jobs.Refusal{Code: all[0].Code, Message: r.Devices[i].Name + ": " + all[0].Message}
		}
	}
	return nil
}
