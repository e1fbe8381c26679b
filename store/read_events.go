package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// EventRow is a row of history with what its reader shows beside it.
type EventRow struct {
	fleet.Event
	EndedAt time.Time // when the next value of the same axis began; zero: it is the present one
	Device  string    // of RecentEvents
	Site    string    // of RecentEvents
}

const eventColumns = "e.id, e.device_id, e.kind, e.value, e.bundle_version, e.rung, e.cause, e.status_before, e.judged, e.created_at"

func scanEvent(row pgx.CollectableRow, more ...any) (EventRow, error) {
	var e EventRow
	var kind string
	into := []any{&e.ID, &e.DeviceID, &kind, &e.Value, &e.BundleVersion, &e.Rung, &e.Cause, &e.StatusBefore, &e.Judged, &e.CreatedAt}
	err := row.Scan(append(into, more...)...)
	e.Kind, e.CreatedAt = fleet.Kind(kind), e.CreatedAt.UTC()
	return e, err
}

// LifecycleEvents reads one page of a device's history, the newest first: rows
// with an id below before (0: all) of the kinds given (none: every kind). The
// end of a row is found over the whole history of its axis, so it is right
// across pages.
func LifecycleEvents(ctx context.Context, q Querier, deviceID int64, kinds []string, before int64, limit int) ([]EventRow, error) {
	rows, err := q.Query(ctx, `select `+eventColumns+`, e.ended_at from (
			select `+eventColumns+`, lead(e.created_at) over (partition by e.kind order by e.id) as ended_at
			from lifecycle_events e where e.device_id = $1 and ($2::text[] is null or e.kind = any($2))) e
		where $3::bigint = 0 or e.id < $3 order by e.id desc limit $4`, deviceID, kinds, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (EventRow, error) {
		var ended *time.Time
		e, err := scanEvent(row, &ended)
		e.EndedAt = orZero(ended)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return events, nil
}

// RecentEvents reads the newest changes of the fleet, births left out, of the
// sites that the reader may see (nil: every one).
func RecentEvents(ctx context.Context, q Querier, sites []string, limit int) ([]EventRow, error) {
	w := &where{}
	w.add("e.cause ->> 'type' <> ?", "birth")
	w.visible(sites)
	w.args = append(w.args, limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`select %s, d.name, s.name from lifecycle_events e
		join devices d on d.id = e.device_id join sites s on s.id = d.site_id
		where %s order by e.id desc limit $%d`, eventColumns, w.text(), len(w.args)), w.args...)
	if err != nil {
		return nil, fmt.Errorf("read recent changes: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (EventRow, error) {
		var device, site string
		e, err := scanEvent(row, &device, &site)
		e.Device, e.Site = device, site
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read recent changes: %w", err)
	}
	return events, nil
}
