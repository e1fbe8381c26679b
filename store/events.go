package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// AppendEvents writes history, in the transaction of the change itself.
func AppendEvents(ctx context.Context, tx pgx.Tx, events []fleet.Event) error {
	columns := []string{"device_id", "kind", "value", "bundle_version", "rung", "cause", "status_before", "judged", "created_at"}
	return copyRows(ctx, tx, "lifecycle_events", columns, len(events), func(i int) ([]any, error) {
		e := &events[i]
		return []any{e.DeviceID, string(e.Kind), e.Value, e.BundleVersion, text(e.Rung), e.Cause, e.StatusBefore, e.Judged, e.CreatedAt}, nil
	})
}

// EventByID reads one row of history; ErrNotFound if there is none.
func EventByID(ctx context.Context, q Querier, id int64) (fleet.Event, error) {
	var e fleet.Event
	var kind string
	err := q.QueryRow(ctx, `select id, device_id, kind, value, bundle_version, rung, cause, status_before, judged, created_at
		from lifecycle_events where id = $1`, id).
		Scan(&e.ID, &e.DeviceID, &kind, &e.Value, &e.BundleVersion, &e.Rung, &e.Cause, &e.StatusBefore, &e.Judged, &e.CreatedAt)
	e.Kind = fleet.Kind(kind)
	return e, found(err, fmt.Sprintf("read event %d", id))
}
