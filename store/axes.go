package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// AxisFindings tells what is to be said of the axes of a site's devices: what
// no policy maps, and where the inventory and Ironic differ.
func AxisFindings(ctx context.Context, q Querier, siteID int64, inventory string) ([]fleet.Finding, error) {
	rows, err := q.Query(ctx, `
		select $3::text, d.name, d.id, jsonb_build_object('axes', w.unread)
		from devices d join device_writers w on w.device_id = d.id and w.writer = 'inventory'
		where d.site_id = $1 and d.retired_at is null and (w.unread ? 'device_class' or w.unread ? 'inventory_status')
		union all
		select $4::text, d.name, d.id, jsonb_build_object('resource_class', jsonb_build_object($2::text, i.body ->> 'resource_class', 'ironic', n.body ->> 'resource_class'))
		from devices d
		join facts i on i.device_id = d.id and i.source = $2 and not i.ref_gone
		join facts n on n.device_id = d.id and n.source = 'ironic' and not n.ref_gone
		where d.site_id = $1 and d.retired_at is null and $2 <> 'ironic'
			and i.body ->> 'resource_class' <> n.body ->> 'resource_class' and i.body ->> 'resource_class' <> ''`,
		siteID, inventory, fleet.FindingUnmapped, fleet.FindingDifference)
	if err != nil {
		return nil, fmt.Errorf("look for differences of the inventory: %w", err)
	}
	findings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Finding, error) {
		var f fleet.Finding
		err := row.Scan(&f.Kind, &f.Ref, &f.DeviceID, &f.Detail)
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for differences of the inventory: %w", err)
	}
	return findings, nil
}
