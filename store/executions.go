package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

const executionColumns = `e.workflow_id, e.kind, e.holder, e.job_id, e.task_id, e.device_id, coalesce(e.parent, ''), e.workflow, e.site_id, e.want, e.state,
	e.tries, e.trouble, e.due_at, e.dispatch_by, e.sent_at, e.cancel_sent_at, e.missing_since, e.closed_at, e.created_at`

func scanExecution(row pgx.CollectableRow) (fleet.Execution, error) {
	var e fleet.Execution
	var job, task, device *int64
	var dispatch, sent, cancel, missing, closed *time.Time
	err := row.Scan(&e.WorkflowID, &e.Kind, &e.Holder, &job, &task, &device, &e.Parent, &e.Workflow, &e.SiteID, &e.Want, &e.State,
		&e.Tries, &e.Trouble, &e.DueAt, &dispatch, &sent, &cancel, &missing, &closed, &e.CreatedAt)
	if job != nil {
		e.JobID = *job
	}
	if task != nil {
		e.TaskID = *task
	}
	if device != nil {
		e.DeviceID = *device
	}
	e.DispatchBy, e.SentAt, e.CancelSentAt, e.MissingSince, e.ClosedAt = orZero(dispatch), orZero(sent), orZero(cancel), orZero(missing), orZero(closed)
	return e, err
}

func collectExecutions(rows pgx.Rows, err error, doing string) ([]fleet.Execution, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	all, err := pgx.CollectRows(rows, scanExecution)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return all, nil
}

// InsertExecutions stores what is to be sent for a new job or task, until the instant
// that comes after within.
func InsertExecutions(ctx context.Context, tx pgx.Tx, all []fleet.Execution, within time.Duration) error {
	n := len(all)
	ids, kinds, devices := make([]string, n), make([]string, n), make([]*int64, n)
	for i := range all {
		ids[i], kinds[i], devices[i] = all[i].WorkflowID, string(all[i].Kind), idOrNull(all[i].DeviceID)
	}
	if n == 0 {
		return nil
	}
	e := &all[0] // what they have in common
	_, err := tx.Exec(ctx, `insert into executions (workflow_id, kind, device_id, holder, job_id, task_id, workflow, site_id, dispatch_by)
		select u.id, u.kind, u.device, $4, $5, $6, $7, $8, now() + $9::interval from unnest($1::text[], $2::text[], $3::bigint[]) as u(id, kind, device)`,
		ids, kinds, devices, e.Holder, idOrNull(e.JobID), idOrNull(e.TaskID), e.Workflow, e.SiteID, within)
	if err != nil {
		return fmt.Errorf("store the executions of %s: %w", e.Holder, err)
	}
	return nil
}

// InsertChild records a child before its parent starts it; one that is recorded
// already stays as it is. ErrNotFound where the parent is not known.
func InsertChild(ctx context.Context, tx pgx.Tx, parent, child string, deviceID int64) error {
	tag, err := tx.Exec(ctx, `insert into executions (workflow_id, kind, holder, job_id, task_id, device_id, parent, workflow, site_id, state, sent_at)
		select $2, 'child', holder, job_id, task_id, coalesce($3, device_id), workflow_id, workflow, site_id, 'sent', clock_timestamp() from executions where workflow_id = $1
		on conflict (workflow_id) do update set workflow_id = excluded.workflow_id`, parent, child, idOrNull(deviceID))
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("record child %s of %s: %w", child, parent, err)
	}
	return nil
}

// Execution reads one execution; ErrNotFound if there is none.
func Execution(ctx context.Context, q Querier, workflowID string) (fleet.Execution, error) {
	rows, err := q.Query(ctx, "select "+executionColumns+" from executions e where e.workflow_id = $1", workflowID)
	if err != nil {
		return fleet.Execution{}, fmt.Errorf("read execution %s: %w", workflowID, err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanExecution)
	return e, found(err, "read execution "+workflowID)
}

// JobExecutions reads the executions of a job by workflow id, children after
// their parents.
func JobExecutions(ctx context.Context, q Querier, jobID int64) ([]fleet.Execution, error) {
	rows, err := q.Query(ctx, "select "+executionColumns+" from executions e where e.job_id = $1 order by e.parent is not null, e.workflow_id", jobID)
	return collectExecutions(rows, err, fmt.Sprintf("read the executions of job %d", jobID))
}

// LockExecutions reads those executions of a locked job that are not closed and
// holds them until the end of tx: it waits for whoever sends one.
func LockExecutions(ctx context.Context, tx pgx.Tx, jobID int64) ([]fleet.Execution, error) {
	rows, err := tx.Query(ctx, "select "+executionColumns+" from executions e where e.job_id = $1 and e.state <> 'closed' order by e.workflow_id for no key update", jobID)
	return collectExecutions(rows, err, fmt.Sprintf("lock the executions of job %d", jobID))
}

// barred is true of executions e that an open breaker b keeps from starting.
const barred = `b.tripped_at is not null and (b.workflow = '' or b.workflow = e.workflow) and (b.site_id is null or b.site_id = e.site_id)
	and (b.rack_id is null and b.device_class = '' or exists (select from (select device_id from job_devices where job_id = e.job_id union all select device_id from task_components where task_id = e.task_id) u
		join devices d on d.id = u.device_id
		where (e.device_id is null or u.device_id = e.device_id)
			and (b.rack_id is null or d.rack_id = b.rack_id) and (b.device_class = '' or d.device_class = b.device_class)))`

// ClaimUnsent takes the execution that is due longest and holds it until the
// end of tx; nil where there is none. What others hold, what is too late and what
// an open breaker keeps back is passed over.
func ClaimUnsent(ctx context.Context, tx pgx.Tx) (*fleet.Execution, error) {
	return claim(ctx, tx, `e.state = 'unsent' and e.due_at <= clock_timestamp() and (e.dispatch_by is null or e.dispatch_by > clock_timestamp())
		and not exists (select from breakers b where `+barred+")", "claim what is to be started")
}

// ClaimCancel takes an execution that is to be cancelled, as ClaimUnsent does.
// Children hear of it from their parents, unless those ended.
func ClaimCancel(ctx context.Context, tx pgx.Tx) (*fleet.Execution, error) {
	return claim(ctx, tx, `e.state = 'sent' and e.want = 'cancel' and e.cancel_sent_at is null and e.due_at <= clock_timestamp()`, "claim what is to be cancelled")
}

func claim(ctx context.Context, tx pgx.Tx, which, doing string) (*fleet.Execution, error) {
	rows, err := tx.Query(ctx, "select "+executionColumns+" from executions e where "+which+" order by e.due_at limit 1 for no key update of e skip locked")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanExecution)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return &e, nil
}

// MarkSent notes that Temporal has an execution, or its cancel.
func MarkSent(ctx context.Context, q Querier, e *fleet.Execution) error {
	set := "state = 'sent', sent_at = coalesce(sent_at, clock_timestamp())"
	if e.State == fleet.ExecutionSent && e.Want == fleet.WantCancel {
		set = "cancel_sent_at = clock_timestamp()"
	}
	_, err := q.Exec(ctx, "update executions set tries = 0, trouble = '', due_at = clock_timestamp(), "+set+" where workflow_id = $1 and state <> 'closed'", e.WorkflowID)
	if err != nil {
		return fmt.Errorf("note that %s was sent: %w", e.WorkflowID, err)
	}
	return nil
}

// MarkTrouble notes why an execution could not be sent, and when to try again.
func MarkTrouble(ctx context.Context, q Querier, workflowID, why string, after time.Duration) error {
	_, err := q.Exec(ctx, `update executions set tries = tries + 1, trouble = left($2, 1024), due_at = clock_timestamp() + $3::interval where workflow_id = $1`,
		workflowID, text(why), after)
	if err != nil {
		return fmt.Errorf("note why %s was not sent: %w", workflowID, err)
	}
	return nil
}

// MarkStarted notes of locked executions that Temporal has them although whoever
// started them could not say so.
func MarkStarted(ctx context.Context, q Querier, workflowIDs []string) error {
	if len(workflowIDs) == 0 {
		return nil
	}
	_, err := q.Exec(ctx, "update executions set state = 'sent', sent_at = clock_timestamp() where workflow_id = any($1) and state = 'unsent'", workflowIDs)
	if err != nil {
		return fmt.Errorf("note what was started: %w", err)
	}
	return nil
}

// WantCancelled asks for the cancel of what Temporal has of a job. Children hear
// of it from their parents.
func WantCancelled(ctx context.Context, q Querier, jobID int64) error {
	_, err := q.Exec(ctx, `update executions set want = 'cancel', due_at = clock_timestamp(), tries = 0, trouble = ''
		where job_id = $1 and state = 'sent' and kind <> 'child' and want <> 'cancel'`, jobID)
	if err != nil {
		return fmt.Errorf("ask for the cancel of job %d: %w", jobID, err)
	}
	return nil
}

// WantChildCancelled asks for the cancel of one execution whose parent can no
// longer tell it.
func WantChildCancelled(ctx context.Context, q Querier, workflowID string) error {
	_, err := q.Exec(ctx, `update executions set want = 'cancel', due_at = clock_timestamp(), tries = 0, trouble = ''
		where workflow_id = $1 and state = 'sent' and want <> 'cancel'`, workflowID)
	if err != nil {
		return fmt.Errorf("ask for the cancel of %s: %w", workflowID, err)
	}
	return nil
}

// CloseExecutions ends executions; those that are closed stay as they are.
func CloseExecutions(ctx context.Context, q Querier, workflowIDs []string) error {
	_, err := q.Exec(ctx, "update executions set state = 'closed', closed_at = clock_timestamp(), missing_since = null where workflow_id = any($1) and state <> 'closed'", workflowIDs)
	if err != nil {
		return fmt.Errorf("close executions: %w", err)
	}
	return nil
}

// OpenChildren lists the children of an execution, and theirs, that are not
// closed.
func OpenChildren(ctx context.Context, q Querier, workflowID string) ([]fleet.Execution, error) {
	rows, err := q.Query(ctx, `with recursive below as (
			select workflow_id from executions where parent = $1
			union select c.workflow_id from executions c join below b on c.parent = b.workflow_id
		) select `+executionColumns+` from executions e where e.workflow_id in (select workflow_id from below) and e.state <> 'closed' order by e.workflow_id`, workflowID)
	return collectExecutions(rows, err, "read the children of "+workflowID)
}

// SentExecutions reads one page of what Temporal has, in the order of workflow
// ids after the one given.
func SentExecutions(ctx context.Context, q Querier, after string, limit int) ([]fleet.Execution, error) {
	rows, err := q.Query(ctx, "select "+executionColumns+" from executions e where e.state = 'sent' and e.workflow_id > $1 order by e.workflow_id limit $2", after, limit)
	return collectExecutions(rows, err, "read what Temporal has")
}

// MarkMissing notes that Temporal says that it knows nothing of an execution,
// and gives for how long it has said so. MarkMissing of one that is found again
// is MarkFound.
func MarkMissing(ctx context.Context, q Querier, workflowID string) (since time.Duration, err error) {
	err = q.QueryRow(ctx, `update executions set missing_since = coalesce(missing_since, clock_timestamp()) where workflow_id = $1 and state = 'sent'
		returning clock_timestamp() - missing_since`, workflowID).Scan(&since)
	return since, found(err, "note that "+workflowID+" is missing")
}

// MarkFound takes MarkMissing back.
func MarkFound(ctx context.Context, q Querier, workflowID string) error {
	if _, err := q.Exec(ctx, "update executions set missing_since = null where workflow_id = $1 and missing_since is not null", workflowID); err != nil {
		return fmt.Errorf("note that %s is there: %w", workflowID, err)
	}
	return nil
}

// LateJobs lists jobs some of whose executions are unsent although their time
// is over.
func LateJobs(ctx context.Context, q Querier, limit int) ([]int64, error) {
	rows, err := q.Query(ctx, "select distinct job_id from executions where state = 'unsent' and dispatch_by <= clock_timestamp() and job_id is not null limit $1", limit)
	if err != nil {
		return nil, fmt.Errorf("look for what was not sent in time: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for what was not sent in time: %w", err)
	}
	return ids, nil
}
