package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// Joinables reads every device of a site as the end of a listing of source
// sees it, the retired ones too. Names of tenants are the inventory's.
func Joinables(ctx context.Context, q Querier, siteID int64, source, inventory string) ([]fleet.Joinable, error) {
	rows, err := q.Query(ctx, `select d.id, d.name, d.serial_key, d.bmc_address, coalesce(i.body ->> 'tenant', ''),
			coalesce(f.ref, ''), coalesce(f.ref_gone, false), d.retired_at is not null
		from devices d
		left join facts f on f.device_id = d.id and f.source = $2
		left join facts i on i.device_id = d.id and i.source = $3
		where d.site_id = $1 order by d.id`, siteID, source, inventory)
	if err != nil {
		return nil, fmt.Errorf("read the devices of a site: %w", err)
	}
	devices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Joinable, error) {
		var d fleet.Joinable
		err := row.Scan(&d.Device, &d.Name, &d.Serial, &d.Address, &d.Tenant, &d.Ref, &d.RefGone, &d.Retired)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the devices of a site: %w", err)
	}
	return devices, nil
}

// Unlisted is a device that a writer speaks of and its source has no live
// record of.
type Unlisted struct {
	Device int64
	Told   bool // the facts say so already, and nothing is in doubt
}

// UnlistedInScope reads the unretired devices of a site of which one of the
// types is in scope and that have no live ref of the source.
func UnlistedInScope(ctx context.Context, q Querier, siteID int64, source string, types uint64) ([]Unlisted, error) {
	rows, err := q.Query(ctx, `select d.id, f.device_id is not null and f.unread_reason = ''
		from devices d left join facts f on f.device_id = d.id and f.source = $2
		where d.site_id = $1 and d.retired_at is null and d.in_scope & $3 <> 0 and (f.device_id is null or f.ref_gone or f.ref = '')
		order by d.id`, siteID, source, int64(types))
	if err != nil {
		return nil, fmt.Errorf("read the devices that %s does not list: %w", source, err)
	}
	unlisted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Unlisted, error) {
		var u Unlisted
		err := row.Scan(&u.Device, &u.Told)
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the devices that %s does not list: %w", source, err)
	}
	return unlisted, nil
}
