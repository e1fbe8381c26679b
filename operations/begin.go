package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// Component is a device that a task is for.
type Component struct {
	Device int64
	Name   string
	Type   string // compute, nvswitch, powershelf
}

// Begun tells a task's first activity what it works on.
type Begun struct {
	Runs          bool // false: nothing is to be done
	Task          int64
	Site          string
	OperationType string
	Operation     string
	Rule          rule.Rule
	Components    []Component // by type and id
	Beside        []Component // those of the rack that nothing is done to, what was left out by name apart
	Firmware      []Firmware
	Override      bool          // machines may be taken from their customers
	Worst         time.Duration // past which it is over its budget
}

// Begin makes a pending task running, before any effect, and stores the plan of its
// report: a task without a start proves that nothing happened. After a cancel, or
// where a component may not be worked on any more, it ends instead. Calling it
// again gives the same.
func (s *Service) Begin(ctx context.Context, workflowID string) (Begun, error) {
	var b Begun
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		b = Begun{}
		t, e, err := taskOf(ctx, tx, workflowID)
		if err != nil || e.State == fleet.ExecutionClosed || t.Status.Ended() {
			return err
		}
		if t.Status == fleet.TaskPending || !t.CancelRequestedAt.IsZero() && t.StartedAt.IsZero() {
			ended, err := s.barred(ctx, tx, &t, workflowID)
			if err != nil || ended {
				return err
			}
		}
		if b, err = s.begun(ctx, tx, &t); err != nil || t.Status != fleet.TaskPending {
			return err
		}
		if err := store.PlanTaskEntries(ctx, tx, t.ID, planned(&b)); err != nil {
			return err
		}
		if err := store.PutTask(ctx, tx, t.ID, store.TaskChange{Status: fleet.TaskRunning}); err != nil {
			return err
		}
		return store.Notify(ctx, tx, store.TasksChannel, t.ID)
	})
	return b, refusedOr(err, "begin "+workflowID)
}

// barred ends a task that may not begin.
func (s *Service) barred(ctx context.Context, tx pgx.Tx, t *fleet.Task, workflowID string) (bool, error) {
	as, code, message := fleet.TaskCancelled, codes.Failure(""), "cancelled before its work began"
	if t.CancelRequestedAt.IsZero() {
		names, err := store.UnworkableComponents(ctx, tx, t.ID)
		if err != nil {
			return false, err
		}
		as, code = fleet.TaskFailed, codes.DeviceInventoryOnly
		message = strings.Join(names, ", ") + " became inventory-only, or left the inventory, before the work began"
		if len(names) == 0 {
			code = codes.RackChanged
			if message, err = s.changed(ctx, tx, t); err != nil || message == "" {
				return false, err
			}
		}
	}
	if err := store.CloseExecutions(ctx, tx, []string{workflowID}); err != nil {
		return false, err
	}
	return true, s.end(ctx, tx, t, as, string(code), message)
}

// changed says what of a task's rack is not as it was judged, "" if nothing: a
// component that left it, or a device that the task would hold and does not.
func (s *Service) changed(ctx context.Context, tx pgx.Tx, t *fleet.Task) (string, error) {
	bundle := s.current()
	if bundle == nil {
		return "", errNoPolicies
	}
	now, _, refused, err := s.revive(ctx, tx, bundle, t)
	if err != nil || refused != nil {
		message := ""
		if refused != nil {
			message = refused.Message
		}
		return message, err
	}
	locks, err := store.LocksOf(ctx, tx, now.locks)
	if err != nil {
		return "", err
	}
	var strange []int64
	for _, id := range now.locks {
		if !slices.ContainsFunc(locks, func(l fleet.DeviceLock) bool { return l.DeviceID == id && l.Holder == t.Holder() }) {
			strange = append(strange, id)
		}
	}
	if len(strange) == 0 {
		return "", nil
	}
	found, err := store.DevicesByID(ctx, tx, strange)
	if err != nil {
		return "", err
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].Name
	}
	return "the operation would take " + strings.Join(names, ", ") + ", which came to the rack after it was admitted: submit it again", nil
}

// errNoPolicies is that nothing says yet what is a component; Temporal tries again.
var errNoPolicies = errors.New("the policies are not loaded yet")

func (s *Service) begun(ctx context.Context, tx pgx.Tx, t *fleet.Task) (Begun, error) {
	b := Begun{Runs: true, Task: t.ID, OperationType: t.OperationType, Operation: t.Operation, Worst: t.Worst, Override: t.OverrideReason != ""}
	var err error
	if b.Rule, err = ruleOf(t); err != nil {
		return Begun{}, err
	}
	if err := json.Unmarshal(t.Firmware, &b.Firmware); err != nil {
		return Begun{}, fmt.Errorf("read the firmware of task %d: %w", t.ID, err)
	}
	rows, err := store.TaskComponents(ctx, tx, t.ID)
	if err != nil {
		return Begun{}, err
	}
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].DeviceID
		b.Components = append(b.Components, Component{Device: rows[i].DeviceID, Name: rows[i].Name, Type: rows[i].Type})
	}
	if b.Beside, err = s.beside(ctx, tx, t, ids); err != nil {
		return Begun{}, err
	}
	racks, err := store.FindRacks(ctx, tx, []int64{t.RackID}, nil, nil, "")
	if err != nil || len(racks) == 0 {
		return Begun{}, err
	}
	b.Site = racks[0].Site
	return b, nil
}

// beside lists the components of a task's rack that the task is not for.
func (s *Service) beside(ctx context.Context, tx pgx.Tx, t *fleet.Task, own []int64) ([]Component, error) {
	bundle := s.current()
	if bundle == nil {
		return nil, errNoPolicies
	}
	of, err := store.DevicesOfRacks(ctx, tx, []int64{t.RackID})
	if err != nil {
		return nil, err
	}
	var all []Component
	for i := range of {
		d := &of[i]
		kind := bundle.ComponentType(d.Class)
		if kind != "" && !d.InventoryOnly && !slices.Contains(own, d.ID) && !slices.Contains(t.Excluded, d.ID) {
			all = append(all, Component{Device: d.ID, Name: d.Name, Type: kind})
		}
	}
	return all, nil
}

// planned lists the rows of a report before anything has been done.
func planned(b *Begun) []fleet.TaskEntry {
	of, counts := map[string][]int64{}, rule.Counts{}
	for _, c := range b.Components {
		of[c.Type] = append(of[c.Type], c.Device)
		counts[c.Type]++
	}
	var all []fleet.TaskEntry
	plan := b.Rule.Plan(counts)
	for i := range plan.Stages {
		for j := range plan.Stages[i].Steps {
			all = append(all, plannedStep(&b.Rule.Steps[plan.Stages[i].Steps[j].Index], of)...)
		}
	}
	return all
}

func plannedStep(step *rule.Step, of map[string][]int64) []fleet.TaskEntry {
	var all []fleet.TaskEntry
	phase := func(name string, actions ...rule.Action) {
		for i, a := range actions {
			e := fleet.TaskEntry{Stage: step.Stage, ComponentType: step.ComponentType, Phase: name, Index: i, Action: a.Name}
			if len(of[step.ComponentType]) == 0 {
				e.Status, e.Message = fleet.EntrySkipped, "the rack has no component of this type that the task is for"
			}
			if e.Status == fleet.EntrySkipped || !a.PerComponent() {
				all = append(all, e)
				continue
			}
			for _, id := range of[step.ComponentType] {
				e.DeviceID = id
				all = append(all, e)
			}
		}
	}
	phase(PhasePre, step.Pre...)
	phase(PhaseMain, step.Main)
	phase(PhasePost, step.Post...)
	return all
}
