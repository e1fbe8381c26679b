package devices

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// NotRead is the status of a snapshot's type that its writer could not read: it
// satisfies the completeness of the snapshot, and the row keeps its last value.
const NotRead fleet.Tri = "NotRead"

const (
	maxMessage     = 1024 // runes
	reasonNotRead  = "NotRead"
	messageMissing = "the device is not known: look it up again"
	messageRetired = "the device was retired: its inventory does not list it any more"
)

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// ConditionPost is one condition that somebody asserts of a device.
type ConditionPost struct {
	DeviceID   int64
	Type       string
	Status     fleet.Tri
	Reason     string    // CamelCase, at most 64 characters
	Message    string    // at most 1024 characters
	Writer     string    // that the caller is allowed to be
	ObservedAt time.Time // zero: now
	By         Caller
}

// Caller is who asks for a write, as the audit log names it.
type Caller struct {
	Name   string
	Remote string // address, "" where there is none
	Job    int64  // on whose behalf; 0: none
}

// JobCaller is a job that acts by itself.
func JobCaller(job int64) Caller { return Caller{Name: fleet.JobHolder(job), Job: job} }

// cause names the caller as what made a change.
func (c Caller) cause(note string) fleet.Cause {
	if c.Job != 0 {
		return fleet.Cause{Type: "job", Actor: c.Name, Job: c.Job, Note: note}
	}
	return fleet.Cause{Type: "operator", Actor: c.Name, Note: note}
}

// audit appends to the audit log what a caller does, in the act's transaction.
func (c Caller) audit(ctx context.Context, tx pgx.Tx, action, target string, detail map[string]any) error {
	if c.Job != 0 {
		detail["job"] = c.Job
	}
	return store.Audit(ctx, tx, store.AuditEntry{Principal: c.Name, Remote: c.Remote, Action: action, Target: target, Detail: detail})
}

// PostCondition stores one asserted condition and gives the row that then
// stands. stored is false when the row is newer: the post is ignored, which is
// no error. Status and health are derived again only if status, reason or
// message changed.
//
// Who posts must be a writer of the type. A type that muster itself emits from
// a source of the device's site is refused (CodeEmittedHere): its row is a
// function of the facts, and the next reading would take the post back. Other
// refusals are RefusedError too; nothing was changed then.
func (s *Service) PostCondition(ctx context.Context, p ConditionPost) (row fleet.Condition, stored bool, err error) {
	siteID, err := s.siteOf(ctx, p.DeviceID)
	if err != nil {
		return row, false, err
	}
	cause := fleet.Cause{Type: "condition", Writer: p.Writer, Actor: p.By.Name}
	var rows Rows
	var events map[string]int
	err = s.judging(ctx, siteID, cause, func(tx pgx.Tx, r *round) error {
		t, err := r.admissible(&p)
		if err != nil {
			return err
		}
		all, err := lock(ctx, tx, []int64{p.DeviceID})
		if err != nil {
			return err
		}
		d, err := r.open(all, p.DeviceID, t)
		if err != nil {
			return err
		}
		var semantic bool
		row, stored, semantic = r.assert(d, t, &p)
		switch {
		case !stored:
			return nil
		case semantic:
			rows, err = r.settle(ctx, tx, all)
		default:
			rows, err = r.write(ctx, tx, all)
		}
		if err != nil {
			return err
		}
		row, events = d.conditions[p.Type], r.events
		return p.By.audit(ctx, tx, "condition.post", fmt.Sprintf("device %d condition %s", p.DeviceID, p.Type),
			map[string]any{"status": p.Status, "reason": p.Reason, "writer": p.Writer})
	})
	if err != nil {
		return fleet.Condition{}, false, refusedOr(err, fmt.Sprintf("post %s of device %d", p.Type, p.DeviceID))
	}
	s.metrics.wrote(rows, events)
	return row, stored, nil
}

// siteOf finds the site of a device.
func (s *Service) siteOf(ctx context.Context, id int64) (int64, error) {
	devices, err := store.DevicesByID(ctx, s.db, []int64{id})
	if err != nil {
		return 0, err
	}
	if len(devices) == 0 {
		return 0, &RefusedError{CodeDeviceNotFound, messageMissing}
	}
	return devices[0].SiteID, nil
}

// refusedOr leaves a refusal as it is and says of any other error what failed.
func refusedOr(err error, doing string) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// admissible checks a post against the catalogue, before any lock.
func (r *round) admissible(p *ConditionPost) (*engine.ConditionType, error) {
	t, ok := r.bundle.Type(p.Type)
	if !ok {
		return nil, &RefusedError{CodeTypeUnknown, fmt.Sprintf("the active policy has no condition type %q", p.Type)}
	}
	if err := r.writes(t, p.Writer); err != nil {
		return nil, err
	}
	if err := wellFormed(p.Status, p.Reason, p.Message); err != nil {
		return nil, err
	}
	return t, r.timely(&p.ObservedAt)
}

// writes checks that a writer may assert a type at this site.
func (r *round) writes(t *engine.ConditionType, writer string) error {
	i := r.bundle.WriterIndex(writer)
	if i < 0 {
		return &RefusedError{CodeWriterUnknown, fmt.Sprintf("the active policy has no writer %q", writer)}
	}
	if r.writers[i].Types>>t.Bit&1 == 0 {
		return &RefusedError{CodeWriterMismatch, fmt.Sprintf("%s belongs to %v, not to %s", t.Name, t.Writers, writer)}
	}
	if !t.Durable && r.fresh.Emitted()>>t.Bit&1 == 1 {
		return &RefusedError{CodeEmittedHere, fmt.Sprintf("site %s has a source of %s (%v): muster reads it itself", r.site.Spec.Name, t.Name, t.Sources)}
	}
	return nil
}

func wellFormed(status fleet.Tri, reason, message string) error {
	switch {
	case status != fleet.True && status != fleet.False && status != fleet.Unknown:
		return &RefusedError{CodeInvalid, fmt.Sprintf("status %q is none of True, False, Unknown", status)}
	case !camelCase.MatchString(reason):
		return &RefusedError{CodeInvalid, fmt.Sprintf("reason %q is not CamelCase of at most 64 characters", reason)}
	case utf8.RuneCountInString(message) > maxMessage:
		return &RefusedError{CodeInvalid, fmt.Sprintf("the message is longer than %d characters", maxMessage)}
	}
	return nil
}

// timely dates an assertion, and refuses one from the future.
func (r *round) timely(at *time.Time) error {
	if at.IsZero() {
		*at = r.now
	}
	*at = micros(*at)
	if at.After(r.now.Add(r.limits.FutureTolerance)) {
		return &RefusedError{CodeInFuture, fmt.Sprintf("observed_at %s is more than %s ahead of the server's %s: check the poster's clock",
			at.Format(time.RFC3339), r.limits.FutureTolerance, r.now.Format(time.RFC3339))}
	}
	return nil
}

// open finds a locked device that a type may be asserted of.
func (r *round) open(all *subjects, id int64, t *engine.ConditionType) (*subject, error) {
	d := all.byID[id]
	switch {
	case d == nil || d.device.SiteID != r.site.ID:
		return nil, &RefusedError{CodeDeviceNotFound, messageMissing}
	case !d.device.RetiredAt.IsZero():
		return nil, &RefusedError{CodeDeviceRetired, messageRetired}
	case !t.Durable && d.device.InventoryOnly:
		return nil, &RefusedError{CodeOutOfScope, "the device is inventory-only: nobody observes it"}
	}
	return d, nil
}

// assert brings an assertion into the subject. semantic says that something
// must be derived from it.
func (r *round) assert(d *subject, t *engine.ConditionType, p *ConditionPost) (row fleet.Condition, stored, semantic bool) {
	old, had := d.conditions[p.Type]
	if had && old.ObservedAt.After(p.ObservedAt) {
		return old, false, false
	}
	semantic = d.put(fleet.Condition{Type: p.Type, Status: p.Status, Reason: p.Reason, Message: p.Message, Writer: p.Writer, ObservedAt: p.ObservedAt}, r.now)
	if !t.Durable {
		bit := uint64(1) << t.Bit
		semantic = semantic || d.device.Posted&bit == 0 || d.device.Unread&bit != 0
		d.device.Posted |= bit
		d.unread(p.Writer, t.Name, nil)
	}
	return d.conditions[p.Type], true, semantic
}

// unread notes why a poster could not read a type; nil when it could.
func (s *subject) unread(writer, name string, why *fleet.Unread) {
	row, had := s.writers[writer]
	old, was := row.Unread[name]
	if why == nil && !was || why != nil && was && old.Reason == why.Reason {
		return
	}
	next := fleet.DeviceWriter{DeviceID: s.device.ID, Writer: writer, InScope: had && row.InScope, Unread: map[string]fleet.Unread{}}
	for t, u := range row.Unread {
		next.Unread[t] = u
	}
	delete(next.Unread, name)
	if why != nil {
		next.Unread[name] = *why
		if was {
			next.Unread[name] = fleet.Unread{Reason: why.Reason, Since: old.Since}
		}
	}
	s.writers[writer] = next
	s.newWriters[writer] = true
}
