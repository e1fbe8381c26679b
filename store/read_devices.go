package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// DeviceRow is a device with what its reader shows beside it.
type DeviceRow struct {
	fleet.Device
	Site      string
	Rack      string    // "" for none
	SlurmSeen time.Time // when SLURM last spoke of it, in its own row or a whole listing; zero: never
}

// DeviceFilter chooses devices. Zero fields choose nothing away; several members
// of one field are alternatives, several fields all hold.
type DeviceFilter struct {
	SiteNames     []string // that the reader may see; nil: every one
	IDs           []int64
	Names         []string // normalised; * stands for any text
	Serials       []string // normalised
	Sites         []string
	Racks         []string
	RackIDs       []int64
	Classes       []string
	Inventory     []string
	Operational   []string
	Health        []string
	SlurmStates   []string // the device has one of them
	CustomerReady *bool
	InTriage      *bool
	InventoryOnly *bool
	Retired       *bool
	After         int64 // ids above it
	Limit         int
}

// where collects conditions with their arguments.
type where struct {
	terms []string
	args  []any
}

// add appends a condition in which ? stands for the argument.
func (w *where) add(term string, arg any) {
	w.args = append(w.args, arg)
	w.terms = append(w.terms, strings.ReplaceAll(term, "?", fmt.Sprintf("$%d", len(w.args))))
}

func (w *where) text() string { return strings.Join(w.terms, " and ") }

func anyOf[T any](w *where, column string, values []T) {
	if len(values) > 0 {
		w.add(column+" = any(?)", values)
	}
}

func equal(w *where, column string, value *bool) {
	if value != nil {
		w.add(column+" = ?", *value)
	}
}

// visible keeps to the sites that a reader may see.
func (w *where) visible(sites []string) {
	if sites != nil {
		w.add("d.site_id in (select id from sites where name = any(?))", sites)
	}
}

func (f *DeviceFilter) where() *where {
	w := &where{}
	w.add("d.id > ?", f.After)
	w.visible(f.SiteNames)
	anyOf(w, "d.id", f.IDs)
	if len(f.Names) > 0 {
		w.add("d.name_key like any(?)", likes(f.Names))
	}
	anyOf(w, "d.serial_key", f.Serials)
	if len(f.Sites) > 0 {
		w.add("d.site_id in (select id from sites where name = any(?))", f.Sites)
	}
	if len(f.Racks) > 0 {
		w.add("d.rack_id in (select id from racks where name = any(?))", f.Racks)
	}
	anyOf(w, "d.rack_id", f.RackIDs)
	anyOf(w, "d.device_class", f.Classes)
	anyOf(w, "d.inventory_status", f.Inventory)
	anyOf(w, "d.operational_status", f.Operational)
	anyOf(w, "d.health_status", f.Health)
	if len(f.SlurmStates) > 0 {
		w.add("d.slurm_states && ?", f.SlurmStates)
	}
	equal(w, "d.customer_ready", f.CustomerReady)
	equal(w, "d.in_triage", f.InTriage)
	equal(w, "d.inventory_only", f.InventoryOnly)
	if f.Retired != nil && *f.Retired {
		w.terms = append(w.terms, "d.retired_at is not null")
	} else if f.Retired != nil {
		w.terms = append(w.terms, "d.retired_at is null")
	}
	return w
}

// likes turns texts in which * stands for any text into patterns.
func likes(texts []string) []string {
	patterns := make([]string, len(texts))
	for i, text := range texts {
		patterns[i] = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace(text)
	}
	return patterns
}

// ListDevices reads one page of devices in the order of ids. The page is chosen
// before anything is joined to it: along the primary key, or by the index of
// the site, the status or SLURM's states where one of them chooses few.
func ListDevices(ctx context.Context, q Querier, f DeviceFilter) ([]DeviceRow, error) {
	w := f.where()
	w.args = append(w.args, f.Limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`select %[1]s, s.name, coalesce(r.name, ''), case when l.seen_at is not null then greatest(l.seen_at, m.at) end
		from (select %[1]s from devices d where %[2]s order by d.id limit $%[3]d) d
		join sites s on s.id = d.site_id
		left join racks r on r.id = d.rack_id
		left join facts l on l.device_id = d.id and l.source = 'slurm'
		left join watermarks m on m.site_id = d.site_id and m.source = 'slurm'
		order by d.id`, DeviceColumns, w.text(), len(w.args)), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	devices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeviceRow, error) {
		var d DeviceRow
		var seen *time.Time
		var err error
		d.Device, err = ScanDevice(row, &d.Site, &d.Rack, &seen)
		d.SlurmSeen = orZero(seen)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	return devices, nil
}

// VisibleDevices tells which of the devices exist for a reader who may see the
// sites; nil: every one.
func VisibleDevices(ctx context.Context, q Querier, ids []int64, sites []string) (map[int64]bool, error) {
	w := &where{}
	w.add("d.id = any(?)", ids)
	w.visible(sites)
	rows, err := q.Query(ctx, "select d.id from devices d where "+w.text(), w.args...)
	if err != nil {
		return nil, fmt.Errorf("look for devices: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for devices: %w", err)
	}
	visible := make(map[int64]bool, len(found))
	for _, id := range found {
		visible[id] = true
	}
	return visible, nil
}

// RackRow is a rack with how many of its devices have which status.
type RackRow struct {
	ID      int64
	Site    string
	Ref     string // the inventory source's own identity
	Name    string
	Devices map[string]int64 // by operational status; inventory-only and retired ones left out
	Ready   int64            // customer-ready ones
}

// ListRacks reads one page of racks in the order of ids.
func ListRacks(ctx context.Context, q Querier, visible, sites []string, after int64, limit int) ([]RackRow, error) {
	w := &where{}
	w.add("k.id > ?", after)
	for _, names := range [][]string{visible, sites} {
		if names != nil {
			w.add("s.name = any(?)", names)
		}
	}
	w.args = append(w.args, limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`
		with page as (
			select k.id, s.name as site, k.source_ref, k.name from racks k join sites s on s.id = k.site_id where %s order by k.id limit $%d
		), counted as (
			select d.rack_id, d.operational_status, count(*) as n, count(*) filter (where d.customer_ready) as ready
			from devices d where d.rack_id in (select id from page) and d.retired_at is null and not d.inventory_only group by 1, 2
		)
		select p.id, p.site, p.source_ref, p.name,
			coalesce((select jsonb_object_agg(c.operational_status, c.n) from counted c where c.rack_id = p.id), '{}'),
			coalesce((select sum(c.ready) from counted c where c.rack_id = p.id), 0)::bigint
		from page p order by p.id`, w.text(), len(w.args)), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list racks: %w", err)
	}
	racks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (RackRow, error) {
		var r RackRow
		err := row.Scan(&r.ID, &r.Site, &r.Ref, &r.Name, &r.Devices, &r.Ready)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list racks: %w", err)
	}
	return racks, nil
}
