package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

const siteColumns = "id, revision, spec, applied_at, applied_by"

func scanSite(row pgx.CollectableRow) (fleet.Site, error) {
	var s fleet.Site
	err := row.Scan(&s.ID, &s.Revision, &s.Spec, &s.AppliedAt, &s.AppliedBy)
	return s, err
}

// Sites lists every site by name.
func Sites(ctx context.Context, q Querier) ([]fleet.Site, error) {
	rows, err := q.Query(ctx, "select "+siteColumns+" from sites order by name")
	if err != nil {
		return nil, fmt.Errorf("list sites: %w", err)
	}
	sites, err := pgx.CollectRows(rows, scanSite)
	if err != nil {
		return nil, fmt.Errorf("list sites: %w", err)
	}
	return sites, nil
}

// SiteByName reads one site; ErrNotFound if there is none.
func SiteByName(ctx context.Context, q Querier, name string) (fleet.Site, error) {
	return oneSite(ctx, q, "name = $1", name)
}

// SiteByID reads one site; ErrNotFound if there is none.
func SiteByID(ctx context.Context, q Querier, id int64) (fleet.Site, error) {
	return oneSite(ctx, q, "id = $1", id)
}

func oneSite(ctx context.Context, q Querier, where string, arg any) (fleet.Site, error) {
	rows, err := q.Query(ctx, "select "+siteColumns+" from sites where "+where, arg)
	if err != nil {
		return fleet.Site{}, fmt.Errorf("read site: %w", err)
	}
	s, err := pgx.CollectExactlyOneRow(rows, scanSite)
	return s, found(err, fmt.Sprintf("read site %v", arg))
}

// LockSite reads a site and keeps others from changing it until the end of tx.
func LockSite(ctx context.Context, tx pgx.Tx, name string) (fleet.Site, error) {
	return oneSite(ctx, tx, "name = $1 for no key update", name)
}

// PutSite stores a site: a new one where its ID is 0, else the next revision
// of it. It asks for its sweeps and its projection at once. The exclusive lock of
// judgements is held from its end to the end of the transaction, so that nobody
// judges by the old site after the new one: call it last.
func PutSite(ctx context.Context, tx pgx.Tx, s fleet.Site) (fleet.Site, error) {
	var err error
	if s.ID == 0 {
		err = tx.QueryRow(ctx, `insert into sites (name, revision, spec, inventory_only, applied_by) values ($1, 1, $2, $3, $4)
			returning id, revision, applied_at`, s.Spec.Name, s.Spec, s.Spec.InventoryOnly, s.AppliedBy).Scan(&s.ID, &s.Revision, &s.AppliedAt)
	} else {
		err = tx.QueryRow(ctx, `update sites set revision = revision + 1, spec = $2, applied_by = $3, applied_at = now() where id = $1
			returning revision, applied_at`, s.ID, s.Spec, s.AppliedBy).Scan(&s.Revision, &s.AppliedAt)
	}
	if err != nil {
		return s, fmt.Errorf("store site %s: %w", s.Spec.Name, err)
	}
	if _, err := tx.Exec(ctx, "insert into site_revisions (site_id, revision, spec, applied_by) values ($1, $2, $3, $4)",
		s.ID, s.Revision, s.Spec, s.AppliedBy); err != nil {
		return s, fmt.Errorf("store revision of site %s: %w", s.Spec.Name, err)
	}
	if _, err := tx.Exec(ctx, `insert into sweeps (site_id, source) select $1, unnest($2::text[])
		on conflict (site_id, source) do update set due_at = now()`, s.ID, s.Spec.SourceNames()); err != nil {
		return s, fmt.Errorf("ask for the sweeps of site %s: %w", s.Spec.Name, err)
	}
	if _, err := tx.Exec(ctx, "delete from sweeps where site_id = $1 and source <> all($2::text[])", s.ID, s.Spec.SourceNames()); err != nil {
		return s, fmt.Errorf("end the sweeps of site %s: %w", s.Spec.Name, err)
	}
	if _, err := tx.Exec(ctx, `insert into projections (site_id) values ($1)
		on conflict (site_id) do update set due_at = now()`, s.ID); err != nil {
		return s, fmt.Errorf("ask for the projection of site %s: %w", s.Spec.Name, err)
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(BundleLock)); err != nil {
		return s, fmt.Errorf("wait for those who judge by site %s: %w", s.Spec.Name, err)
	}
	return s, nil
}
