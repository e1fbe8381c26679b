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
	Device int64
	Ref    string
	Serial string
	Hash   [16]byte
	What   Look
}

// Look is what holds of a device and its ref.
type Look int16

// What a look tells.
const (
	LookGone     Look = 1 << iota // the ref was concluded gone
	LookTroubled                  // the newest reading gave nothing
	LookRetired
	LookCurrent // judged by the version of the rules that was asked for
	LookInScope // of the types that were asked for
	LookElsewhere
)

// LookAtRefs reads what is stored of every device of a site by one source, one
// row each, for a sweep to compare with. LookElsewhere is of a BMC whose
// device has another address by now. Each device is found by its key: joined by
// the sites of both, a table that has just been filled would be compared pair by
// pair.
func LookAtRefs(ctx context.Context, q Querier, siteID int64, source, version string, types uint64, each func(*Looked)) error {
	rows, err := q.Query(ctx, `select f.device_id, f.ref, f.serial, f.hash, (f.ref_gone::int + 2 * (f.unread_reason <> '')::int + 4 * (d.retired_at is not null)::int
			+ 8 * (d.observation_version = $3)::int + 16 * (d.in_scope & $4 <> 0)::int + 32 * ($2 = 'bmc' and d.bmc_address <> f.ref)::int)::smallint
		from facts f join devices d on d.id = f.device_id where f.site_id = $1 and f.source = $2`, siteID, source, version, int64(types))
	if err != nil {
		return fmt.Errorf("look at the refs of %s: %w", source, err)
	}
	var l Looked
	var hash pgtype.DriverBytes
	if _, err := pgx.ForEachRow(rows, []any{&l.Device, &l.Ref, &l.Serial, &hash, &l.What}, func() error {
		copy(l.Hash[:], hash)
		each(&l)
		return nil
	}); err != nil {
		return fmt.Errorf("look at the refs of %s: %w", source, err)
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

// CountDevices counts the unretired devices of a site.
func CountDevices(ctx context.Context, q Querier, siteID int64) (n int, err error) {
	if err := q.QueryRow(ctx, "select count(*) from devices where site_id = $1 and retired_at is null", siteID).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the devices of a site: %w", err)
	}
	return n, nil
}

// CountInScope counts those of which one of the types is in scope.
func CountInScope(ctx context.Context, q Querier, siteID int64, types uint64) (n int, err error) {
	if err := q.QueryRow(ctx, "select count(*) from devices where site_id = $1 and retired_at is null and in_scope & $2 <> 0", siteID, int64(types)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the devices in a scope: %w", err)
	}
	return n, nil
}
