package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// ConditionFilter chooses condition rows. Zero fields choose nothing away.
type ConditionFilter struct {
	SiteNames []string // that the reader may see; nil: every one
	Sites     []string
	Devices   []int64
	Types     []string
	Mask      uint64 // of Types, by the bits of stored masks; devices without a row of them are passed over
	Writers   []string
	Statuses  []string // as stored
	Decisive  *bool
	// After is the place of the last row that was read.
	AfterDevice int64
	AfterType   string
	Limit       int
}

// ConditionRow is a stored condition with the names of its device and site.
type ConditionRow struct {
	fleet.Condition
	Device   string
	SiteID   int64
	Site     string
	Decisive bool
}

// ListConditions reads one page of the conditions of unretired devices, by
// device and type.
func ListConditions(ctx context.Context, q Querier, f ConditionFilter) ([]ConditionRow, error) {
	w := &where{args: []any{f.AfterDevice, f.AfterType}}
	w.terms = []string{"d.id >= $1", "(c.device_id, c.type) > ($1, $2)", "d.retired_at is null"}
	w.visible(f.SiteNames)
	if len(f.Sites) > 0 {
		w.add("d.site_id in (select id from sites where name = any(?))", f.Sites)
	}
	anyOf(w, "d.id", f.Devices)
	if f.Types != nil {
		w.add("c.type = any(?)", f.Types)
		w.add("d.cond_present & ? <> 0", int64(f.Mask))
	}
	anyOf(w, "c.writer", f.Writers)
	anyOf(w, "c.status", f.Statuses)
	equal(w, "(coalesce(d.decisive >> b.bit, 0) & 1 = 1)", f.Decisive)
	w.args = append(w.args, f.Limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`select c.device_id, c.type, c.status, c.reason, c.message, c.writer, c.last_transition_at, c.observed_at,
			d.name, d.site_id, s.name, coalesce(d.decisive >> b.bit, 0) & 1 = 1
		from devices d join conditions c on c.device_id = d.id join sites s on s.id = d.site_id
		left join condition_types b on b.type = c.type
		where %s order by c.device_id, c.type limit $%d`, w.text(), len(w.args)), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list conditions: %w", err)
	}
	conditions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ConditionRow, error) {
		var c ConditionRow
		var status string
		var observed *time.Time
		err := row.Scan(&c.DeviceID, &c.Type, &status, &c.Reason, &c.Message, &c.Writer, &c.LastTransitionAt, &observed,
			&c.Device, &c.SiteID, &c.Site, &c.Decisive)
		c.Status, c.LastTransitionAt, c.ObservedAt = triOf(status), c.LastTransitionAt.UTC(), orZero(observed)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list conditions: %w", err)
	}
	return conditions, nil
}
