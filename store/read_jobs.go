package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// JobRow is a job with what its reader shows beside it.
type JobRow struct {
	fleet.Job
	Site    string
	Devices map[fleet.JobDeviceStatus]int
	Unsent  int    // executions that Temporal does not have yet
	Trouble string // why the oldest of them could not be sent, "" while nobody tried
	Barred  string // the open breaker that keeps one of them back
	Live    int    // executions that are under way, children included
}

// JobFilter chooses jobs. Zero fields choose nothing away; several members of
// one field are alternatives, several fields all hold.
type JobFilter struct {
	SiteNames   []string // that the reader may see; nil: every one
	IDs         []int64
	Sites       []string
	Workflows   []string
	Statuses    []string
	Devices     []int64
	RequestedBy []string
	Open        *bool // has not ended
	Before      int64 // ids below it; 0: the newest
	Limit       int
}

// ListJobs reads one page of jobs, the newest first.
func ListJobs(ctx context.Context, q Querier, f JobFilter) ([]JobRow, error) {
	w := &where{}
	if f.Before > 0 {
		w.add("j.id < ?", f.Before)
	}
	for _, names := range [][]string{f.SiteNames, f.Sites} {
		if names != nil {
			w.add("j.site_id in (select id from sites where name = any(?))", names)
		}
	}
	anyOf(w, "j.id", f.IDs)
	anyOf(w, "j.workflow", f.Workflows)
	anyOf(w, "j.status", f.Statuses)
	anyOf(w, "j.requested_by", f.RequestedBy)
	switch { // as the index of open jobs has it
	case f.Open != nil && *f.Open:
		w.terms = append(w.terms, "j.status in ('pending', 'running', 'cancellation_requested')")
	case f.Open != nil:
		w.terms = append(w.terms, "job_ended(j.status)")
	}
	if len(f.Devices) > 0 {
		w.add("j.id in (select job_id from job_devices where device_id = any(?))", f.Devices)
	}
	if len(w.terms) == 0 {
		w.terms = append(w.terms, "true")
	}
	w.args = append(w.args, f.Limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`with page as (select %[3]s from jobs j where %[1]s order by j.id desc limit $%[2]d)
		select %[3]s, s.name,
			coalesce((select jsonb_object_agg(c.status, c.n) from (select status, count(*) as n from job_devices where job_id = j.id group by 1) c), '{}'),
			coalesce(x.unsent, 0), coalesce(x.trouble, ''), coalesce(x.live, 0),
			coalesce((select min(b.name) from executions e, breakers b where e.job_id = j.id and e.state = 'unsent' and %[4]s), '')
		from page j join sites s on s.id = j.site_id
		left join lateral (select count(*) filter (where state = 'unsent') as unsent, count(*) filter (where state = 'sent') as live,
			(array_agg(trouble order by due_at) filter (where state = 'unsent' and trouble <> ''))[1] as trouble
			from executions where job_id = j.id and state <> 'closed') x on true
		order by j.id desc`, w.text(), len(w.args), jobColumns, barred), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (JobRow, error) {
		var j JobRow
		var err error
		j.Job, err = scanJob(row, &j.Site, &j.Devices, &j.Unsent, &j.Trouble, &j.Live, &j.Barred)
		return j, err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

// JobDeviceRow is a device of a job with its name.
type JobDeviceRow struct {
	fleet.JobDevice
	Name string
}

const jobDeviceColumns = `jd.job_id, jd.device_id, jd.status, jd.phase, jd.progress, jd.failure_code, jd.failure_message, jd.stamped, jd.started_at, jd.finished_at`

func scanJobDevice(row pgx.Row, more ...any) (fleet.JobDevice, error) {
	var d fleet.JobDevice
	var started, finished *time.Time
	into := append([]any{&d.JobID, &d.DeviceID, &d.Status, &d.Phase, &d.Progress, &d.FailureCode, &d.FailureMessage, &d.Stamped, &started, &finished}, more...)
	err := row.Scan(into...)
	d.StartedAt, d.FinishedAt = orZero(started), orZero(finished)
	return d, err
}

// JobDevices reads one page of the devices of a job in the order of ids after
// the one given.
func JobDevices(ctx context.Context, q Querier, jobID, after int64, limit int) ([]JobDeviceRow, error) {
	rows, err := q.Query(ctx, "select "+jobDeviceColumns+`, d.name from job_devices jd join devices d on d.id = jd.device_id
		where jd.job_id = $1 and jd.device_id > $2 order by jd.device_id limit $3`, jobID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list the devices of job %d: %w", jobID, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (JobDeviceRow, error) {
		var d JobDeviceRow
		var err error
		d.JobDevice, err = scanJobDevice(row, &d.Name)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the devices of job %d: %w", jobID, err)
	}
	return all, nil
}

// Named is a device that somebody names, by id or by name.
type Named struct {
	ID     int64
	SiteID int64
	Site   string
	Name   string
}

// findDevices finds unretired devices: $1 are ids, $2 normalised names, $3 the
// sites that may be seen, $4 the one site.
const findDevices = `with seen as (select id, name from sites where ($3::text[] is null or name = any($3)) and ($4 = '' or name = $4)),
		found as (
			select unnest($1::bigint[]) as id
			union select d.id from seen s cross join unnest($2::text[]) as n(name) join devices d on d.site_id = s.id and d.name_key = n.name
		) select %s from found f join devices d on d.id = f.id join seen s on s.id = d.site_id
		where d.retired_at is null order by d.id`

// FindDevices finds unretired devices by id or by normalised name, in the sites
// that may be seen (nil: every one), and in the one site where it is given.
func FindDevices(ctx context.Context, q Querier, ids []int64, names []string, visible []string, site string) ([]Named, error) {
	rows, err := q.Query(ctx, fmt.Sprintf(findDevices, "d.id, d.site_id, s.name, d.name"), ids, names, visible, site)
	if err != nil {
		return nil, fmt.Errorf("look for devices: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Named, error) {
		var n Named
		err := row.Scan(&n.ID, &n.SiteID, &n.Site, &n.Name)
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for devices: %w", err)
	}
	return all, nil
}

// FindWhole is FindDevices with all of the devices beside, in the same order.
func FindWhole(ctx context.Context, q Querier, ids []int64, names []string, visible []string, site string) (named []Named, devices []fleet.Device, err error) {
	if len(names) > 0 {
		found, err := FindDevices(ctx, q, ids, names, visible, site)
		if err != nil || len(found) == 0 {
			return nil, nil, err
		}
		ids = make([]int64, len(found))
		for i := range found {
			ids[i] = found[i].ID
		}
	}
	seen, sites, err := sitesSeen(ctx, q, visible, site)
	if err != nil {
		return nil, nil, err
	}
	rows, err := q.Query(ctx, "select "+DeviceColumns+" from devices d where d.id = any($1) and d.retired_at is null and d.site_id = any($2) order by d.id", ids, sites)
	if err != nil {
		return nil, nil, fmt.Errorf("look for devices: %w", err)
	}
	named = make([]Named, 0, len(ids))
	devices, err = pgx.AppendRows(make([]fleet.Device, 0, len(ids)), rows, func(row pgx.CollectableRow) (fleet.Device, error) {
		d, err := ScanDevice(row)
		named = append(named, Named{ID: d.ID, SiteID: d.SiteID, Site: seen[d.SiteID], Name: d.Name})
		return d, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for devices: %w", err)
	}
	return named, devices, nil
}

// sitesSeen gives the names of the sites that may be seen, and their ids.
func sitesSeen(ctx context.Context, q Querier, visible []string, site string) (names map[int64]string, ids []int64, err error) {
	rows, err := q.Query(ctx, "select id, name from sites where ($1::text[] is null or name = any($1)) and ($2 = '' or name = $2)", visible, site)
	if err != nil {
		return nil, nil, fmt.Errorf("look for sites: %w", err)
	}
	names, ids = map[int64]string{}, []int64{}
	var id int64
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		names[id], ids = name, append(ids, id)
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("look for sites: %w", err)
	}
	return names, ids, nil
}
