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

// StatusByJob reads whether a job has written an operational status of a device
// by itself, and whether the device has it from that since.
func StatusByJob(ctx context.Context, q Querier, device, job int64, status string) (wrote, stands bool, err error) {
	err = q.QueryRow(ctx, `select
			exists (select from lifecycle_events where device_id = $1 and kind = 'operational' and value = $3 and cause @> w.cause),
			coalesce((select value = $3 and cause @> w.cause from lifecycle_events where device_id = $1 and kind = 'operational' order by id desc limit 1), false)
		from (select jsonb_build_object('type', 'job', 'job', $2::bigint) as cause) w`, device, job, status).Scan(&wrote, &stands)
	if err != nil {
		return false, false, fmt.Errorf("look what job %d wrote of device %d: %w", job, device, err)
	}
	return wrote, stands, nil
}
