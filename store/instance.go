package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// Advisory locks on one NetBox, by the name of the instance. The second keeps
// two sites from taking one site of it; it is another because an apply of a
// site waits for judgements, and those for the first.
const (
	instanceLock     = 0x6e626f78
	instanceSiteLock = 0x6e627369
)

// LockInstance holds, until the end of tx, that nobody else gives birth by the
// records of a NetBox, joins or moves devices by them: its ids are its own
// across all sites. Take it before the JoinLock of a site.
func LockInstance(ctx context.Context, tx pgx.Tx, instance string) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, hashtext($2))", instanceLock, instance); err != nil {
		return fmt.Errorf("lock the devices of NetBox %s: %w", instance, err)
	}
	return nil
}

// LockInstanceSites holds, until the end of tx, that nobody else says which
// sites of a NetBox are whose.
func LockInstanceSites(ctx context.Context, tx pgx.Tx, instance string) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, hashtext($2))", instanceSiteLock, instance); err != nil {
		return fmt.Errorf("lock the sites of NetBox %s: %w", instance, err)
	}
	return nil
}

// InstanceSites reads the sites whose devices come from one NetBox, by id.
func InstanceSites(ctx context.Context, q Querier, instance string) ([]fleet.Site, error) {
	rows, err := q.Query(ctx, "select "+siteColumns+` from sites
		where spec ->> 'inventory' = 'netbox' and spec -> 'netbox' ->> 'instance' = $1 order by id`, instance)
	if err != nil {
		return nil, fmt.Errorf("list the sites of NetBox %s: %w", instance, err)
	}
	sites, err := pgx.CollectRows(rows, scanSite)
	if err != nil {
		return nil, fmt.Errorf("list the sites of NetBox %s: %w", instance, err)
	}
	return sites, nil
}

// Elsewhere is a device that has a ref at one of several sites.
type Elsewhere struct {
	Device int64
	SiteID int64
	Gone   bool // the ref is concluded gone
}

// RefsAt finds the devices of sites that have the refs of a source: the one
// that has it live, else the one that had it last.
func RefsAt(ctx context.Context, q Querier, sites []int64, source string, refs []string) (map[string]Elsewhere, error) {
	found := map[string]Elsewhere{}
	if len(sites) == 0 || len(refs) == 0 {
		return found, nil
	}
	rows, err := q.Query(ctx, `select ref, device_id, site_id, ref_gone, seen_at from facts
		where site_id = any($1) and source = $2 and ref = any($3) and ref <> '' and not ref_gone
		union all
		select ref, device_id, site_id, ref_gone, seen_at from facts
		where site_id = any($1) and source = $2 and ref = any($3) and ref <> '' and ref_gone
		order by 4, 5 desc, 2`, sites, source, refs)
	if err != nil {
		return nil, fmt.Errorf("look for the refs of %s at other sites: %w", source, err)
	}
	var ref string
	var e Elsewhere
	var seen time.Time
	if _, err := pgx.ForEachRow(rows, []any{&ref, &e.Device, &e.SiteID, &e.Gone, &seen}, func() error {
		if _, better := found[ref]; !better {
			found[ref] = e
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for the refs of %s at other sites: %w", source, err)
	}
	return found, nil
}

// MoveDevices gives locked devices to a site. Their rack is left behind.
func MoveDevices(ctx context.Context, tx pgx.Tx, ids []int64, siteID int64) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, "update devices set site_id = $2 where id = any($1)", ids, siteID); err != nil {
		return fmt.Errorf("move %d devices: %w", len(ids), err)
	}
	return nil
}

// ForgetRefs deletes what a source has said of the devices of a site: its refs
// mean other things from now on.
func ForgetRefs(ctx context.Context, tx pgx.Tx, siteID int64, source string) error {
	if _, err := tx.Exec(ctx, "delete from facts where site_id = $1 and source = $2", siteID, source); err != nil {
		return fmt.Errorf("forget the refs of %s: %w", source, err)
	}
	return nil
}

// CountRefs counts the live refs of a source at sites.
func CountRefs(ctx context.Context, q Querier, sites []int64, source string) (n int, err error) {
	if len(sites) == 0 {
		return 0, nil
	}
	if err := q.QueryRow(ctx, "select count(*) from facts where site_id = any($1) and source = $2 and not ref_gone", sites, source).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the refs of %s: %w", source, err)
	}
	return n, nil
}
