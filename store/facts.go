package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/fleet"
)

// Known is what an unlocked look says of the device that has a ref.
type Known struct {
	DeviceID           int64
	Ref                string
	RefGone            bool
	Serial             string
	Hash               [16]byte
	SeenAt             time.Time
	Troubled           bool // the newest reading gave nothing
	Retired            bool
	ObservationVersion string
}

// KnownRefs finds the devices of a site that have the refs of one source. A ref
// that was concluded gone finds its device too, unless another one has it: but
// not where refs are names or addresses, which pass on, and a retired device for
// the site's inventory alone.
func KnownRefs(ctx context.Context, q Querier, siteID int64, source string, inventory bool, refs []string) (map[string]Known, error) {
	known := make(map[string]Known, len(refs))
	if err := addKnown(ctx, q, known, siteID, source, refs, "not f.ref_gone"); err != nil {
		return nil, err
	}
	if len(known) == len(refs) || RefsAreNames(source) {
		return known, nil
	}
	var left []string
	for _, ref := range refs {
		if _, ok := known[ref]; !ok {
			left = append(left, ref)
		}
	}
	gone := "f.ref_gone and f.ref <> ''"
	if !inventory {
		gone += " and d.retired_at is null"
	}
	return known, addKnown(ctx, q, known, siteID, source, left, gone)
}

// RefsAreNames tells the sources whose refs pass on from one machine to another:
// those of Placement are the nodes' of Ironic.
func RefsAreNames(source string) bool {
	return source == "slurm" || source == "bmc" || source == "placement"
}

// addKnown looks once into a partial index for each ref, whatever the planner
// knows of the table.
func addKnown(ctx context.Context, q Querier, known map[string]Known, siteID int64, source string, refs []string, which string) error {
	rows, err := q.Query(ctx, `select f.* from unnest($3::text[]) u(ref) cross join lateral (
		select f.ref, f.device_id, f.ref_gone, f.serial, f.hash, f.seen_at, f.unread_reason <> '', d.retired_at is not null, d.observation_version
		from facts f join devices d on d.id = f.device_id
		where f.site_id = $1 and f.source = $2 and f.ref = u.ref and `+which+" offset 0) f", siteID, source, refs)
	if err != nil {
		return fmt.Errorf("look for the refs of %s: %w", source, err)
	}
	var k Known
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&k.Ref, &k.DeviceID, &k.RefGone, &k.Serial, &hash, &k.SeenAt, &k.Troubled, &k.Retired, &k.ObservationVersion}, func() error {
		copy(k.Hash[:], hash)
		if old, twice := known[k.Ref]; !twice || k.SeenAt.After(old.SeenAt) {
			known[k.Ref] = k
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the refs of %s: %w", source, err)
	}
	return nil
}

// FactsOf reads everything that the sources said of devices.
func FactsOf(ctx context.Context, q Querier, ids []int64) ([]fleet.Stored, error) {
	rows, err := q.Query(ctx, `select device_id, site_id, source, ref, ref_gone, serial, hash, body, seen_at, unread_reason, unread_since
		from facts where device_id = any($1) order by device_id, source`, ids)
	if err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	stored := make([]fleet.Stored, 0, 2*len(ids))
	var s fleet.Stored
	var hash pgtype.DriverBytes
	var body []byte
	var since *time.Time
	into := []any{&s.DeviceID, &s.SiteID, &s.Source, &s.Ref, &s.RefGone, &s.Serial, &hash, &body, &s.SeenAt, &s.Trouble.Reason, &since}
	if _, err := pgx.ForEachRow(rows, into, func() error {
		s.Hash = [len(s.Hash)]byte{}
		copy(s.Hash[:], hash)
		s.Body, s.SeenAt, s.Trouble.Since = body, s.SeenAt.UTC(), orZero(since)
		stored = append(stored, s)
		body = nil
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	return stored, nil
}

// PutFacts writes facts of locked devices.
func PutFacts(ctx context.Context, tx pgx.Tx, stored []*fleet.Stored) error {
	n := len(stored)
	if n == 0 {
		return nil
	}
	ids, sites := make([]int64, n), make([]int64, n)
	sources, refs, serials, reasons, bodies := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	gone, hashes, seen, since := make([]bool, n), make([][]byte, n), make([]time.Time, n), make([]*time.Time, n)
	for i, s := range stored {
		ids[i], sites[i], sources[i], refs[i], gone[i], serials[i] = s.DeviceID, s.SiteID, s.Source, text(s.Ref), s.RefGone, text(s.Serial)
		hashes[i], bodies[i], seen[i], reasons[i], since[i] = s.Hash[:], string(s.Body), s.SeenAt, text(s.Trouble.Reason), orNull(s.Trouble.Since)
	}
	// A ref may pass from one device to another in one batch: it is let go first.
	if _, err := tx.Exec(ctx, `update facts f set ref_gone = true
		from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[]) as u(device_id, site_id, source, ref, gone)
		where f.device_id = u.device_id and f.source = u.source and not f.ref_gone and (u.gone or f.ref <> u.ref)`,
		ids, sites, sources, refs, gone); err != nil {
		return fmt.Errorf("let go of refs: %w", err)
	}
	_, err := tx.Exec(ctx, `insert into facts (device_id, site_id, source, ref, ref_gone, serial, hash, body, seen_at, unread_reason, unread_since)
		select u.device_id, u.site_id, u.source, u.ref, u.gone, u.serial, u.hash, u.body::jsonb, u.seen_at, u.reason, u.since
		from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[], $6::text[], $7::bytea[], $8::text[], $9::timestamptz[], $10::text[], $11::timestamptz[])
			as u(device_id, site_id, source, ref, gone, serial, hash, body, seen_at, reason, since)
		on conflict (device_id, source) do update set site_id = excluded.site_id, ref = excluded.ref, ref_gone = excluded.ref_gone,
			serial = excluded.serial, hash = excluded.hash, body = excluded.body, seen_at = excluded.seen_at,
			unread_reason = excluded.unread_reason, unread_since = excluded.unread_since`,
		ids, sites, sources, refs, gone, serials, hashes, bodies, seen, reasons, since)
	if err != nil {
		return fmt.Errorf("write facts of %d devices: %w", n, err)
	}
	return nil
}

// CopyFacts is PutFacts for devices born in this transaction.
func CopyFacts(ctx context.Context, tx pgx.Tx, stored []*fleet.Stored) error {
	columns := []string{"device_id", "site_id", "source", "ref", "ref_gone", "serial", "hash", "body", "seen_at", "unread_reason", "unread_since"}
	return copyRows(ctx, tx, "facts", columns, len(stored), func(i int) ([]any, error) {
		s := stored[i]
		return []any{s.DeviceID, s.SiteID, s.Source, text(s.Ref), s.RefGone, text(s.Serial), s.Hash[:], string(s.Body), s.SeenAt,
			text(s.Trouble.Reason), orNull(s.Trouble.Since)}, nil
	})
}

// SeenOf reads when the facts of devices were seen, of the sources given.
func SeenOf(ctx context.Context, q Querier, ids []int64, sources []string) (map[int64]map[string]time.Time, error) {
	rows, err := q.Query(ctx, "select device_id, source, seen_at from facts where device_id = any($1) and source = any($2)", ids, sources)
	if err != nil {
		return nil, fmt.Errorf("read the age of facts: %w", err)
	}
	seen := map[int64]map[string]time.Time{}
	var id int64
	var source string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &source, &at}, func() error {
		if seen[id] == nil {
			seen[id] = map[string]time.Time{}
		}
		seen[id][source] = at.UTC()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the age of facts: %w", err)
	}
	return seen, nil
}
