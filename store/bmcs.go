package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
)

// BMC is one address at which the inventory says that a BMC is.
type BMC struct {
	Address string // as fleet.AddressKey spells it
	Name    string // of the device
	Class   facts.DeviceClass
	Health  facts.RedfishHealth // of the chassis, as last read
}

// BMCs reads the addresses of the BMCs of a site's unretired devices of which
// one of the types is in scope, by address. One that several devices have is
// given once, for the first of them.
func BMCs(ctx context.Context, q Querier, siteID int64, types uint64) ([]BMC, error) {
	rows, err := q.Query(ctx, `select distinct on (bmc_address) bmc_address, name, device_class, chassis_health from devices
		where site_id = $1 and retired_at is null and bmc_address <> '' and in_scope & $2 <> 0 order by bmc_address, id`, siteID, int64(types))
	if err != nil {
		return nil, fmt.Errorf("read the addresses of BMCs: %w", err)
	}
	bmcs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (BMC, error) {
		var b BMC
		var class, health string
		err := row.Scan(&b.Address, &b.Name, &class, &health)
		b.Class = classOf(class)
		b.Health, _ = facts.ParseRedfishHealth(health)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the addresses of BMCs: %w", err)
	}
	return bmcs, nil
}
