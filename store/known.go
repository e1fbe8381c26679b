package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Looked is what one look at all refs of a source says of one device.
type Looked struct {
	Device   int64
	Ref      string
	Serial   string
	Hash     [16]byte
	Gone     bool // concluded gone
	Troubled bool // the newest reading gave nothing
}

// LookAtRefs reads what one source has said of every device of a site, one row
// each.
func LookAtRefs(ctx context.Context, q Querier, siteID int64, source string, each func(*Looked)) error {
	rows, err := q.Query(ctx, "select device_id, ref, serial, hash, ref_gone, unread_reason <> '' from facts where site_id = $1 and source = $2", siteID, source)
	if err != nil {
		return fmt.Errorf("look at the refs of %s: %w", source, err)
	}
	var l Looked
	var hash pgtype.DriverBytes
	if _, err := pgx.ForEachRow(rows, []any{&l.Device, &l.Ref, &l.Serial, &hash, &l.Gone, &l.Troubled}, func() error {
		copy(l.Hash[:], hash)
		each(&l)
		return nil
	}); err != nil {
		return fmt.Errorf("look at the refs of %s: %w", source, err)
	}
	return nil
}

// Standing is what a look at the devices of a site tells a sweep.
type Standing struct {
	Unretired int
	Retired   []int64
	Others    []int64 // judged by other rules than the version asked for, or a BMC at another address than its ref's
	InScope   []int64 // unretired ones of which one of the types is in scope
}

// LookAtDevices reads it in one pass over the devices of the site.
func LookAtDevices(ctx context.Context, q Querier, siteID int64, source, version string, types uint64) (s Standing, err error) {
	err = q.QueryRow(ctx, `select count(*) filter (where retired_at is null),
			coalesce(array_agg(id) filter (where retired_at is not null), '{}'),
			coalesce(array_agg(id) filter (where retired_at is null and observation_version <> $2), '{}'),
			coalesce(array_agg(id) filter (where retired_at is null and in_scope & $3 <> 0), '{}')
		from devices where site_id = $1`, siteID, version, int64(types)).Scan(&s.Unretired, &s.Retired, &s.Others, &s.InScope)
	if err != nil || source != "bmc" {
		return s, wrapped(err, "look at the devices of a site")
	}
	rows, err := q.Query(ctx, `select d.id from devices d join facts f on f.device_id = d.id and f.source = 'bmc' and f.ref <> d.bmc_address where d.site_id = $1`, siteID)
	if err != nil {
		return s, wrapped(err, "look at the addresses of BMCs")
	}
	moved, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	s.Others = append(s.Others, moved...)
	return s, wrapped(err, "look at the addresses of BMCs")
}

func wrapped(err error, doing string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Horizon is a point in the order of transactions: what is written by one that
// ends later is told apart from what was there.
type Horizon int64

// horizons is how many there are: transaction ids come again after so many.
const horizons = 1 << 32

// Now gives the horizon of what is committed by now.
func Now(ctx context.Context, q Querier) (h Horizon, err error) {
	if err := q.QueryRow(ctx, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint").Scan(&h); err != nil {
		return 0, fmt.Errorf("read the present transaction: %w", err)
	}
	return h % horizons, nil
}

// Rewritten is a live ref that was written since a horizon, or shortly before.
type Rewritten struct {
	Ref      string
	Hash     [16]byte
	SeenAt   time.Time
	Troubled bool
}

// RewrittenSince reads the live refs of one source of a site that were written
// since. Transactions that ran at the horizon count as later, so it may give a
// ref that was written just before, but leaves none out.
func RewrittenSince(ctx context.Context, q Querier, siteID int64, source string, h Horizon) ([]Rewritten, error) {
	rows, err := q.Query(ctx, `select ref, hash, seen_at, unread_reason <> '' from facts
		where site_id = $1 and source = $2 and not ref_gone and (xmin::text::bigint - $3 + $4) % $4 < $4 / 2`, siteID, source, int64(h), int64(horizons))
	if err != nil {
		return nil, fmt.Errorf("look what else was written of %s: %w", source, err)
	}
	written, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Rewritten, error) {
		var r Rewritten
		var hash []byte
		err := row.Scan(&r.Ref, &hash, &r.SeenAt, &r.Troubled)
		copy(r.Hash[:], hash)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("look what else was written of %s: %w", source, err)
	}
	return written, nil
}
