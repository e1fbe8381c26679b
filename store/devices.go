package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// DeviceColumns are the columns that ScanDevice reads, of the alias d.
const DeviceColumns = `d.id, d.site_id, d.rack_id, d.position, d.name, d.serial, d.bmc_address, d.device_class, d.resource_class,
	d.inventory_only, d.inventory_status, d.operational_status, d.health_status, d.customer_ready,
	d.in_triage, d.entered_triage_at, d.triage_ticket_url, d.parent_ticket_url, d.annotations,
	d.infrastructure_ref, d.enrollment_validated_ref, d.enrollment_proof_source, d.enrollment_validated_at,
	d.entered_service_at, d.failure_reason, d.failed_at, d.ironic_provision_state, d.slurm_states, d.chassis_health,
	d.cond_true, d.cond_unknown, d.cond_present, d.in_scope, d.unread, d.posted, d.decisive, d.rung,
	d.observation_version, d.due_at, d.absent_since, d.retired_at, d.created_at, d.updated_at`

// ScanDevice reads DeviceColumns, with whatever columns follow into more.
func ScanDevice(row pgx.Row, more ...any) (fleet.Device, error) {
	var d fleet.Device
	var rack *int64
	var class, inventory, operational, health, provision, chassis string
	var slurm []string
	var annotations []byte
	var triage, validated, entered, failed, due, absent, retired *time.Time
	var yes, unknown, present, scope, unread, posted, decisive int64
	into := append([]any{&d.ID, &d.SiteID, &rack, &d.Position, &d.Name, &d.Serial, &d.BMCAddress, &class, &d.ResourceClass,
		&d.InventoryOnly, &inventory, &operational, &health, &d.CustomerReady,
		&d.InTriage, &triage, &d.TriageTicketURL, &d.ParentTicketURL, &annotations,
		&d.InfrastructureRef, &d.Proof.ValidatedRef, &d.Proof.Source, &validated,
		&entered, &d.FailureReason, &failed, &provision, &slurm, &chassis,
		&yes, &unknown, &present, &scope, &unread, &posted, &decisive, &d.Rung,
		&d.ObservationVersion, &due, &absent, &retired, &d.CreatedAt, &d.UpdatedAt}, more...)
	if err := row.Scan(into...); err != nil {
		return d, err
	}
	if len(annotations) > len("{}") {
		if err := json.Unmarshal(annotations, &d.Annotations); err != nil {
			return d, fmt.Errorf("read the annotations of device %d: %w", d.ID, err)
		}
	}
	if rack != nil {
		d.RackID = *rack
	}
	d.Class, d.Inventory, d.Operational, d.Health = classOf(class), inventoryOf(inventory), operationalOf(operational), healthOf(health)
	d.IronicProvisionState, _ = facts.ParseProvisionState(provision)
	d.ChassisHealth, _ = facts.ParseRedfishHealth(chassis)
	d.SlurmStates = slurmStatesOf(slurm)
	d.EnteredTriageAt, d.Proof.ValidatedAt, d.EnteredServiceAt, d.FailedAt = orZero(triage), orZero(validated), orZero(entered), orZero(failed)
	d.DueAt, d.AbsentSince, d.RetiredAt = orZero(due), orZero(absent), orZero(retired)
	d.Conditions = fleet.Masks{True: uint64(yes), Unknown: uint64(unknown), Present: uint64(present)}
	d.InScope, d.Unread, d.Posted, d.Decisive = uint64(scope), uint64(unread), uint64(posted), uint64(decisive)
	return d, nil
}

func collectDevices(rows pgx.Rows, err error, doing string) ([]fleet.Device, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	devices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Device, error) { return ScanDevice(row) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return devices, nil
}

// LockDevices reads devices in the order of ids and holds them until the end of
// tx. Whoever changes devices locks them so, all at once: nobody waits in a
// circle.
func LockDevices(ctx context.Context, tx pgx.Tx, ids []int64) ([]fleet.Device, error) {
	rows, err := tx.Query(ctx, "select "+DeviceColumns+" from devices d where d.id = any($1) order by d.id for no key update", ids)
	return collectDevices(rows, err, "lock devices")
}

// DevicesByID reads devices in the order of ids.
func DevicesByID(ctx context.Context, q Querier, ids []int64) ([]fleet.Device, error) {
	rows, err := q.Query(ctx, "select "+DeviceColumns+" from devices d where d.id = any($1) order by d.id", ids)
	return collectDevices(rows, err, "read devices")
}

// NewDeviceIDs takes n ids for devices to be inserted, ascending.
func NewDeviceIDs(ctx context.Context, tx pgx.Tx, n int) ([]int64, error) {
	rows, err := tx.Query(ctx, "select nextval(pg_get_serial_sequence('devices', 'id')) from generate_series(1, $1)", n)
	if err != nil {
		return nil, fmt.Errorf("take device ids: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("take device ids: %w", err)
	}
	return ids, nil
}

// judgedColumns are what a judgement may write, beside the id.
var judgedColumns = []string{
	"rack_id", "position", "name", "name_key", "serial", "serial_key", "bmc_address", "device_class", "resource_class",
	"inventory_status", "operational_status", "health_status", "customer_ready", "infrastructure_ref",
	"enrollment_validated_ref", "enrollment_proof_source", "enrollment_validated_at", "entered_service_at", "failure_reason", "failed_at",
	"ironic_provision_state", "chassis_health", "cond_true", "cond_unknown", "cond_present", "in_scope", "unread", "posted", "decisive",
	"rung", "observation_version", "due_at", "absent_since", "retired_at", "updated_at",
}

var judgedTypes = []string{
	"bigint", "text", "text", "text", "text", "text", "text", "text", "text",
	"text", "text", "text", "boolean", "text",
	"text", "text", "timestamptz", "timestamptz", "text", "timestamptz",
	"text", "text", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint",
	"text", "text", "timestamptz", "timestamptz", "timestamptz", "timestamptz",
}

var (
	updateDevices = judgedStatement(`update devices d set slurm_states = string_to_array(u.slurm, ','), `, func(c string) string { return c + " = u." + c },
		` from unnest($1::bigint[], $2::text[], `, `) as u(id, slurm, `, `) where d.id = u.id`)
	insertDevices = judgedStatement(`insert into devices (id, slurm_states, inventory_only, site_id, created_at, `, func(c string) string { return c },
		`) overriding system value select u.id, string_to_array(u.slurm, ','), s.inventory_only, s.id, u.updated_at, u.`+strings.Join(judgedColumns, ", u.")+` from unnest($1::bigint[], $2::text[], `,
		`) as u(id, slurm, `, `) join sites s on s.id = $`+fmt.Sprint(len(judgedColumns)+3))
)

// judgedStatement spells a statement over arrays, one for each column.
func judgedStatement(head string, spell func(string) string, from, as, tail string) string {
	var set, params []string
	for i, column := range judgedColumns {
		set = append(set, spell(column))
		params = append(params, fmt.Sprintf("$%d::%s[]", i+3, judgedTypes[i]))
	}
	return head + strings.Join(set, ", ") + from + strings.Join(params, ", ") + as + strings.Join(judgedColumns, ", ") + tail
}

// columnsOf turns devices into one array a column, in the order of the
// statements: id, SLURM's tokens joined by commas, judgedColumns.
func columnsOf(devices []*fleet.Device) []any {
	n := len(devices)
	ids, slurm, racks := make([]int64, n), make([]string, n), make([]*int64, n)
	texts := make([][]string, len(judgedColumns))
	var masks [7][]int64
	var times [7][]*time.Time
	for i := range masks {
		masks[i], times[i] = make([]int64, n), make([]*time.Time, n)
	}
	ready := make([]bool, n)
	for i, d := range devices {
		ids[i], slurm[i], racks[i], ready[i] = d.ID, strings.Join(d.SlurmStates.Tokens(), ","), idOrNull(d.RackID), d.CustomerReady
		for j, value := range []string{
			1: d.Position, 2: d.Name, 3: fleet.NameKey(d.Name), 4: d.Serial, 5: fleet.SerialKey(d.Serial), 6: d.BMCAddress, 7: d.Class.String(), 8: d.ResourceClass,
			9: d.Inventory.String(), 10: d.Operational.String(), 11: d.Health.String(), 13: d.InfrastructureRef,
			14: d.Proof.ValidatedRef, 15: d.Proof.Source, 18: d.FailureReason,
			20: d.IronicProvisionState.String(), 21: d.ChassisHealth.String(), 29: d.Rung, 30: d.ObservationVersion,
		} {
			texts[j] = append(texts[j], text(value))
		}
		for j, mask := range [7]uint64{d.Conditions.True, d.Conditions.Unknown, d.Conditions.Present, d.InScope, d.Unread, d.Posted, d.Decisive} {
			masks[j][i] = int64(mask)
		}
		for j, at := range [7]time.Time{d.Proof.ValidatedAt, d.EnteredServiceAt, d.FailedAt, d.DueAt, d.AbsentSince, d.RetiredAt, d.UpdatedAt} {
			times[j][i] = orNull(at)
		}
	}
	return []any{ids, slurm, racks, texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], texts[8],
		texts[9], texts[10], texts[11], ready, texts[13], texts[14], texts[15], times[0], times[1], texts[18], times[2],
		texts[20], texts[21], masks[0], masks[1], masks[2], masks[3], masks[4], masks[5], masks[6],
		texts[29], texts[30], times[3], times[4], times[5], times[6]}
}

// UpdateDevices writes what a judgement may change of locked devices.
func UpdateDevices(ctx context.Context, tx pgx.Tx, devices []*fleet.Device) error {
	if len(devices) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, updateDevices, columnsOf(devices)...); err != nil {
		return fmt.Errorf("write %d devices: %w", len(devices), err)
	}
	return nil
}

// InsertDevices writes newborn devices of one site, whose ids are from
// NewDeviceIDs. Whether they are inventory-only is the site's.
func InsertDevices(ctx context.Context, tx pgx.Tx, siteID int64, devices []*fleet.Device) error {
	if len(devices) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, insertDevices, append(columnsOf(devices), siteID)...); err != nil {
		return fmt.Errorf("write %d new devices: %w", len(devices), err)
	}
	return nil
}

// PromoteDevice ends that a locked device is inventory-only.
func PromoteDevice(ctx context.Context, tx pgx.Tx, id int64) error {
	if _, err := tx.Exec(ctx, "update devices set inventory_only = false where id = $1", id); err != nil {
		return fmt.Errorf("promote a device: %w", err)
	}
	return nil
}

// SetTriage writes whether a locked device is in triage, and its tickets.
func SetTriage(ctx context.Context, tx pgx.Tx, d *fleet.Device) error {
	_, err := tx.Exec(ctx, `update devices set in_triage = $2, entered_triage_at = $3, triage_ticket_url = $4, parent_ticket_url = $5, updated_at = $6
		where id = $1`, d.ID, d.InTriage, orNull(d.EnteredTriageAt), text(d.TriageTicketURL), text(d.ParentTicketURL), d.UpdatedAt)
	if err != nil {
		return fmt.Errorf("write the triage of a device: %w", err)
	}
	return nil
}

// TenantName is a normalised name within a tenant; "" for none.
type TenantName struct{ Name, Tenant string }

// AnyTenant is the tenant of a device of which the inventory has said nothing
// yet: nobody knows it.
const AnyTenant = "*"

// Taken lists what unretired devices of the site have already, of the names
// and serials given. Tenants are those of the inventory, where it has them.
// Retirement is asked last: before the first statistics the planner would take
// the index of all unretired devices of the site for each key.
func Taken(ctx context.Context, tx pgx.Tx, siteID int64, inventory string, nameKeys, serialKeys []string) (names map[TenantName]bool, serials map[string]bool, err error) {
	rows, err := tx.Query(ctx, `
		select d.name_key, d.serial_key, coalesce((select case when f.ref = '' then '*' else coalesce(f.body ->> 'tenant', '') end from facts f where f.device_id = d.id and f.source = $4), '*') from (
			select d.* from unnest($2::text[]) u(key) cross join lateral (
				select id, name_key, '' as serial_key, retired_at from devices where site_id = $1 and name_key = u.key offset 0) d
			union all
			select d.* from unnest($3::text[]) u(key) cross join lateral (
				select id, '' as name_key, serial_key, retired_at from devices where site_id = $1 and serial_key = u.key and serial_key <> '' offset 0) d
		) d where d.retired_at is null`, siteID, nameKeys, serialKeys, inventory)
	if err != nil {
		return nil, nil, fmt.Errorf("look for devices of the same name: %w", err)
	}
	names, serials = map[TenantName]bool{}, map[string]bool{}
	var name TenantName
	var serial string
	if _, err := pgx.ForEachRow(rows, []any{&name.Name, &serial, &name.Tenant}, func() error {
		names[name] = names[name] || name.Name != ""
		serials[serial] = serial != ""
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("look for devices of the same name: %w", err)
	}
	return names, serials, nil
}
