package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// held is what a source's facts say of who a device is there.
type held struct {
	ref    string
	gone   bool
	doubt  bool // the newest reading gave nothing
	tenant string
}

// refsOf reads what every device of a site is for one source. Devices and facts
// are read apart and brought together here: joined by the database, a site whose
// tables have just been filled would be compared pair by pair.
func refsOf(ctx context.Context, q Querier, siteID int64, source string, tenants bool) (map[int64]held, error) {
	rows, err := q.Query(ctx, `select device_id, ref, ref_gone, unread_reason <> '', case when $3 then coalesce(body ->> 'tenant', '') else '' end
		from facts where site_id = $1 and source = $2`, siteID, source, tenants)
	if err != nil {
		return nil, fmt.Errorf("read the refs of %s: %w", source, err)
	}
	refs := map[int64]held{}
	var device int64
	var h held
	if _, err := pgx.ForEachRow(rows, []any{&device, &h.ref, &h.gone, &h.doubt, &h.tenant}, func() error { refs[device] = h; return nil }); err != nil {
		return nil, fmt.Errorf("read the refs of %s: %w", source, err)
	}
	return refs, nil
}

// Joinables reads every device of a site as the end of a listing of source
// sees it, the retired ones too, by id. Tenants are read of an inventory that
// has them.
func Joinables(ctx context.Context, q Querier, siteID int64, source string, tenants bool) ([]fleet.Joinable, error) {
	refs, err := refsOf(ctx, q, siteID, source, tenants)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, "select id, name, serial_key, bmc_address, infrastructure_ref, retired_at is not null from devices where site_id = $1 order by id", siteID)
	if err != nil {
		return nil, fmt.Errorf("read the devices of a site: %w", err)
	}
	devices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Joinable, error) {
		var d fleet.Joinable
		err := row.Scan(&d.Device, &d.Name, &d.Serial, &d.Address, &d.Node, &d.Retired)
		h := refs[d.Device]
		d.Ref, d.RefGone, d.Tenant = h.ref, h.gone, h.tenant
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
// types is in scope and that have no live ref of the source, by id.
func UnlistedInScope(ctx context.Context, q Querier, siteID int64, source string, types uint64) ([]Unlisted, error) {
	refs, err := refsOf(ctx, q, siteID, source, false)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, "select id from devices where site_id = $1 and retired_at is null and in_scope & $2 <> 0 order by id", siteID, int64(types))
	if err != nil {
		return nil, fmt.Errorf("read the devices that %s does not list: %w", source, err)
	}
	var unlisted []Unlisted
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		h, known := refs[id]
		if h.ref == "" || h.gone {
			unlisted = append(unlisted, Unlisted{Device: id, Told: known && !h.doubt})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the devices that %s does not list: %w", source, err)
	}
	return unlisted, nil
}

// NodesUnlisted reads the unretired devices of a site that have an Ironic node
// of which a source, whose refs are those of Ironic's nodes, has no live record,
// by id.
func NodesUnlisted(ctx context.Context, q Querier, siteID int64, source string) ([]Unlisted, error) {
	refs, err := refsOf(ctx, q, siteID, source, false)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, "select id, infrastructure_ref from devices where site_id = $1 and retired_at is null and infrastructure_ref <> '' order by id", siteID)
	if err != nil {
		return nil, fmt.Errorf("read the nodes that %s does not list: %w", source, err)
	}
	var unlisted []Unlisted
	var id int64
	var node string
	if _, err := pgx.ForEachRow(rows, []any{&id, &node}, func() error {
		h, known := refs[id]
		if h.gone || h.ref != node {
			unlisted = append(unlisted, Unlisted{Device: id, Told: known && !h.doubt && (h.gone || h.ref == "")})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the nodes that %s does not list: %w", source, err)
	}
	return unlisted, nil
}
