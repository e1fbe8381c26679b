package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// AxisFindings tells what is to be said of the axes of a site's devices: roles
// and statuses of the inventory that no policy maps (by the reasons given, one
// for each axis), where the inventory and Ironic differ, and which devices have
// one BMC address.
func AxisFindings(ctx context.Context, q Querier, siteID int64, inventory, classUnmapped, statusUnmapped string) ([]fleet.Finding, error) {
	rows, err := q.Query(ctx, `
		with found (kind, ref, id, detail) as (
			select $3::text, d.name, d.id, jsonb_build_object('role', f.body ->> 'role', 'status', f.body ->> 'status', 'resource_class', f.body ->> 'resource_class',
				'unmapped', case when w.unread -> 'device_class' ->> 'reason' = $6 then '["device_class"]'::jsonb else '[]' end
					|| case when w.unread -> 'inventory_status' ->> 'reason' = $7 then '["inventory_status"]'::jsonb else '[]' end)
			from devices d join device_writers w on w.device_id = d.id and w.writer = 'inventory' and w.unread <> '{}'
			join facts f on f.device_id = d.id and f.source = $2
			where d.site_id = $1 and d.retired_at is null
				and (w.unread -> 'device_class' ->> 'reason' = $6 or w.unread -> 'inventory_status' ->> 'reason' = $7)
			union all
			select $4::text, d.name, d.id,
				case when i.body ->> 'resource_class' <> n.body ->> 'resource_class' and i.body ->> 'resource_class' <> ''
					then jsonb_build_object('resource_class', jsonb_build_object($2::text, i.body ->> 'resource_class', 'ironic', n.body ->> 'resource_class')) else '{}' end
				|| case when upper(i.serial) <> upper(n.serial) and i.serial <> '' and n.serial <> ''
					then jsonb_build_object('serial', jsonb_build_object($2::text, i.serial, 'ironic', n.serial)) else '{}' end
			from devices d
			join facts i on i.device_id = d.id and i.source = $2 and not i.ref_gone
			join facts n on n.device_id = d.id and n.source = 'ironic' and not n.ref_gone
			where d.site_id = $1 and d.retired_at is null and $2 <> 'ironic'
				and (i.body ->> 'resource_class' <> n.body ->> 'resource_class' and i.body ->> 'resource_class' <> ''
					or upper(i.serial) <> upper(n.serial) and i.serial <> '' and n.serial <> '')
			union all
			select $5::text, bmc_address, min(id), jsonb_build_object('devices', jsonb_agg(id order by id))
			from devices where site_id = $1 and retired_at is null and bmc_address in (
				select bmc_address from devices where site_id = $1 and retired_at is null and bmc_address <> '' group by bmc_address having count(*) > 1)
			group by bmc_address
		)
		select kind, case when count(*) over (partition by kind, ref) = 1 then ref else ref || ' (' || id || ')' end, id, detail from found`, // tenants may share a name
		siteID, inventory, fleet.FindingUnmapped, fleet.FindingDifference, fleet.FindingSharedBMC, classUnmapped, statusUnmapped)
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

// HeldClasses reads the unretired devices of a site whose new class is held back
// for the reason, with what the inventory says of them.
func HeldClasses(ctx context.Context, q Querier, siteID int64, inventory, reason string) ([]fleet.Reclassified, error) {
	rows, err := q.Query(ctx, `select d.id, d.name, f.ref, coalesce(f.body ->> 'role', f.body ->> 'resource_class', '')
		from devices d join device_writers w on w.device_id = d.id and w.writer = 'inventory' and w.unread <> '{}'
		join facts f on f.device_id = d.id and f.source = $2
		where d.site_id = $1 and d.retired_at is null and w.unread -> 'device_class' ->> 'reason' = $3 order by d.id`, siteID, inventory, reason)
	if err != nil {
		return nil, fmt.Errorf("read the classes that are held back: %w", err)
	}
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Reclassified, error) {
		var h fleet.Reclassified
		err := row.Scan(&h.Device, &h.Name, &h.Ref, &h.Role)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the classes that are held back: %w", err)
	}
	return held, nil
}
