package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// JoinLock is the advisory lock, one a site, under which devices are born and
// records join devices.
const JoinLock = 0x6a6f696e00000000

// Watermarks reads how far each source of a site has been read.
func Watermarks(ctx context.Context, q Querier, siteID int64) (map[string]fleet.Watermark, error) {
	rows, err := q.Query(ctx, "select site_id, source, at, failing_since, reason, alert from watermarks where site_id = $1", siteID)
	if err != nil {
		return nil, fmt.Errorf("read watermarks: %w", err)
	}
	marks := map[string]fleet.Watermark{}
	var w fleet.Watermark
	var at, failing *time.Time
	if _, err := pgx.ForEachRow(rows, []any{&w.SiteID, &w.Source, &at, &failing, &w.Reason, &w.Alert}, func() error {
		w.At, w.FailingSince = orZero(at), orZero(failing)
		marks[w.Source] = w
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read watermarks: %w", err)
	}
	return marks, nil
}

// HoldsSweep reports whether the lease of a sweep is still the caller's.
func HoldsSweep(ctx context.Context, q Querier, siteID int64, source, owner string, epoch int64) (bool, error) {
	return holdsSweep(ctx, q, siteID, source, owner, epoch, "")
}

func holdsSweep(ctx context.Context, q Querier, siteID int64, source, owner string, epoch int64, locking string) (bool, error) {
	var mine bool
	err := q.QueryRow(ctx, "select owner = $3 and epoch = $4 from sweeps where site_id = $1 and source = $2 "+locking, siteID, source, owner, epoch).Scan(&mine)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the lease of a sweep: %w", err)
	}
	return mine, nil
}

// KeepSweep is HoldsSweep, and until the end of tx nobody else can claim the
// sweep: what its owner writes is written before the next owner reads. The owner
// itself may renew and end it meanwhile.
func KeepSweep(ctx context.Context, tx pgx.Tx, siteID int64, source, owner string, epoch int64) (bool, error) {
	return holdsSweep(ctx, tx, siteID, source, owner, epoch, "for key share")
}

// LockSweep is HoldsSweep, and keeps the lease from changing hands until the
// end of tx.
func LockSweep(ctx context.Context, tx pgx.Tx, siteID int64, source, owner string, epoch int64) (bool, error) {
	return holdsSweep(ctx, tx, siteID, source, owner, epoch, "for no key update")
}

// AdvanceWatermark records a complete sweep. The watermark never moves back;
// at the zero instant it is withheld, and only the alert is written.
func AdvanceWatermark(ctx context.Context, tx pgx.Tx, siteID int64, source string, at time.Time, alert string) error {
	_, err := tx.Exec(ctx, `insert into watermarks as w (site_id, source, at, failing_since, reason, alert) values ($1, $2, $3, null, '', $4)
		on conflict (site_id, source) do update set at = greatest(w.at, excluded.at), failing_since = null, reason = '', alert = excluded.alert`,
		siteID, source, orNull(at), text(alert))
	if err != nil {
		return fmt.Errorf("move the watermark of %s: %w", source, err)
	}
	return nil
}

// FailWatermark records a failed sweep: since when the source fails stays what
// it was.
func FailWatermark(ctx context.Context, tx pgx.Tx, siteID int64, source, reason string, since time.Time) error {
	_, err := tx.Exec(ctx, `insert into watermarks as w (site_id, source, failing_since, reason) values ($1, $2, $3, $4)
		on conflict (site_id, source) do update set failing_since = coalesce(w.failing_since, excluded.failing_since), reason = excluded.reason`,
		siteID, source, since, text(reason))
	if err != nil {
		return fmt.Errorf("record that %s fails: %w", source, err)
	}
	return nil
}

// ProjectionDue reads when the projection of a site is next due; zero if it
// has none.
func ProjectionDue(ctx context.Context, q Querier, siteID int64) (time.Time, error) {
	var due *time.Time
	err := q.QueryRow(ctx, "select due_at from projections where site_id = $1", siteID).Scan(&due)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read when a projection is due: %w", err)
	}
	return orZero(due), nil
}

// DeferProjection sets when the projection of a site is next due, unless
// somebody asked for it since it was read as was.
func DeferProjection(ctx context.Context, q Querier, siteID int64, was, next time.Time) error {
	_, err := q.Exec(ctx, `insert into projections as p (site_id, due_at) values ($1, $2)
		on conflict (site_id) do update set due_at = excluded.due_at where p.due_at = $3`, siteID, next, orNull(was))
	if err != nil {
		return fmt.Errorf("set when a projection is due: %w", err)
	}
	return nil
}

// EnsureRacks gives the ids of a site's racks by their source's identity, the
// new ones too.
func EnsureRacks(ctx context.Context, tx pgx.Tx, siteID int64, names []string) (map[string]int64, error) {
	if _, err := tx.Exec(ctx, `insert into racks (site_id, source_ref, name) select $1, n, n from unnest($2::text[]) n order by n
		on conflict (site_id, source_ref) do nothing`, siteID, names); err != nil {
		return nil, fmt.Errorf("write racks: %w", err)
	}
	rows, err := tx.Query(ctx, "select source_ref, id from racks where site_id = $1 and source_ref = any($2)", siteID, names)
	if err != nil {
		return nil, fmt.Errorf("read racks: %w", err)
	}
	ids := map[string]int64{}
	var name string
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &id}, func() error { ids[name] = id; return nil }); err != nil {
		return nil, fmt.Errorf("read racks: %w", err)
	}
	return ids, nil
}

// RackNames reads the names of racks by id.
func RackNames(ctx context.Context, q Querier, ids []int64) (map[int64]string, error) {
	return rackNames(ctx, q, "id = any($1)", ids)
}

// SiteRacks reads the names of a site's racks by id.
func SiteRacks(ctx context.Context, q Querier, siteID int64) (map[int64]string, error) {
	return rackNames(ctx, q, "site_id = $1", siteID)
}

func rackNames(ctx context.Context, q Querier, where string, arg any) (map[int64]string, error) {
	rows, err := q.Query(ctx, "select id, name from racks where "+where, arg)
	if err != nil {
		return nil, fmt.Errorf("read racks: %w", err)
	}
	names := map[int64]string{}
	var id int64
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error { names[id] = name; return nil }); err != nil {
		return nil, fmt.Errorf("read racks: %w", err)
	}
	return names, nil
}
