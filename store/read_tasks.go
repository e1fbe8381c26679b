package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// TaskRow is a task with what its reader shows beside it.
type TaskRow struct {
	fleet.Task
	Site       string
	Rack       string
	Components map[fleet.JobDeviceStatus]int
	Unsent     int    // executions that Temporal does not have yet
	Trouble    string // why the last try to send it failed
	Barred     string // the open breaker that keeps it back
	Live       int    // executions that are under way, children included
	Ahead      int    // tasks of the rack that wait before it
}

// TaskFilter chooses tasks. Zero fields choose nothing away.
type TaskFilter struct {
	SiteNames   []string // that the reader may see; nil: every one
	IDs         []int64
	Sites       []string
	Racks       []int64
	Operations  []string
	Statuses    []string
	Devices     []int64
	RequestedBy []string
	Open        *bool // has not ended
	Before      int64 // ids below it; 0: the newest
	Limit       int
}

func (f *TaskFilter) where() *where {
	w := &where{terms: []string{"true"}}
	if f.Before > 0 {
		w.add("t.id < ?", f.Before)
	}
	for _, names := range [][]string{f.SiteNames, f.Sites} {
		if names != nil {
			w.add("t.site_id in (select id from sites where name = any(?))", names)
		}
	}
	anyOf(w, "t.id", f.IDs)
	anyOf(w, "t.rack_id", f.Racks)
	anyOf(w, "t.operation", f.Operations)
	anyOf(w, "t.status", f.Statuses)
	anyOf(w, "t.requested_by", f.RequestedBy)
	switch { // as the index of open tasks has it
	case f.Open != nil && *f.Open:
		w.terms = append(w.terms, "t.status in ('queued', 'pending', 'running', 'cancellation_requested')")
	case f.Open != nil:
		w.terms = append(w.terms, "job_ended(t.status)")
	}
	if len(f.Devices) > 0 {
		w.add("t.id in (select task_id from task_components where device_id = any(?))", f.Devices)
	}
	return w
}

// ListTasks reads one page of tasks, the newest first.
func ListTasks(ctx context.Context, q Querier, f TaskFilter) ([]TaskRow, error) {
	w := f.where()
	w.args = append(w.args, f.Limit)
	rows, err := q.Query(ctx, fmt.Sprintf(`with page as (select * from tasks t where %[1]s order by t.id desc limit $%[2]d)
		select %[3]s, s.name, r.name,
			coalesce((select jsonb_object_agg(c.status, c.n) from (select status, count(*) as n from task_components where task_id = t.id group by 1) c), '{}'),
			coalesce(x.unsent, 0), coalesce(x.trouble, ''), coalesce(x.live, 0),
			coalesce((select min(b.name) from executions e, breakers b where e.task_id = t.id and e.state = 'unsent' and %[4]s), ''),
			(select count(*) from tasks o where t.status = 'queued' and o.rack_id = t.rack_id and o.status = 'queued' and o.id < t.id)
		from page t join sites s on s.id = t.site_id join racks r on r.id = t.rack_id
		left join lateral (select count(*) filter (where state = 'unsent') as unsent, count(*) filter (where state = 'sent') as live,
			max(trouble) filter (where state = 'unsent') as trouble from executions where task_id = t.id and state <> 'closed') x on true
		order by t.id desc`, w.text(), len(w.args), taskColumns, barred), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (TaskRow, error) {
		var t TaskRow
		var err error
		t.Task, err = scanTask(row, &t.Site, &t.Rack, &t.Components, &t.Unsent, &t.Trouble, &t.Live, &t.Barred, &t.Ahead)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return all, nil
}
