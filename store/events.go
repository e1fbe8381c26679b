package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// AppendEvents writes history, in the transaction of the change itself.
func AppendEvents(ctx context.Context, tx pgx.Tx, events []fleet.Event) error {
	n := len(events)
	if n == 0 {
		return nil
	}
	ids := make([]int64, n)
	kinds, values, versions, rungs, causes, before := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	judged, created := make([]*string, n), make([]time.Time, n)
	for i, e := range events {
		cause, err := json.Marshal(e.Cause)
		if err != nil {
			return fmt.Errorf("write history: %w", err)
		}
		if e.Judged != nil {
			masks, err := json.Marshal(e.Judged)
			if err != nil {
				return fmt.Errorf("write history: %w", err)
			}
			body := string(masks)
			judged[i] = &body
		}
		ids[i], kinds[i], values[i], versions[i], rungs[i], causes[i] = e.DeviceID, string(e.Kind), e.Value, e.BundleVersion, e.Rung, string(cause)
		before[i], created[i] = e.StatusBefore, e.CreatedAt
	}
	_, err := tx.Exec(ctx, `insert into lifecycle_events (device_id, kind, value, bundle_version, rung, cause, status_before, judged, created_at)
		select u.device_id, u.kind, u.value, u.version, u.rung, u.cause::jsonb, u.before, u.judged::jsonb, u.created
		from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
			with ordinality as u(device_id, kind, value, version, rung, cause, before, judged, created, place) order by u.place`,
		ids, kinds, values, versions, rungs, causes, before, judged, created)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
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
