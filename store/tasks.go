package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// TasksChannel is notified with a task's id at each change of it.
const TasksChannel = "muster_tasks"

const taskColumns = `t.id, t.site_id, t.rack_id, t.operation_type, t.operation, t.rule, t.rule_source, t.rule_id, t.rule_revision, t.identity, t.disruptive, t.status,
	t.conflict, t.queue_until, t.reason, t.override_reason, t.firmware, t.excluded, t.worst_ms, t.bundle_version, t.requested_by, t.failure_code, t.failure_message,
	t.created_at, t.updated_at, t.admitted_at, t.started_at, t.finished_at, t.over_budget_at, t.cancel_requested_at, t.cancel_requested_by, t.cancel_reason`

func scanTask(row pgx.Row, more ...any) (fleet.Task, error) {
	var t fleet.Task
	var rule *int64
	var worst int64
	var queue, admitted, started, finished, over, cancel *time.Time
	err := row.Scan(append([]any{&t.ID, &t.SiteID, &t.RackID, &t.OperationType, &t.Operation, &t.Rule, &t.RuleSource, &rule, &t.RuleRevision, &t.Identity, &t.Disruptive, &t.Status,
		&t.Conflict, &queue, &t.Reason, &t.OverrideReason, &t.Firmware, &t.Excluded, &worst, &t.BundleVersion, &t.RequestedBy, &t.FailureCode, &t.FailureMessage,
		&t.CreatedAt, &t.UpdatedAt, &admitted, &started, &finished, &over, &cancel, &t.CancelRequestedBy, &t.CancelReason}, more...)...)
	if rule != nil {
		t.RuleID = *rule
	}
	t.Worst = time.Duration(worst) * time.Millisecond
	t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
	t.QueueUntil, t.AdmittedAt, t.StartedAt, t.FinishedAt, t.OverBudgetAt, t.CancelRequestedAt = orZero(queue), orZero(admitted), orZero(started), orZero(finished), orZero(over), orZero(cancel)
	return t, err
}

// InsertTask stores a new task, queued for a while or pending, and gives it its id
// and instants.
func InsertTask(ctx context.Context, tx pgx.Tx, t *fleet.Task, queueFor time.Duration) error {
	var queue *time.Time
	if t.Excluded == nil {
		t.Excluded = []int64{}
	}
	err := tx.QueryRow(ctx, `insert into tasks (site_id, rack_id, operation_type, operation, rule, rule_source, rule_id, rule_revision, identity, disruptive, status, conflict,
			queue_until, reason, override_reason, firmware, excluded, worst_ms, bundle_version, requested_by, admitted_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, case when $11 = 'queued' then now() + $13::interval end, $14, $15, $16, $17, $18, $19, $20,
			case when $11 = 'pending' then now() end)
		returning id, created_at, updated_at, queue_until`,
		t.SiteID, t.RackID, t.OperationType, t.Operation, t.Rule, t.RuleSource, idOrNull(t.RuleID), t.RuleRevision, t.Identity, t.Disruptive, string(t.Status), t.Conflict,
		queueFor, text(t.Reason), text(t.OverrideReason), t.Firmware, t.Excluded, t.Worst.Milliseconds(), t.BundleVersion, text(t.RequestedBy)).
		Scan(&t.ID, &t.CreatedAt, &t.UpdatedAt, &queue)
	t.QueueUntil = orZero(queue)
	if err != nil {
		return fmt.Errorf("store a task of %s: %w", t.Operation, err)
	}
	return nil
}

// LockTask reads a task and holds it until the end of tx. Whoever changes a task
// or its rows holds it, and takes the rack's row and the devices' before.
func LockTask(ctx context.Context, tx pgx.Tx, id int64) (fleet.Task, error) {
	t, err := scanTask(tx.QueryRow(ctx, "select "+taskColumns+" from tasks t where t.id = $1 for no key update", id))
	return t, found(err, fmt.Sprintf("lock task %d", id))
}

// LockTaskOf is LockTask of the task that an execution works for; ErrNotFound
// where there is no such execution.
func LockTaskOf(ctx context.Context, tx pgx.Tx, workflowID string) (fleet.Task, error) {
	t, err := scanTask(tx.QueryRow(ctx, "select "+taskColumns+" from tasks t join executions e on e.task_id = t.id where e.workflow_id = $1 for no key update of t", workflowID))
	return t, found(err, "lock the task of "+workflowID)
}

// OpenTaskLike finds a task of the rack that has not ended and asks for the same;
// ErrNotFound where there is none.
func OpenTaskLike(ctx context.Context, q Querier, rack int64, identity []byte) (fleet.Task, error) {
	t, err := scanTask(q.QueryRow(ctx, "select "+taskColumns+` from tasks t where t.rack_id = $1 and t.identity = $2
		and t.status in ('queued', 'pending', 'running') order by t.id limit 1`, rack, identity))
	return t, found(err, "look for the same task")
}

// QueuedTasks lists the waiting tasks of racks (nil: of every rack) in the order
// in which each rack has them.
func QueuedTasks(ctx context.Context, q Querier, racks []int64) ([]fleet.Task, error) {
	rows, err := q.Query(ctx, "select "+taskColumns+" from tasks t where t.status = 'queued' and ($1::bigint[] is null or t.rack_id = any($1)) order by t.rack_id, t.id", racks)
	if err != nil {
		return nil, fmt.Errorf("read the queue of tasks: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Task, error) { return scanTask(row) })
	if err != nil {
		return nil, fmt.Errorf("read the queue of tasks: %w", err)
	}
	return all, nil
}

// TaskChange is what is written of a locked task. Empty fields stay as they are.
type TaskChange struct {
	Status         fleet.TaskStatus
	FailureCode    string
	FailureMessage string
	BundleVersion  string // of a promotion
}

// PutTask writes the status of a locked task and the instants that follow.
func PutTask(ctx context.Context, tx pgx.Tx, id int64, c TaskChange) error {
	_, err := tx.Exec(ctx, `update tasks set status = $2, updated_at = clock_timestamp(),
			failure_code = case when $3 <> '' then $3 else failure_code end, failure_message = case when $4 <> '' then left($4, $6) else failure_message end,
			bundle_version = case when $5 <> '' then $5 else bundle_version end,
			admitted_at = case when $2 = 'pending' then coalesce(admitted_at, clock_timestamp()) else admitted_at end,
			started_at = case when $2 = 'running' then coalesce(started_at, clock_timestamp()) else started_at end,
			finished_at = case when job_ended($2) then clock_timestamp() end
		where id = $1 and status <> $2`, id, string(c.Status), c.FailureCode, text(c.FailureMessage), c.BundleVersion, maxFailureMessage)
	if err != nil {
		return fmt.Errorf("write the status of task %d: %w", id, err)
	}
	return nil
}

// PutTaskCancel notes on a locked task who wants it cancelled and why.
func PutTaskCancel(ctx context.Context, tx pgx.Tx, id int64, by, reason string) error {
	_, err := tx.Exec(ctx, `update tasks set cancel_requested_at = clock_timestamp(), cancel_requested_by = $2, cancel_reason = $3, updated_at = clock_timestamp()
		where id = $1`, id, text(by), text(reason))
	if err != nil {
		return fmt.Errorf("note the cancel of task %d: %w", id, err)
	}
	return nil
}

// PutOverBudget notes that a running task takes longer than it should at most;
// false where that is noted already, or it does not run.
func PutOverBudget(ctx context.Context, q Querier, id int64) (bool, error) {
	tag, err := q.Exec(ctx, `update tasks set over_budget_at = clock_timestamp(), updated_at = clock_timestamp()
		where id = $1 and over_budget_at is null and status in ('running', 'cancellation_requested')`, id)
	if err != nil {
		return false, fmt.Errorf("note that task %d is over its budget: %w", id, err)
	}
	return tag.RowsAffected() > 0, nil
}

// WantTaskCancelled asks for the cancel of what Temporal has of a task.
func WantTaskCancelled(ctx context.Context, q Querier, id int64) error {
	_, err := q.Exec(ctx, `update executions set want = 'cancel', due_at = clock_timestamp(), tries = 0, trouble = ''
		where task_id = $1 and state = 'sent' and kind = 'task' and want <> 'cancel'`, id)
	if err != nil {
		return fmt.Errorf("ask for the cancel of task %d: %w", id, err)
	}
	return nil
}

// LockTaskExecutions reads those executions of a locked task that are not closed
// and holds them until the end of tx: it waits for whoever sends one.
func LockTaskExecutions(ctx context.Context, tx pgx.Tx, id int64) ([]fleet.Execution, error) {
	rows, err := tx.Query(ctx, "select "+executionColumns+" from executions e where e.task_id = $1 and e.state <> 'closed' order by e.workflow_id for no key update", id)
	return collectExecutions(rows, err, fmt.Sprintf("lock the executions of task %d", id))
}

// FreeTask ends the locks of a task that has ended, whose row the caller holds,
// when nothing works for it any more; true where it did.
func FreeTask(ctx context.Context, tx pgx.Tx, id int64) (bool, error) {
	tag, err := tx.Exec(ctx, `delete from device_locks l using tasks t where l.holder = $2 and t.id = $1 and job_ended(t.status)
		and not exists (select from executions e where e.task_id = $1 and e.state <> 'closed')`, id, fleet.TaskHolder(id))
	if err != nil {
		return false, fmt.Errorf("free the devices of task %d: %w", id, err)
	}
	return tag.RowsAffected() > 0, nil
}

// LateTasks lists tasks whose execution is unsent although its time is over.
func LateTasks(ctx context.Context, q Querier, limit int) ([]int64, error) {
	return taskIDs(ctx, q, "select distinct task_id from executions where state = 'unsent' and dispatch_by <= clock_timestamp() and task_id is not null limit $1", limit)
}

// LateQueued lists tasks that have waited long enough.
func LateQueued(ctx context.Context, q Querier, limit int) ([]int64, error) {
	return taskIDs(ctx, q, "select id from tasks where status = 'queued' and queue_until <= clock_timestamp() order by id limit $1", limit)
}

func taskIDs(ctx context.Context, q Querier, sql string, limit int) ([]int64, error) {
	rows, err := q.Query(ctx, sql, limit)
	if err != nil {
		return nil, fmt.Errorf("look for what is too late: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for what is too late: %w", err)
	}
	return ids, nil
}

// ClaimTaskKey takes a principal's key for a request of operations, and waits for
// another one that is about to. Where it is another request's, its tasks and the
// hash of its body are given.
func ClaimTaskKey(ctx context.Context, tx pgx.Tx, principal, key string, hash []byte) (tasks []int64, body []byte, err error) {
	tag, err := tx.Exec(ctx, `insert into task_keys (principal, key, body_hash) values ($1, $2, $3)
		on conflict (principal, key) do update set body_hash = excluded.body_hash, task_ids = '{}', created_at = now()
			where task_keys.created_at < now() - $4::interval`, principal, key, hash, IdempotencyKept)
	if err != nil {
		return nil, nil, fmt.Errorf("take the idempotency key: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil, nil, nil
	}
	return TaskKey(ctx, tx, principal, key)
}

// TaskKey reads which tasks a principal's key stands for; ErrNotFound if it is
// nobody's, or forgotten.
func TaskKey(ctx context.Context, q Querier, principal, key string) (tasks []int64, body []byte, err error) {
	err = q.QueryRow(ctx, "select task_ids, body_hash from task_keys where principal = $1 and key = $2 and created_at >= now() - $3::interval", principal, key, IdempotencyKept).Scan(&tasks, &body)
	return tasks, body, found(err, "read the idempotency key")
}

// PutTaskKey says which tasks a claimed key stands for.
func PutTaskKey(ctx context.Context, tx pgx.Tx, principal, key string, tasks []int64) error {
	if _, err := tx.Exec(ctx, "update task_keys set task_ids = $3 where principal = $1 and key = $2", principal, key, tasks); err != nil {
		return fmt.Errorf("keep the idempotency key: %w", err)
	}
	return nil
}
