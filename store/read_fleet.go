package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// SiteCount counts the devices of a site. Retired ones are in no number,
// inventory-only ones in theirs alone.
type SiteCount struct {
	SiteID        int64
	Devices       int64
	Operational   map[string]int64
	Health        map[string]int64
	Inventory     map[string]int64
	CustomerReady int64
	InTriage      int64
	Stale         int64 // that some type of the mask is not fresh of
	InventoryOnly int64
}

// CountFleet counts devices by site. stale gives each site a mask of the types
// whose source is too old; judged masks the types that are of interest. A type
// in scope that is unread or has no row is stale whatever its source.
func CountFleet(ctx context.Context, q Querier, stale map[int64]uint64, judged uint64) ([]SiteCount, error) {
	sites, masks := make([]int64, 0, len(stale)), make([]int64, 0, len(stale))
	for site, mask := range stale {
		sites, masks = append(sites, site), append(masks, int64(mask))
	}
	rows, err := q.Query(ctx, `
		with counted as (
			select d.site_id, d.operational_status, d.health_status, d.inventory_status, d.inventory_only, count(*) as n,
				count(*) filter (where d.customer_ready) as ready, count(*) filter (where d.in_triage) as triage,
				count(*) filter (where d.in_scope & $3 & (m.mask | d.unread | ~d.cond_present) <> 0) as stale
			from devices d join unnest($1::bigint[], $2::bigint[]) as m(site_id, mask) on m.site_id = d.site_id
			where d.retired_at is null group by 1, 2, 3, 4, 5
		)
		select c.site_id, coalesce(sum(n) filter (where not inventory_only), 0)::bigint,
			(select coalesce(jsonb_object_agg(k, v), '{}') from (select operational_status, sum(n) from counted o where o.site_id = c.site_id and not inventory_only group by 1) as x(k, v)),
			(select coalesce(jsonb_object_agg(k, v), '{}') from (select health_status, sum(n) from counted o where o.site_id = c.site_id and not inventory_only group by 1) as x(k, v)),
			(select coalesce(jsonb_object_agg(k, v), '{}') from (select inventory_status, sum(n) from counted o where o.site_id = c.site_id and not inventory_only group by 1) as x(k, v)),
			coalesce(sum(ready) filter (where not inventory_only), 0)::bigint, coalesce(sum(triage) filter (where not inventory_only), 0)::bigint,
			coalesce(sum(stale) filter (where not inventory_only), 0)::bigint, coalesce(sum(n) filter (where inventory_only), 0)::bigint
		from counted c group by c.site_id order by c.site_id`, sites, masks, int64(judged))
	if err != nil {
		return nil, fmt.Errorf("count the fleet: %w", err)
	}
	counts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (SiteCount, error) {
		var c SiteCount
		err := row.Scan(&c.SiteID, &c.Devices, &c.Operational, &c.Health, &c.Inventory, &c.CustomerReady, &c.InTriage, &c.Stale, &c.InventoryOnly)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the fleet: %w", err)
	}
	return counts, nil
}

// AllWatermarks reads how far each source of every site has been read, by site
// and source.
func AllWatermarks(ctx context.Context, q Querier) (map[int64]map[string]fleet.Watermark, error) {
	rows, err := q.Query(ctx, "select site_id, source, at, failing_since, reason, alert from watermarks")
	if err != nil {
		return nil, fmt.Errorf("read watermarks: %w", err)
	}
	sites := map[int64]map[string]fleet.Watermark{}
	var w fleet.Watermark
	var at, failing *time.Time
	if _, err := pgx.ForEachRow(rows, []any{&w.SiteID, &w.Source, &at, &failing, &w.Reason, &w.Alert}, func() error {
		w.At, w.FailingSince = orZero(at), orZero(failing)
		if sites[w.SiteID] == nil {
			sites[w.SiteID] = map[string]fleet.Watermark{}
		}
		sites[w.SiteID][w.Source] = w
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read watermarks: %w", err)
	}
	return sites, nil
}
