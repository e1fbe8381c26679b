package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// Group is one or a number of devices of a site that agree in everything that their
// status and health follow from, and in both.
type Group struct {
	Alone   int64 // the device that is to be looked at by itself; 0: they are plain
	Devices int
	Due     time.Time // the earliest of them; zero: none
	Like    fleet.Device
}

// plain are devices that nothing of their own makes older or younger than their
// site: all was read, nothing was posted, the rules are the present ones, and no
// instant of their own has come.
const plain = "d.unread = 0 and d.posted = 0 and d.observation_version = $2 and (d.due_at is null or d.due_at > $3)"

// groupColumns are what the judgement of a device row rests on and gives. Texts
// other than statuses are not among them.
const groupColumns = `d.cond_true, d.cond_unknown, d.cond_present, d.in_scope, d.decisive, d.rung, d.operational_status, d.health_status,
	d.device_class, d.inventory_status, d.chassis_health, d.customer_ready, d.in_triage, d.inventory_only`

// Groups reads the unretired devices of a site by what their judgement rests on,
// and those that are not plain one by one, in no order.
func Groups(ctx context.Context, q Querier, siteID int64, version string, now time.Time) ([]Group, error) {
	rows, err := q.Query(ctx, "select case when "+plain+" then 0 else d.id end as alone, count(*), min(d.due_at), "+groupColumns+`,
			d.annotations ? $4 as held, d.entered_service_at is null as unserved, d.failed_at is null as sound
		from devices d where d.site_id = $1 and d.retired_at is null group by alone, `+groupColumns+", held, unserved, sound",
		siteID, version, now, fleet.ImpairmentEvent)
	if err != nil {
		return nil, fmt.Errorf("group the devices of a site: %w", err)
	}
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Group, error) { return scanGroup(row, version) })
	if err != nil {
		return nil, fmt.Errorf("group the devices of a site: %w", err)
	}
	return groups, nil
}

func scanGroup(row pgx.CollectableRow, version string) (g Group, err error) {
	d := &g.Like
	var due *time.Time
	var yes, unknown, present, scope, decisive int64
	var operational, health, class, inventory, chassis string
	var impaired, unserved, sound bool
	if err := row.Scan(&g.Alone, &g.Devices, &due, &yes, &unknown, &present, &scope, &decisive, &d.Rung, &operational, &health,
		&class, &inventory, &chassis, &d.CustomerReady, &d.InTriage, &d.InventoryOnly, &impaired, &unserved, &sound); err != nil {
		return g, err
	}
	g.Due = orZero(due)
	d.Class, d.Inventory, d.Operational, d.Health = classOf(class), inventoryOf(inventory), operationalOf(operational), healthOf(health)
	d.ChassisHealth, _ = facts.ParseRedfishHealth(chassis)
	d.Conditions = fleet.Masks{True: uint64(yes), Unknown: uint64(unknown), Present: uint64(present)}
	d.InScope, d.Decisive, d.ObservationVersion = uint64(scope), uint64(decisive), version
	if impaired {
		d.Annotations = map[string]json.RawMessage{fleet.ImpairmentEvent: nil}
	}
	if !unserved {
		d.EnteredServiceAt = some
	}
	if !sound {
		d.FailedAt = some
	}
	return g, nil
}

// some stands for an instant of which only is told that there is one.
var some = time.Unix(0, 0).UTC()

// LikeThem lists the devices of groups, by id. It gives a superset: whose masks
// and statuses are those of one of them.
func LikeThem(ctx context.Context, q Querier, siteID int64, groups []Group) ([]int64, error) {
	n := len(groups)
	yes, unknown, present, scope, decisive := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range groups {
		d := &groups[i].Like
		yes[i], unknown[i], present[i] = int64(d.Conditions.True), int64(d.Conditions.Unknown), int64(d.Conditions.Present)
		scope[i], decisive[i] = int64(d.InScope), int64(d.Decisive)
	}
	return deviceIDs(ctx, q, `(d.cond_true, d.cond_unknown, d.cond_present, d.in_scope, d.decisive) in
		(select * from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]))`, siteID, yes, unknown, present, scope, decisive)
}

// DeviceIDs lists the unretired devices of a site, by id.
func DeviceIDs(ctx context.Context, q Querier, siteID int64) ([]int64, error) {
	return deviceIDs(ctx, q, "true", siteID)
}

func deviceIDs(ctx context.Context, q Querier, which string, args ...any) ([]int64, error) {
	rows, err := q.Query(ctx, "select d.id from devices d where d.site_id = $1 and d.retired_at is null and "+which+" order by d.id", args...)
	if err != nil {
		return nil, fmt.Errorf("list the devices of a site: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("list the devices of a site: %w", err)
	}
	return ids, nil
}
