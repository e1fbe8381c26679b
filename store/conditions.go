package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// ConditionsOf reads every condition row of devices.
func ConditionsOf(ctx context.Context, q Querier, ids []int64) ([]fleet.Condition, error) {
	rows, err := q.Query(ctx, `select device_id, type, status, reason, message, writer, last_transition_at, observed_at
		from conditions where device_id = any($1) order by device_id, type`, ids)
	if err != nil {
		return nil, fmt.Errorf("read conditions: %w", err)
	}
	conditions, err := pgx.CollectRows(rows, scanCondition)
	if err != nil {
		return nil, fmt.Errorf("read conditions: %w", err)
	}
	return conditions, nil
}

func scanCondition(row pgx.CollectableRow) (fleet.Condition, error) {
	var c fleet.Condition
	var status string
	var observed *time.Time
	err := row.Scan(&c.DeviceID, &c.Type, &status, &c.Reason, &c.Message, &c.Writer, &c.LastTransitionAt, &observed)
	c.Status, c.LastTransitionAt, c.ObservedAt = triOf(status), c.LastTransitionAt.UTC(), orZero(observed)
	return c, err
}

// PutConditions writes condition rows of locked devices.
func PutConditions(ctx context.Context, tx pgx.Tx, conditions []fleet.Condition) error {
	n := len(conditions)
	if n == 0 {
		return nil
	}
	ids := make([]int64, n)
	types, statuses, reasons, messages, writers := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	transitions, observed := make([]time.Time, n), make([]*time.Time, n)
	for i, c := range conditions {
		ids[i], types[i], statuses[i], writers[i] = c.DeviceID, c.Type, string(c.Status), c.Writer
		reasons[i], messages[i] = text(c.Reason), text(c.Message)
		transitions[i], observed[i] = c.LastTransitionAt, orNull(c.ObservedAt)
	}
	_, err := tx.Exec(ctx, `insert into conditions (device_id, type, status, reason, message, writer, last_transition_at, observed_at)
		select u.device_id, u.type, u.status, u.reason, u.message, u.writer, u.transition, u.observed
		from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[])
			as u(device_id, type, status, reason, message, writer, transition, observed)
		on conflict (device_id, type) do update set status = excluded.status, reason = excluded.reason, message = excluded.message,
			writer = excluded.writer, last_transition_at = excluded.last_transition_at, observed_at = excluded.observed_at`,
		ids, types, statuses, reasons, messages, writers, transitions, observed)
	if err != nil {
		return fmt.Errorf("write %d conditions: %w", n, err)
	}
	return nil
}

// CopyConditions writes condition rows of devices born in this transaction,
// which have none yet: several times faster than PutConditions.
func CopyConditions(ctx context.Context, tx pgx.Tx, conditions []fleet.Condition) error {
	columns := []string{"device_id", "type", "status", "reason", "message", "writer", "last_transition_at", "observed_at"}
	return copyRows(ctx, tx, "conditions", columns, len(conditions), func(i int) ([]any, error) {
		c := &conditions[i]
		return []any{c.DeviceID, c.Type, string(c.Status), text(c.Reason), text(c.Message), c.Writer, c.LastTransitionAt, orNull(c.ObservedAt)}, nil
	})
}

// CopyWriters is PutWriters for devices born in this transaction.
func CopyWriters(ctx context.Context, tx pgx.Tx, writers []fleet.DeviceWriter) error {
	return copyRows(ctx, tx, "device_writers", []string{"device_id", "writer", "in_scope", "unread"}, len(writers), func(i int) ([]any, error) {
		w := &writers[i]
		if w.Unread == nil {
			return []any{w.DeviceID, w.Writer, w.InScope, "{}"}, nil
		}
		return []any{w.DeviceID, w.Writer, w.InScope, w.Unread}, nil
	})
}

func copyRows(ctx context.Context, tx pgx.Tx, table string, columns []string, n int, row func(i int) ([]any, error)) error {
	if n == 0 {
		return nil
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(n, row)); err != nil {
		return fmt.Errorf("write %d new rows of %s: %w", n, table, err)
	}
	return nil
}

// PostedOf reads when conditions that came over HTTP were observed.
func PostedOf(ctx context.Context, q Querier, ids []int64) (map[int64]map[string]time.Time, error) {
	rows, err := q.Query(ctx, "select device_id, type, observed_at from conditions where device_id = any($1) and observed_at is not null", ids)
	if err != nil {
		return nil, fmt.Errorf("read the age of posted conditions: %w", err)
	}
	posted := map[int64]map[string]time.Time{}
	var id int64
	var name string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &name, &at}, func() error {
		if posted[id] == nil {
			posted[id] = map[string]time.Time{}
		}
		posted[id][name] = at.UTC()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the age of posted conditions: %w", err)
	}
	return posted, nil
}

// WritersOf reads what each writer makes of devices.
func WritersOf(ctx context.Context, q Querier, ids []int64) ([]fleet.DeviceWriter, error) {
	rows, err := q.Query(ctx, "select device_id, writer, in_scope, unread from device_writers where device_id = any($1) order by device_id, writer", ids)
	if err != nil {
		return nil, fmt.Errorf("read the writers of devices: %w", err)
	}
	writers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.DeviceWriter, error) {
		var w fleet.DeviceWriter
		err := row.Scan(&w.DeviceID, &w.Writer, &w.InScope, &w.Unread)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the writers of devices: %w", err)
	}
	return writers, nil
}

// PutWriters writes what writers make of locked devices.
func PutWriters(ctx context.Context, tx pgx.Tx, writers []fleet.DeviceWriter) error {
	n := len(writers)
	if n == 0 {
		return nil
	}
	ids, names, scopes, unread := make([]int64, n), make([]string, n), make([]bool, n), make([]string, n)
	for i, w := range writers {
		body := []byte("{}")
		if len(w.Unread) > 0 {
			var err error
			if body, err = json.Marshal(w.Unread); err != nil {
				return fmt.Errorf("write the writers of devices: %w", err)
			}
		}
		ids[i], names[i], scopes[i], unread[i] = w.DeviceID, w.Writer, w.InScope, string(body)
	}
	_, err := tx.Exec(ctx, `insert into device_writers (device_id, writer, in_scope, unread)
		select u.device_id, u.writer, u.in_scope, u.unread::jsonb
		from unnest($1::bigint[], $2::text[], $3::boolean[], $4::text[]) as u(device_id, writer, in_scope, unread)
		on conflict (device_id, writer) do update set in_scope = excluded.in_scope, unread = excluded.unread`, ids, names, scopes, unread)
	if err != nil {
		return fmt.Errorf("write the writers of devices: %w", err)
	}
	return nil
}
