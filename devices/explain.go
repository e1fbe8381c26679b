package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Explanation tells why a device is what it is, by the active bundle and at the
// present instant.
type Explanation struct {
	Device        fleet.Device
	Site          fleet.Site
	BundleVersion string
	At            time.Time
	Facts         facts.Facts // completed
	Standing      Standing

	Derived    bool // some writer that feeds the status has the device in its scope; else Status is not asked
	Status     engine.StatusTrace
	Frozen     bool
	Freeze     engine.Trace
	Health     engine.Trace
	Ready      engine.Trace // customer_ready
	Class      *engine.Trace
	Inventory  *engine.Trace
	Conditions []ExplainedCondition // by name, of every type of the bundle
	Scopes     []ExplainedScope     // by writer
	Sources    []ExplainedSource    // by name
}

// ExplainedCondition is one type of the catalogue as it stands for the device.
type ExplainedCondition struct {
	Type     string
	Row      *fleet.Condition // nil: no row
	Absent   fleet.Tri        // what it counts as without a row
	InScope  bool
	Decisive bool
	Emitted  bool   // from facts of this site
	Overlay  string // why the row's value is not fresh; "" while it is
	Observed time.Time
	Emission *engine.Trace // what the stored facts give; nil for a type without an emission
}

// ExplainedScope says whether a writer speaks of the device.
type ExplainedScope struct {
	Writer string
	In     bool
	Unread map[string]fleet.Unread
	Trace  *engine.Trace // nil for a writer that posts
}

// ExplainedSource says what is known of the device by one source.
type ExplainedSource struct {
	Source  string
	Ref     string
	Gone    bool
	SeenAt  time.Time
	Trouble fleet.Unread
	Age     fleet.SourceAge // of the site's source; zero where the site has none
}

// Explain tells why a device is what it is. store.ErrNotFound if there is none.
func (s *Service) Explain(ctx context.Context, id int64) (e Explanation, err error) {
	bundle := s.policies.Current()
	if bundle == nil {
		return e, ErrPolicyNotLoaded
	}
	err = s.db.Tx(ctx, func(tx pgx.Tx) (err error) {
		// One instant: a row and its conditions from two would explain nothing.
		if _, err := tx.Exec(ctx, "set transaction isolation level repeatable read read only"); err != nil {
			return fmt.Errorf("begin to read: %w", err)
		}
		e, err = s.explain(ctx, tx, bundle, id)
		return err
	})
	if err != nil {
		return e, fmt.Errorf("explain device %d: %w", id, err)
	}
	return e, nil
}

func (s *Service) explain(ctx context.Context, q store.Querier, bundle *engine.Bundle, id int64) (Explanation, error) {
	devices, err := store.DevicesByID(ctx, q, []int64{id})
	if err != nil {
		return Explanation{}, err
	}
	if len(devices) == 0 {
		return Explanation{}, store.ErrNotFound
	}
	r, err := s.round(ctx, q, bundle, devices[0].SiteID, fleet.Cause{})
	if err != nil {
		return Explanation{}, err
	}
	d := newSubject(devices[0])
	all := &subjects{byID: map[int64]*subject{}}
	all.add(d)
	if err := all.read(ctx, q); err != nil {
		return Explanation{}, err
	}
	if err := r.allRacks(ctx, q); err != nil {
		return Explanation{}, err
	}
	d.assemble()
	return r.explain(d), nil
}

func (r *round) explain(s *subject) Explanation {
	d := &s.device
	a := s.age(r.model)
	r.complete(s)
	derived := *d
	c := r.conclude(&derived, &s.facts, &s.codes, a, false)
	r.complete(s) // with the device as it is stored
	e := Explanation{
		Device: *d, Site: r.site, BundleVersion: r.bundle.Version(), At: r.now, Facts: s.facts, Standing: r.standing(d, a),
		Derived: c.derived, Frozen: c.frozen, Freeze: r.bundle.ExplainFreeze(&s.facts), Ready: r.bundle.ExplainCustomerReady(&s.facts),
	}
	if c.derived {
		e.Status = r.bundle.ExplainStatus(&c.standing)
	}
	f := s.facts
	f.BMC.ChassisHealth = d.ChassisHealth
	if at, _ := r.chassisAt(a); !r.now.Before(at.Add(r.limits.HealthHold)) {
		f.BMC.ChassisHealth = 0
	}
	e.Health = r.bundle.ExplainHealth(&f)
	if class, status, ok := r.bundle.ExplainInventory(r.site.Spec.InventorySource(), &s.facts); ok && s.stored[r.site.Spec.InventorySource()] != nil {
		e.Class, e.Inventory = &class, &status
	}
	r.explainConditions(s, a, &e)
	for i := range r.writers {
		scope := ExplainedScope{Writer: r.writers[i].Name, In: s.writers[r.writers[i].Name].InScope, Unread: s.writers[r.writers[i].Name].Unread}
		if trace, ok := r.bundle.ExplainScope(i, &s.facts, engine.Masks(d.Conditions)); ok {
			scope.Trace = &trace
		}
		e.Scopes = append(e.Scopes, scope)
	}
	for source, stored := range s.stored {
		age, _ := r.fresh.Source(source)
		e.Sources = append(e.Sources, ExplainedSource{
			Source: source, Ref: stored.Ref, Gone: stored.RefGone, SeenAt: stored.SeenAt, Trouble: stored.Trouble, Age: age,
		})
	}
	slices.SortFunc(e.Sources, func(x, y ExplainedSource) int { return strings.Compare(x.Source, y.Source) })
	return e
}

func (r *round) explainConditions(s *subject, a *fleet.DeviceAge, e *Explanation) {
	catalogue := r.bundle.Catalogue()
	for i := range catalogue {
		t := &catalogue[i]
		bit := uint64(1) << t.Bit
		c := ExplainedCondition{
			Type: t.Name, Absent: fleet.False, InScope: s.device.InScope&bit != 0, Decisive: s.device.Decisive&bit != 0,
			Emitted: r.fresh.Emitted()&bit != 0, Overlay: e.Standing.Reasons[t.Name], Observed: e.Standing.ObservedAt[t.Name],
		}
		if t.AbsentUnknown {
			c.Absent = fleet.Unknown
		}
		if row, ok := s.conditions[t.Name]; ok {
			c.Row = &row
		}
		if trace, ok := r.bundle.ExplainCondition(t.Name, &s.facts); ok {
			c.Emission = &trace
		}
		e.Conditions = append(e.Conditions, c)
	}
}

// EventExplanation replays one change by the policy of its time.
type EventExplanation struct {
	Event fleet.Event
	// Status is the trace over the masks that were judged then; nil for an event
	// that no ladder of the status gave.
	Status *engine.StatusTrace
}

// ExplainEvent replays a row of history with the bundle that it records.
func (s *Service) ExplainEvent(ctx context.Context, id int64) (EventExplanation, error) {
	event, err := store.EventByID(ctx, s.db, id)
	if err != nil {
		return EventExplanation{}, err
	}
	e := EventExplanation{Event: event}
	if event.Judged == nil || event.BundleVersion == "" {
		return e, nil
	}
	bundle, err := s.policies.Bundle(ctx, event.BundleVersion)
	if err != nil {
		return e, fmt.Errorf("explain event %d: load the policy of its time: %w", id, err)
	}
	before, ok := facts.ParseOperationalStatus(event.StatusBefore)
	if !ok {
		before = facts.OperationalStatusUnknown // a birth
	}
	j := event.Judged
	trace := bundle.ExplainStatus(&engine.Standing{
		Masks: engine.Masks{True: j.True, Unknown: j.Unknown, Present: j.Present}, InScope: j.InScope, Stale: j.Stale, PastHold: j.PastHold, Status: before,
	})
	e.Status = &trace
	return e, nil
}
