package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// InsertTaskComponents stores the components of a new task.
func InsertTaskComponents(ctx context.Context, tx pgx.Tx, taskID int64, all []fleet.TaskComponent) error {
	return copyRows(ctx, tx, "task_components", []string{"task_id", "device_id", "component_type"}, len(all), func(i int) ([]any, error) {
		return []any{taskID, all[i].DeviceID, all[i].Type}, nil
	})
}

const componentColumns = `c.task_id, c.device_id, c.component_type, c.status, c.phase, c.failure_code, c.failure_message, c.last_state, c.started_at, c.finished_at`

// TaskComponentRow is a component of a task with its name.
type TaskComponentRow struct {
	fleet.TaskComponent
	Name string
}

// TaskComponents reads the components of a task by type and id.
func TaskComponents(ctx context.Context, q Querier, taskID int64) ([]TaskComponentRow, error) {
	rows, err := q.Query(ctx, "select "+componentColumns+", d.name from task_components c join devices d on d.id = c.device_id where c.task_id = $1 order by c.component_type, c.device_id", taskID)
	if err != nil {
		return nil, fmt.Errorf("read the components of task %d: %w", taskID, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (TaskComponentRow, error) {
		var c TaskComponentRow
		var started, finished *time.Time
		err := row.Scan(&c.TaskID, &c.DeviceID, &c.Type, &c.Status, &c.Phase, &c.FailureCode, &c.FailureMessage, &c.LastState, &started, &finished, &c.Name)
		c.StartedAt, c.FinishedAt = orZero(started), orZero(finished)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the components of task %d: %w", taskID, err)
	}
	return all, nil
}

// PutTaskComponent writes what is known of one component; of one that has ended
// what was seen last, and nothing else. Empty fields leave what was there. It tells
// whether anything was written.
func PutTaskComponent(ctx context.Context, q Querier, c *fleet.TaskComponent) (bool, error) {
	tag, err := q.Exec(ctx, `with now_it as (select case when $3 = '' then status else $3 end as status from task_components where task_id = $1 and device_id = $2 and not job_ended(status))
		update task_components c set status = n.status, phase = case when $4 <> '' then $4 else c.phase end,
			failure_code = case when $5 <> '' then $5 else c.failure_code end, failure_message = case when $6 <> '' then left($6, $8) else c.failure_message end,
			last_state = case when $7 <> '' then left($7, 1024) else c.last_state end,
			started_at = case when n.status <> '' then coalesce(c.started_at, clock_timestamp()) end, finished_at = case when job_ended(n.status) then clock_timestamp() end
		from now_it n where c.task_id = $1 and c.device_id = $2 and not job_ended(c.status)`,
		c.TaskID, c.DeviceID, string(c.Status), text(c.Phase), c.FailureCode, text(c.FailureMessage), text(c.LastState), maxFailureMessage)
	if err == nil && tag.RowsAffected() == 0 && c.LastState != "" {
		tag, err = q.Exec(ctx, "update task_components set last_state = left($3, 1024) where task_id = $1 and device_id = $2 and last_state <> left($3, 1024)", c.TaskID, c.DeviceID, text(c.LastState))
	}
	if err != nil {
		return false, fmt.Errorf("write component %d of task %d: %w", c.DeviceID, c.TaskID, err)
	}
	return tag.RowsAffected() > 0, nil
}

// EndTaskRows ends what of a locked task still runs: components and entries alike.
// What never started stays so.
func EndTaskRows(ctx context.Context, tx pgx.Tx, taskID int64, e Ending) error {
	_, err := tx.Exec(ctx, `update task_entries set status = $2, code = case when code = '' then $3 else code end, message = case when message = '' then left($4, $5) else message end,
			finished_at = clock_timestamp() where task_id = $1 and status = 'running'`, taskID, string(e.Status), e.Code, text(e.Message), maxFailureMessage)
	if err != nil {
		return fmt.Errorf("end the entries of task %d: %w", taskID, err)
	}
	_, err = tx.Exec(ctx, `update task_components set status = $2, failure_code = case when failure_code = '' then $3 else failure_code end,
			failure_message = case when failure_message = '' then left($4, $5) else failure_message end, finished_at = clock_timestamp()
		where task_id = $1 and status = 'running'`, taskID, string(e.Status), e.Code, text(e.Message), maxFailureMessage)
	if err != nil {
		return fmt.Errorf("end the components of task %d: %w", taskID, err)
	}
	return nil
}

// UnworkableComponents lists the components of a task on which nothing may run any
// more.
func UnworkableComponents(ctx context.Context, q Querier, taskID int64) ([]string, error) {
	rows, err := q.Query(ctx, `select d.name from task_components c join devices d on d.id = c.device_id
		where c.task_id = $1 and (d.inventory_only or d.retired_at is not null) order by d.name`, taskID)
	if err != nil {
		return nil, fmt.Errorf("look at the components of task %d again: %w", taskID, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look at the components of task %d again: %w", taskID, err)
	}
	return names, nil
}

// PlanTaskEntries stores the rows of a task's report before anything is done;
// those that are there stay as they are.
func PlanTaskEntries(ctx context.Context, tx pgx.Tx, taskID int64, all []fleet.TaskEntry) error {
	n := len(all)
	stages, indexes, devices := make([]int, n), make([]int, n), make([]*int64, n)
	types, phases, actions, statuses, messages := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i := range all {
		e := &all[i]
		stages[i], indexes[i], devices[i] = e.Stage, e.Index, idOrNull(e.DeviceID)
		types[i], phases[i], actions[i], statuses[i], messages[i] = e.ComponentType, e.Phase, e.Action, string(e.Status), text(e.Message)
	}
	_, err := tx.Exec(ctx, `insert into task_entries (task_id, stage, component_type, phase, action_index, action, device_id, status, message, finished_at)
		select $1, u.stage, u.kind, u.phase, u.index, u.action, u.device, u.status, u.message, case when job_ended(u.status) then now() end
		from unnest($2::int[], $3::text[], $4::text[], $5::int[], $6::text[], $7::bigint[], $8::text[], $9::text[])
			with ordinality as u(stage, kind, phase, index, action, device, status, message, place) order by u.place
		on conflict (task_id, stage, component_type, phase, action_index, device_id) do nothing`,
		taskID, stages, types, phases, indexes, actions, devices, statuses, messages)
	if err != nil {
		return fmt.Errorf("plan the report of task %d: %w", taskID, err)
	}
	return nil
}

// PutTaskEntry writes one row of a report, planned or not; one that has ended
// stays as it is, which is false and no error.
func PutTaskEntry(ctx context.Context, q Querier, e *fleet.TaskEntry) (bool, error) {
	tag, err := q.Exec(ctx, `insert into task_entries (task_id, stage, component_type, phase, action_index, action, device_id, status, attempts, code, message, started_at, finished_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, left($11, $12), case when $8 not in ('', 'skipped') then clock_timestamp() end, case when job_ended($8) then clock_timestamp() end)
		on conflict (task_id, stage, component_type, phase, action_index, device_id) do update set status = excluded.status,
			attempts = greatest(task_entries.attempts, excluded.attempts), code = excluded.code, message = excluded.message,
			started_at = coalesce(task_entries.started_at, excluded.started_at), finished_at = excluded.finished_at
			where not job_ended(task_entries.status) and not (task_entries.status = 'running' and excluded.status = '')`,
		e.TaskID, e.Stage, e.ComponentType, e.Phase, e.Index, e.Action, idOrNull(e.DeviceID), string(e.Status), e.Attempts, e.Code, text(e.Message), maxFailureMessage)
	if err != nil {
		return false, fmt.Errorf("write the report of task %d: %w", e.TaskID, err)
	}
	return tag.RowsAffected() > 0, nil
}

// TaskEntryRow is an entry with the name of its device.
type TaskEntryRow struct {
	fleet.TaskEntry
	Device string // "": of the whole phase
}

// TaskEntries reads the report of a task in the order of its plan.
func TaskEntries(ctx context.Context, q Querier, taskID int64) ([]TaskEntryRow, error) {
	rows, err := q.Query(ctx, `select e.id, e.task_id, e.stage, e.component_type, e.phase, e.action_index, e.action, coalesce(e.device_id, 0), e.status, e.attempts, e.code, e.message,
			e.started_at, e.finished_at, coalesce(d.name, '')
		from task_entries e left join devices d on d.id = e.device_id where e.task_id = $1
		order by e.stage, min(e.id) over (partition by e.stage, e.component_type), case e.phase when 'pre' then 0 when 'main' then 1 else 2 end, e.action_index, e.device_id nulls first`, taskID)
	if err != nil {
		return nil, fmt.Errorf("read the report of task %d: %w", taskID, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (TaskEntryRow, error) {
		var e TaskEntryRow
		var started, finished *time.Time
		err := row.Scan(&e.ID, &e.TaskID, &e.Stage, &e.ComponentType, &e.Phase, &e.Index, &e.Action, &e.DeviceID, &e.Status, &e.Attempts, &e.Code, &e.Message, &started, &finished, &e.Device)
		e.StartedAt, e.FinishedAt = orZero(started), orZero(finished)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the report of task %d: %w", taskID, err)
	}
	return all, nil
}
