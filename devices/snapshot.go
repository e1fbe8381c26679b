package devices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// DeviceSnapshot is everything that one writer says of one device at an instant.
type DeviceSnapshot struct {
	DeviceID   int64
	ObservedAt time.Time // zero: now
	Conditions []SnapshotCondition
}

// SnapshotCondition is one condition of a snapshot. With the status NotRead the
// reason says why it could not be read.
type SnapshotCondition struct {
	Type    string
	Status  fleet.Tri
	Reason  string
	Message string
}

// SnapshotResult says what became of one device's snapshot.
type SnapshotResult struct {
	DeviceID int64
	Code     Code     // "" when it was taken
	Message  string   // why it was refused, what to do
	Written  []string // types whose row is new
	Ignored  []string // types whose row is newer
	Repaired bool     // the device's row was not what follows from its conditions, and is now
	Status   facts.OperationalStatus
}

// PostSnapshot takes one writer's whole word on devices. A snapshot that does
// not carry every observed type of the writer is refused for its device, as is
// one of a site whose sources muster reads itself (PostCondition says why). The
// projection of each device is verified and repaired even if nothing changed.
// Results are in the order of the snapshots; the error is about all of them.
func (s *Service) PostSnapshot(ctx context.Context, writer string, by Caller, snapshots []DeviceSnapshot) ([]SnapshotResult, error) {
	if len(snapshots) > maxBatch {
		return nil, &RefusedError{CodeInvalid, fmt.Sprintf("a request may carry %d devices, not %d", maxBatch, len(snapshots))}
	}
	ids := make([]int64, len(snapshots))
	results := make([]SnapshotResult, len(snapshots))
	for i := range snapshots {
		ids[i] = snapshots[i].DeviceID
		results[i] = SnapshotResult{DeviceID: ids[i], Code: CodeDeviceNotFound, Message: messageMissing}
	}
	devices, err := store.DevicesByID(ctx, s.db, ids)
	if err != nil {
		return nil, err
	}
	sites := map[int64][]int{}
	for i, id := range ids {
		if at, ok := slices.BinarySearchFunc(devices, id, func(d fleet.Device, id int64) int { return cmp.Compare(d.ID, id) }); ok {
			sites[devices[at].SiteID] = append(sites[devices[at].SiteID], i)
		}
	}
	for site, indexes := range sites {
		if err := s.snapshotSite(ctx, site, writer, by, snapshots, indexes, results); err != nil {
			return nil, refusedOr(err, "post the snapshot of "+writer)
		}
	}
	return results, nil
}

func (s *Service) snapshotSite(ctx context.Context, site int64, writer string, by Caller, snapshots []DeviceSnapshot, indexes []int, results []SnapshotResult) error {
	cause := fleet.Cause{Type: "snapshot", Writer: writer, Actor: by.Name}
	var rows Rows
	var events map[string]int
	err := s.judging(ctx, site, cause, func(tx pgx.Tx, r *round) error {
		var ids []int64
		for _, i := range indexes {
			ids = append(ids, snapshots[i].DeviceID)
		}
		all, err := lock(ctx, tx, ids)
		if err != nil {
			return err
		}
		accepted := &subjects{byID: all.byID}
		for _, i := range indexes {
			results[i] = r.snapshot(all, writer, &snapshots[i])
			if d := all.byID[snapshots[i].DeviceID]; results[i].Code == "" && !slices.Contains(accepted.list, d) {
				accepted.list = append(accepted.list, d)
			}
		}
		if rows, err = r.settle(ctx, tx, accepted); err != nil {
			return err
		}
		for _, i := range indexes {
			if d := all.byID[snapshots[i].DeviceID]; d != nil && results[i].Code == "" {
				results[i].Status = d.device.Operational
				results[i].Repaired = len(results[i].Written) == 0 && repaired(d)
			}
		}
		events = r.events
		if len(accepted.list) == 0 {
			return nil
		}
		taken := make([]int64, len(accepted.list))
		for i, d := range accepted.list {
			taken[i] = d.device.ID
		}
		return by.audit(ctx, tx, "condition.apply", "writer "+writer, map[string]any{"site": r.site.Spec.Name, "devices": taken})
	})
	if err == nil {
		s.metrics.wrote(rows, events)
	}
	return err
}

// repaired tells whether a device's row was not what follows. When it is next
// due moves with the instant of every snapshot.
func repaired(s *subject) bool {
	before := s.before
	before.DueAt = s.device.DueAt
	return !same(&before, &s.device)
}

// snapshot brings one device's snapshot into its subject, all of it or nothing.
func (r *round) snapshot(all *subjects, writer string, snap *DeviceSnapshot) SnapshotResult {
	result := SnapshotResult{DeviceID: snap.DeviceID}
	at := snap.ObservedAt
	types, err := r.whole(writer, snap)
	if err == nil {
		err = r.timely(&at)
	}
	var d *subject
	for _, t := range types {
		if err == nil {
			d, err = r.open(all, snap.DeviceID, t)
		}
	}
	if err != nil {
		result.Code, result.Message = err.(*RefusedError).Code, err.(*RefusedError).Message
		return result
	}
	for i, c := range snap.Conditions {
		t := types[i]
		if c.Status == NotRead {
			r.notRead(d, t, writer, c.Reason, at)
			continue
		}
		_, stored, semantic := r.assert(d, t, &ConditionPost{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Writer: writer, ObservedAt: at,
		})
		switch {
		case !stored:
			result.Ignored = append(result.Ignored, c.Type)
		case semantic:
			result.Written = append(result.Written, c.Type)
		}
	}
	return result
}

// whole checks that a snapshot is one writer's, well formed, and complete. It
// gives the type of each of its conditions. The error is a *RefusedError.
func (r *round) whole(writer string, snap *DeviceSnapshot) ([]*engine.ConditionType, error) {
	types := make([]*engine.ConditionType, len(snap.Conditions))
	var carried uint64
	for i, c := range snap.Conditions {
		t, ok := r.bundle.Type(c.Type)
		if !ok {
			return nil, &RefusedError{CodeTypeUnknown, fmt.Sprintf("the active policy has no condition type %q", c.Type)}
		}
		if err := r.writes(t, writer); err != nil {
			return nil, err
		}
		status, reason := c.Status, c.Reason
		if c.Status == NotRead {
			status = fleet.Unknown
			if reason == "" {
				reason = reasonNotRead
			}
		}
		if err := wellFormed(status, reason, c.Message); err != nil {
			return nil, err
		}
		if carried>>t.Bit&1 == 1 {
			return nil, &RefusedError{CodeInvalid, c.Type + " is carried twice"}
		}
		carried |= 1 << t.Bit
		types[i] = t
	}
	i := r.bundle.WriterIndex(writer)
	if i < 0 {
		return nil, &RefusedError{CodeWriterUnknown, fmt.Sprintf("the active policy has no writer %q", writer)}
	}
	var missing []string
	for _, p := range r.policies {
		if r.writers[i].Types&^r.durable&^carried>>p.Bit&1 == 1 {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) > 0 || len(types) == 0 {
		return nil, &RefusedError{CodeSnapshotIncomplete, fmt.Sprintf("a snapshot of %s carries every observed type; without %v say NotRead", writer, missing)}
	}
	return types, nil
}

// notRead notes that the poster could not read a type. A durable one stays.
func (r *round) notRead(d *subject, t *engine.ConditionType, writer, reason string, at time.Time) {
	if t.Durable || d.conditions[t.Name].ObservedAt.After(at) {
		return
	}
	if reason == "" {
		reason = reasonNotRead
	}
	d.device.Posted |= 1 << t.Bit
	d.unread(writer, t.Name, &fleet.Unread{Reason: reason, Since: at})
}
