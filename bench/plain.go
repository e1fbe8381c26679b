package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// plain is the reference for the database: the same condition rows brought in
// by COPY and one upsert, which is the shortest way to write them without
// knowing what has changed. One connection, a table with the primary key alone.
type plain struct{ conn *pgx.Conn }

const plainBatch = 100_000

func newPlain(ctx context.Context, url string) (*plain, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect for the plain upsert: %w", err)
	}
	const columns = `(device_id bigint not null, type text not null, status text not null, reason text not null, message text not null,
		writer text not null, last_transition_at timestamptz not null, observed_at timestamptz`
	for _, statement := range []string{
		"create table conditions " + columns + ", primary key (device_id, type))",
		"create temp table incoming " + columns + ") on commit delete rows",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, fmt.Errorf("prepare the plain upsert: %w", err)
		}
	}
	return &plain{conn}, nil
}

// upsert writes rows and gives how long it took.
func (p *plain) upsert(ctx context.Context, rows [][]any) (time.Duration, error) {
	start := time.Now()
	for first := 0; first < len(rows); first += plainBatch {
		if err := p.batch(ctx, rows[first:min(first+plainBatch, len(rows))]); err != nil {
			return 0, fmt.Errorf("plain upsert: %w", err)
		}
	}
	return time.Since(start), nil
}

func (p *plain) batch(ctx context.Context, rows [][]any) error {
	return pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"incoming"}, conditionColumns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into conditions as c select * from incoming on conflict (device_id, type) do update
			set status = excluded.status, reason = excluded.reason, message = excluded.message, writer = excluded.writer,
				last_transition_at = excluded.last_transition_at, observed_at = excluded.observed_at
			where (c.status, c.reason, c.message, c.writer) is distinct from (excluded.status, excluded.reason, excluded.message, excluded.writer)`)
		return err
	})
}

var conditionColumns = []string{"device_id", "type", "status", "reason", "message", "writer", "last_transition_at", "observed_at"}

// rowsOf reads the condition rows of a site as muster wrote them.
func (w *world) rowsOf(ctx context.Context, site int64) ([][]any, error) {
	rows, err := w.db.Query(ctx, `select c.device_id, c.type, c.status, c.reason, c.message, c.writer, c.last_transition_at, c.observed_at
		from conditions c join devices d on d.id = c.device_id where d.site_id = $1 order by c.device_id, c.type`, site)
	if err != nil {
		return nil, fmt.Errorf("read the conditions of a site: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		return nil, fmt.Errorf("read the conditions of a site: %w", err)
	}
	return all, nil
}
