package devices

import (
	"math/bits"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// conclusion is what a derivation says beside the columns that it sets.
type conclusion struct {
	standing   engine.Standing
	verdict    engine.Verdict
	derived    bool // the ladder was asked
	frozen     bool // and its answer kept from the column
	healthRung string
	next       time.Time // of a value that was read on the device itself
}

// derive sets status, health and what follows from them, with the failure that
// the conditions tell of.
func (r *round) derive(s *subject) {
	d := &s.device
	a := s.age(r.model)
	hadScope := s.before.InScope&r.operational != 0
	c := r.conclude(d, &s.facts, &s.codes, a, hadScope)
	s.due = fleet.Earlier(s.due, r.fresh.Own(a, d.InScope))
	s.due = fleet.Earlier(s.due, c.next)
	r.failure(s, &c)
	r.note(s, &c)
}

// conclude derives the columns of a device row that rest on its masks, its axes
// and the age of what it is known by. facts must hold the families device and
// site; the other families have no influence.
func (r *round) conclude(d *fleet.Device, f *facts.Facts, codes *facts.Codes, a *fleet.DeviceAge, hadScope bool) conclusion {
	age := r.fresh.Device(a)
	c := conclusion{standing: engine.Standing{
		Masks: engine.Masks(d.Conditions), InScope: d.InScope,
		Stale: age.Stale & d.InScope, PastHold: age.PastHold & d.InScope, Status: d.Operational,
	}}
	f.Device = d.Facts(r.rackNames[d.RackID])
	if !d.InventoryOnly {
		r.health(d, f, codes, a, &c)
		if hadScope || d.InScope&r.operational != 0 {
			r.status(d, f, codes, &c)
		}
	}
	f.Device.OperationalStatus, f.Device.HealthStatus = d.Operational, d.Health
	f.Intern(codes)
	d.CustomerReady = d.RetiredAt.IsZero() && r.bundle.CustomerReady(f, codes)
	if d.EnteredServiceAt.IsZero() && r.bundle.EntersService(d.Operational) {
		d.EnteredServiceAt = r.now
	}
	return c
}

func (r *round) status(d *fleet.Device, f *facts.Facts, codes *facts.Codes, c *conclusion) {
	f.Intern(codes)
	_, c.frozen = r.bundle.Frozen(f, codes)
	c.frozen = c.frozen || r.ordered
	c.verdict, c.derived = r.bundle.Derive(&c.standing), true
	if c.verdict.Hold != engine.Held {
		d.Decisive = c.verdict.Decisive
	}
	if c.frozen {
		return
	}
	d.Operational = c.verdict.Status
	if c.verdict.Hold != engine.Held {
		d.Rung = r.bundle.RungName(c.verdict)
	}
}

// health judges by the chassis' reading while it is young enough.
func (r *round) health(d *fleet.Device, f *facts.Facts, codes *facts.Codes, a *fleet.DeviceAge, c *conclusion) {
	kept := f.BMC.ChassisHealth
	f.BMC.ChassisHealth = d.ChassisHealth
	at, own := r.chassisAt(a)
	switch limit := at.Add(r.limits.HealthHold); {
	case d.ChassisHealth.Null():
	case !r.now.Before(limit):
		f.BMC.ChassisHealth = 0
	case own:
		c.next = limit
	}
	f.Intern(codes)
	d.Health, c.healthRung = r.bundle.Health(f, codes)
	f.BMC.ChassisHealth = kept
}

// chassisAt gives the instant of the reading of the chassis' health, and
// whether the device itself says so: its BMC was not read since.
func (r *round) chassisAt(a *fleet.DeviceAge) (at time.Time, own bool) {
	if age, ok := r.fresh.Source("bmc"); ok {
		at = age.At
	}
	if seen := a.Seen["bmc"]; seen.After(at) {
		at = seen
	}
	for left := r.chassis; left != 0; left &= left - 1 {
		t := r.bundle.TypeOf(uint8(bits.TrailingZeros64(left)))
		if u, unread := a.Unread[t.Name]; unread {
			own = true
			if u.Since.Before(at) {
				at = u.Since
			}
		}
	}
	return at, own
}

// failure keeps what failed, and since when, in step with the status.
func (r *round) failure(s *subject, c *conclusion) {
	d := &s.device
	switch {
	case !c.derived || c.frozen:
	case d.Operational != facts.OperationalStatusFailed:
		d.FailureReason, d.FailedAt = "", zero
	default:
		if s.before.Operational != facts.OperationalStatusFailed || d.FailedAt.IsZero() {
			d.FailedAt = r.now
		}
		if why := r.whyFailed(s); why != "" {
			d.FailureReason = why
		}
	}
}

// whyFailed quotes the decisive condition that is True.
func (r *round) whyFailed(s *subject) string {
	for left := s.device.Decisive & s.device.Conditions.True; left != 0; left &= left - 1 {
		t := r.bundle.TypeOf(uint8(bits.TrailingZeros64(left)))
		if t == nil {
			continue
		}
		c := s.conditions[t.Name]
		if c.Message == "" {
			return c.Reason
		}
		return c.Reason + ": " + c.Message
	}
	return ""
}

// note prepares the rows of history: one for each axis that changed, all of
// them at birth.
func (r *round) note(s *subject, c *conclusion) {
	s.events = s.events[:0]
	d, old := &s.device, &s.before
	cause := r.cause
	if s.born {
		cause = fleet.Cause{Type: "birth", Source: r.cause.Source, Actor: r.cause.Actor}
	}
	if s.movedFrom != "" {
		cause = fleet.Cause{Type: "move", Source: r.cause.Source, Note: "from site " + s.movedFrom + " to " + r.site.Spec.Name}
	}
	add := func(kind fleet.Kind, value, before, rung string, judged *fleet.Judged) {
		tellsMove := s.movedFrom != "" && kind == fleet.KindInventory
		if value == before && !s.born && !tellsMove {
			return
		}
		if s.born {
			before = ""
		}
		s.events = append(s.events, fleet.Event{
			DeviceID: d.ID, Kind: kind, Value: value, BundleVersion: r.bundle.Version(), Rung: rung,
			Cause: cause, StatusBefore: before, Judged: judged, CreatedAt: r.now,
		})
	}
	add(fleet.KindInventory, d.Inventory.String(), old.Inventory.String(), s.inventoryRung, nil)
	var judged *fleet.Judged
	rung := ""
	if c.derived && !r.ordered { // no ladder gave it otherwise
		judged = judgedOf(&c.standing)
		rung = r.bundle.RungName(c.verdict)
	}
	add(fleet.KindOperational, d.Operational.String(), old.Operational.String(), rung, judged)
	add(fleet.KindHealth, d.Health.String(), old.Health.String(), c.healthRung, nil)
}

// history counts the rows that note prepared.
func (r *round) history(s *subject) {
	for _, e := range s.events {
		r.events[string(e.Kind)]++
	}
}

func judgedOf(s *engine.Standing) *fleet.Judged {
	return &fleet.Judged{True: s.True, Unknown: s.Unknown, Present: s.Present, InScope: s.InScope, Stale: s.Stale, PastHold: s.PastHold}
}
