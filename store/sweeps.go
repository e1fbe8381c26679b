package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// SweepLease is the right to sweep one source of one site until it expires or
// is renewed. Whoever claims it next raises the epoch: what the old owner
// still writes is refused by it.
type SweepLease struct {
	SiteID int64
	Source string
	Owner  string
	Epoch  int64
	Due    time.Time // as it was claimed
	Until  time.Time
}

// EnsureSweeps gives every source of every site its sweep and every site its
// projection, and ends the sweeps of sources that the sites have no more.
func EnsureSweeps(ctx context.Context, q Querier, sites []fleet.Site) error {
	var ids []int64
	var names []string
	for i := range sites {
		for _, source := range sites[i].Spec.SourceNames() {
			ids, names = append(ids, sites[i].ID), append(names, source)
		}
	}
	if _, err := q.Exec(ctx, `insert into sweeps (site_id, source) select u.site_id, u.source from unnest($1::bigint[], $2::text[]) as u(site_id, source)
		join sites s on s.id = u.site_id order by u.site_id, u.source on conflict (site_id, source) do nothing`, ids, names); err != nil {
		return fmt.Errorf("ensure sweeps: %w", err)
	}
	if _, err := q.Exec(ctx, `delete from sweeps w using sites s where s.id = w.site_id and s.id = any($3)
		and not exists (select 1 from unnest($1::bigint[], $2::text[]) as u(site_id, source) where u.site_id = w.site_id and u.source = w.source)`,
		ids, names, siteIDs(sites)); err != nil {
		return fmt.Errorf("end sweeps: %w", err)
	}
	if _, err := q.Exec(ctx, "insert into projections (site_id) select id from sites order by id on conflict (site_id) do nothing"); err != nil {
		return fmt.Errorf("ensure projections: %w", err)
	}
	return nil
}

func siteIDs(sites []fleet.Site) []int64 {
	ids := make([]int64, len(sites))
	for i := range sites {
		ids[i] = sites[i].ID
	}
	return ids
}

// ClaimSweeps takes up to most sweeps that are due and that nobody holds, the
// longest due first. Each owner takes its share of all sweeps, an owner being
// whoever held one within the last crew; what is overdue by patience is taken
// beyond the share.
func ClaimSweeps(ctx context.Context, q Querier, owner string, lease, crew, patience time.Duration, most int) ([]SweepLease, error) {
	rows, err := q.Query(ctx, `
		with due as (
			select site_id, source, due_at from sweeps
			where due_at <= clock_timestamp() and (leased_until is null or leased_until <= clock_timestamp())
			order by due_at, site_id, source limit $5 for update skip locked
		), share as (
			select ceil(count(*)::numeric / (1 + count(distinct owner) filter (where owner not in ('', $1) and leased_until > clock_timestamp() - $3::interval)))
				- count(*) filter (where owner = $1 and leased_until > clock_timestamp()) as free
			from sweeps
		), mine as (
			select d.site_id, d.source from (select *, row_number() over (order by due_at, site_id, source) as n from due) d, share
			where d.n <= share.free or d.due_at <= clock_timestamp() - $4::interval
		)
		update sweeps s set owner = $1, epoch = s.epoch + 1, leased_until = clock_timestamp() + $2::interval
		from mine where s.site_id = mine.site_id and s.source = mine.source
		returning s.site_id, s.source, s.owner, s.epoch, s.due_at, s.leased_until`,
		owner, lease, crew, patience, most)
	if err != nil {
		return nil, fmt.Errorf("claim sweeps: %w", err)
	}
	leases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (SweepLease, error) {
		var l SweepLease
		err := row.Scan(&l.SiteID, &l.Source, &l.Owner, &l.Epoch, &l.Due, &l.Until)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim sweeps: %w", err)
	}
	return leases, nil
}

// RenewSweep prolongs a lease. It reports false when it is another's by now.
func RenewSweep(ctx context.Context, q Querier, l SweepLease, lease time.Duration) (bool, error) {
	done, err := q.Exec(ctx, `update sweeps set leased_until = clock_timestamp() + $5::interval
		where site_id = $1 and source = $2 and owner = $3 and epoch = $4`, l.SiteID, l.Source, l.Owner, l.Epoch, lease)
	if err != nil {
		return false, fmt.Errorf("renew the lease of a sweep: %w", err)
	}
	return done.RowsAffected() == 1, nil
}

// ReleaseSweep ends a lease; the sweep is due again at next, or earlier where
// somebody has asked for it since it was claimed. Of a lease that is another's
// by now it changes nothing.
func ReleaseSweep(ctx context.Context, q Querier, l SweepLease, next time.Time) error {
	_, err := q.Exec(ctx, `update sweeps set leased_until = clock_timestamp(), due_at = case when due_at = $5 then $6 else least(due_at, $6) end
		where site_id = $1 and source = $2 and owner = $3 and epoch = $4`, l.SiteID, l.Source, l.Owner, l.Epoch, l.Due, next)
	if err != nil {
		return fmt.Errorf("release the lease of a sweep: %w", err)
	}
	return nil
}

// RequestSweep makes a sweep due at once.
func RequestSweep(ctx context.Context, q Querier, siteID int64, source string) error {
	if _, err := q.Exec(ctx, "update sweeps set due_at = clock_timestamp() where site_id = $1 and source = $2", siteID, source); err != nil {
		return fmt.Errorf("ask for a sweep: %w", err)
	}
	return nil
}

// RequestOtherSweeps makes the sweeps of the other sources of a site due at
// once: they may know of a device that was not there yet.
func RequestOtherSweeps(ctx context.Context, q Querier, siteID int64, source string) error {
	if _, err := q.Exec(ctx, "update sweeps set due_at = clock_timestamp() where site_id = $1 and source <> $2", siteID, source); err != nil {
		return fmt.Errorf("ask for the other sweeps of a site: %w", err)
	}
	return nil
}

// Backlog tells the age of the oldest sweep and projection that is due and
// that nobody works on; 0 for none.
func Backlog(ctx context.Context, q Querier) (sweep, projection time.Duration, err error) {
	err = q.QueryRow(ctx, `select
		coalesce((select clock_timestamp() - min(due_at) from sweeps where due_at <= clock_timestamp() and (leased_until is null or leased_until <= clock_timestamp())), '0'),
		coalesce((select clock_timestamp() - min(due_at) from projections where due_at <= clock_timestamp() and (leased_until is null or leased_until <= clock_timestamp())), '0')`).
		Scan(&sweep, &projection)
	if err != nil {
		return 0, 0, fmt.Errorf("read the backlog: %w", err)
	}
	return sweep, projection, nil
}

// ProjectionLease is the right to project one site.
type ProjectionLease struct {
	SiteID int64
	Owner  string
	Due    time.Time
	Until  time.Time
}

// RequestProjection makes the projection of a site due at once, also when one
// is under way: that one may have passed the change.
func RequestProjection(ctx context.Context, q Querier, siteID int64) error {
	_, err := q.Exec(ctx, `insert into projections (site_id, due_at) values ($1, clock_timestamp())
		on conflict (site_id) do update set due_at = excluded.due_at`, siteID)
	if err != nil {
		return fmt.Errorf("ask for a projection: %w", err)
	}
	return nil
}

// ClaimProjections takes up to most projections that are due and that nobody
// holds, the longest due first.
func ClaimProjections(ctx context.Context, q Querier, owner string, lease time.Duration, most int) ([]ProjectionLease, error) {
	rows, err := q.Query(ctx, `
		with due as (
			select site_id from projections where due_at <= clock_timestamp() and (leased_until is null or leased_until <= clock_timestamp())
			order by due_at, site_id limit $3 for update skip locked
		)
		update projections p set owner = $1, leased_until = clock_timestamp() + $2::interval from due where p.site_id = due.site_id
		returning p.site_id, p.owner, p.due_at, p.leased_until`, owner, lease, most)
	if err != nil {
		return nil, fmt.Errorf("claim projections: %w", err)
	}
	leases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ProjectionLease, error) {
		var l ProjectionLease
		err := row.Scan(&l.SiteID, &l.Owner, &l.Due, &l.Until)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim projections: %w", err)
	}
	return leases, nil
}

// RenewProjection prolongs a lease; false when it is another's by now.
func RenewProjection(ctx context.Context, q Querier, l *ProjectionLease, lease time.Duration) (bool, error) {
	rows, err := q.Query(ctx, `update projections set leased_until = clock_timestamp() + $4::interval
		where site_id = $1 and owner = $2 and leased_until = $3 returning leased_until`, l.SiteID, l.Owner, l.Until, lease)
	if err != nil {
		return false, fmt.Errorf("renew the lease of a projection: %w", err)
	}
	until, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return false, fmt.Errorf("renew the lease of a projection: %w", err)
	}
	if len(until) == 1 {
		l.Until = until[0]
	}
	return len(until) == 1, nil
}

// ReleaseProjection ends a lease. It is due again when devices.Project has said
// so; with a retry, of one that failed, not before that.
func ReleaseProjection(ctx context.Context, q Querier, l ProjectionLease, retry time.Time) error {
	_, err := q.Exec(ctx, `update projections set leased_until = null, due_at = case when due_at = $4 then coalesce($5, due_at) else due_at end
		where site_id = $1 and owner = $2 and leased_until = $3`, l.SiteID, l.Owner, l.Until, l.Due, orNull(retry))
	if err != nil {
		return fmt.Errorf("release the lease of a projection: %w", err)
	}
	return nil
}
