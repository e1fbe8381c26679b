package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// JobsChannel is notified with a job's id at each change of it or its devices.
const JobsChannel = "muster_jobs"

// ExecutionsChannel is notified with a job's id when there is something to send
// to Temporal.
const ExecutionsChannel = "muster_executions"

const jobColumns = `j.id, j.site_id, j.workflow, j.contention, j.disruptive, j.status, j.parameters, j.reason, j.bundle_version, j.requested_by,
	j.created_at, j.updated_at, j.started_at, j.finished_at, j.cancel_requested_at, j.cancel_requested_by, j.cancel_reason`

func scanJob(row pgx.Row, more ...any) (fleet.Job, error) {
	var j fleet.Job
	var started, finished, cancel *time.Time
	into := append([]any{&j.ID, &j.SiteID, &j.Workflow, &j.Contention, &j.Disruptive, &j.Status, &j.Parameters, &j.Reason, &j.BundleVersion, &j.RequestedBy,
		&j.CreatedAt, &j.UpdatedAt, &started, &finished, &cancel, &j.CancelRequestedBy, &j.CancelReason}, more...)
	if err := row.Scan(into...); err != nil {
		return j, err
	}
	j.CreatedAt, j.UpdatedAt = j.CreatedAt.UTC(), j.UpdatedAt.UTC()
	j.StartedAt, j.FinishedAt, j.CancelRequestedAt = orZero(started), orZero(finished), orZero(cancel)
	return j, nil
}

// InsertJob stores a new job and gives it its id and instants.
func InsertJob(ctx context.Context, tx pgx.Tx, j *fleet.Job) error {
	j.Status = fleet.JobPending
	err := tx.QueryRow(ctx, `insert into jobs (site_id, workflow, contention, disruptive, parameters, reason, bundle_version, requested_by)
		values ($1, $2, $3, $4, $5, $6, $7, $8) returning id, created_at, updated_at`,
		j.SiteID, j.Workflow, j.Contention, j.Disruptive, j.Parameters, text(j.Reason), j.BundleVersion, text(j.RequestedBy)).
		Scan(&j.ID, &j.CreatedAt, &j.UpdatedAt)
	if err != nil {
		return fmt.Errorf("store a job of %s: %w", j.Workflow, err)
	}
	return nil
}

// InsertJobDevices stores the devices of a new job.
func InsertJobDevices(ctx context.Context, tx pgx.Tx, jobID int64, devices []fleet.JobDevice) error {
	return copyRows(ctx, tx, "job_devices", []string{"job_id", "device_id", "stamped"}, len(devices), func(i int) ([]any, error) {
		stamped := devices[i].Stamped
		if stamped == nil {
			stamped = map[string]any{}
		}
		return []any{jobID, devices[i].DeviceID, stamped}, nil
	})
}

// LockJob reads a job and holds it until the end of tx. Whoever changes a job,
// its devices or its executions holds it, and takes the devices' rows before.
func LockJob(ctx context.Context, tx pgx.Tx, id int64) (fleet.Job, error) {
	j, err := scanJob(tx.QueryRow(ctx, "select "+jobColumns+" from jobs j where j.id = $1 for no key update", id))
	return j, found(err, fmt.Sprintf("lock job %d", id))
}

// LockJobOf is LockJob of the job that an execution works for; ErrNotFound where
// there is no such execution.
func LockJobOf(ctx context.Context, tx pgx.Tx, workflowID string) (fleet.Job, error) {
	j, err := scanJob(tx.QueryRow(ctx, "select "+jobColumns+" from jobs j join executions e on e.job_id = j.id where e.workflow_id = $1 for no key update of j", workflowID))
	return j, found(err, "lock the job of "+workflowID)
}

// PutJobStatus writes the status of a locked job; one that ends gets its
// instant, one that leaves pending for the first time too.
func PutJobStatus(ctx context.Context, tx pgx.Tx, id int64, status fleet.JobStatus) error {
	_, err := tx.Exec(ctx, `update jobs set status = $2, updated_at = clock_timestamp(),
			started_at = coalesce(started_at, case when exists (select from job_devices where job_id = $1 and started_at is not null) then clock_timestamp() end),
			finished_at = case when job_ended($2) then clock_timestamp() end
		where id = $1 and status <> $2`, id, string(status))
	if err != nil {
		return fmt.Errorf("write the status of job %d: %w", id, err)
	}
	return nil
}

// PutCancelRequest notes on a locked job who wants it cancelled and why.
func PutCancelRequest(ctx context.Context, tx pgx.Tx, id int64, by, reason string) error {
	_, err := tx.Exec(ctx, `update jobs set cancel_requested_at = clock_timestamp(), cancel_requested_by = $2, cancel_reason = $3, updated_at = clock_timestamp()
		where id = $1`, id, text(by), text(reason))
	if err != nil {
		return fmt.Errorf("note the cancel of job %d: %w", id, err)
	}
	return nil
}

// CountJobDevices counts the devices of a job by status.
func CountJobDevices(ctx context.Context, q Querier, id int64) (map[fleet.JobDeviceStatus]int, error) {
	rows, err := q.Query(ctx, "select status, count(*) from job_devices where job_id = $1 group by 1", id)
	if err != nil {
		return nil, fmt.Errorf("count the devices of job %d: %w", id, err)
	}
	counts := map[fleet.JobDeviceStatus]int{}
	var status fleet.JobDeviceStatus
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&status, &n}, func() error { counts[status] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count the devices of job %d: %w", id, err)
	}
	return counts, nil
}

// StartJobDevices makes those of a locked job's waiting devices running that are
// given; nil: all of them.
func StartJobDevices(ctx context.Context, tx pgx.Tx, id int64, devices []int64) error {
	_, err := tx.Exec(ctx, `update job_devices set status = 'running', started_at = clock_timestamp()
		where job_id = $1 and status = '' and ($2::bigint[] is null or device_id = any($2))`, id, devices)
	if err != nil {
		return fmt.Errorf("start the devices of job %d: %w", id, err)
	}
	return nil
}

// Ending is how a device of a job ends.
type Ending struct {
	Status  fleet.JobDeviceStatus
	Code    string
	Message string
}

const maxFailureMessage = 4096 // characters

// EndJobDevices ends those of a locked job's devices that have not ended yet and
// are given; nil: all of them. With waiting those that run go on. It gives the
// ids of those that it ended.
func EndJobDevices(ctx context.Context, tx pgx.Tx, id int64, devices []int64, e Ending, waiting bool) ([]int64, error) {
	rows, err := tx.Query(ctx, `update job_devices set status = $3, failure_code = $4, failure_message = left($5, $6), finished_at = clock_timestamp(),
			progress = case when $3 = 'succeeded' then 100 else progress end
		where job_id = $1 and status in ('', 'running') and (status = '' or not $7) and ($2::bigint[] is null or device_id = any($2)) returning device_id`,
		id, devices, string(e.Status), e.Code, text(e.Message), maxFailureMessage, waiting)
	if err != nil {
		return nil, fmt.Errorf("end devices of job %d: %w", id, err)
	}
	ended, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("end devices of job %d: %w", id, err)
	}
	return ended, nil
}

// RunningJobDevices reads those of a job's devices that run and are given, in
// the order of ids; nil: all of them.
func RunningJobDevices(ctx context.Context, q Querier, id int64, devices []int64) ([]fleet.JobDevice, error) {
	rows, err := q.Query(ctx, "select "+jobDeviceColumns+` from job_devices jd
		where jd.job_id = $1 and jd.status = 'running' and ($2::bigint[] is null or jd.device_id = any($2)) order by jd.device_id`, id, devices)
	if err != nil {
		return nil, fmt.Errorf("read the running devices of job %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.JobDevice, error) { return scanJobDevice(row) })
	if err != nil {
		return nil, fmt.Errorf("read the running devices of job %d: %w", id, err)
	}
	return all, nil
}

// OpenJobDevices counts the devices of a job that have not ended.
func OpenJobDevices(ctx context.Context, q Querier, id int64) (n int, err error) {
	err = q.QueryRow(ctx, "select count(*) from job_devices where job_id = $1 and status in ('', 'running')", id).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the open devices of job %d: %w", id, err)
	}
	return n, nil
}

// UnworkableJobDevices lists those of a job's waiting devices, of the given ones
// (nil: all), on which nothing may run any more.
func UnworkableJobDevices(ctx context.Context, q Querier, id int64, devices []int64) ([]int64, error) {
	rows, err := q.Query(ctx, `select jd.device_id from job_devices jd join devices d on d.id = jd.device_id
		where jd.job_id = $1 and jd.status = '' and ($2::bigint[] is null or jd.device_id = any($2)) and (d.inventory_only or d.retired_at is not null)`, id, devices)
	if err != nil {
		return nil, fmt.Errorf("look at the devices of job %d again: %w", id, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look at the devices of job %d again: %w", id, err)
	}
	return ids, nil
}

// PutProgress writes the phase and the progress of a running device of a job;
// false where it does not run (any more).
func PutProgress(ctx context.Context, q Querier, jobID, deviceID int64, phase string, percent int) (bool, error) {
	tag, err := q.Exec(ctx, `update job_devices set phase = $3, progress = $4 where job_id = $1 and device_id = $2 and status = 'running'`,
		jobID, deviceID, text(phase), min(max(percent, 0), 100))
	if err != nil {
		return false, fmt.Errorf("write the progress of device %d in job %d: %w", deviceID, jobID, err)
	}
	return tag.RowsAffected() > 0, nil
}

// Notify tells whoever listens to a channel about a job, when tx commits.
func Notify(ctx context.Context, q Querier, channel string, jobID int64) error {
	if _, err := q.Exec(ctx, "select pg_notify($1, $2::bigint::text)", channel, jobID); err != nil {
		return fmt.Errorf("tell of job %d: %w", jobID, err)
	}
	return nil
}

// IdempotencyKept is how long the key of a submission is remembered.
const IdempotencyKept = 7 * 24 * time.Hour

// ClaimIdempotencyKey takes a principal's key for the submission of tx, and
// waits for another one that is about to. If the key is another submission's,
// its job and the hash of its body are given.
func ClaimIdempotencyKey(ctx context.Context, tx pgx.Tx, principal, key string, hash []byte) (jobID int64, body []byte, err error) {
	tag, err := tx.Exec(ctx, `insert into idempotency_keys (principal, key, body_hash) values ($1, $2, $3)
		on conflict (principal, key) do update set body_hash = excluded.body_hash, job_id = null, created_at = now()
			where idempotency_keys.created_at < now() - $4::interval`, principal, key, hash, IdempotencyKept)
	if err != nil {
		return 0, nil, fmt.Errorf("take the idempotency key: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return 0, nil, nil
	}
	err = tx.QueryRow(ctx, "select job_id, body_hash from idempotency_keys where principal = $1 and key = $2", principal, key).Scan(&jobID, &body)
	return jobID, body, found(err, "read the idempotency key")
}

// IdempotencyKey reads which job a principal's key stands for; ErrNotFound if
// it is nobody's, or forgotten.
func IdempotencyKey(ctx context.Context, q Querier, principal, key string) (jobID int64, body []byte, err error) {
	err = q.QueryRow(ctx, `select job_id, body_hash from idempotency_keys where principal = $1 and key = $2 and job_id is not null
		and created_at >= now() - $3::interval`, principal, key, IdempotencyKept).Scan(&jobID, &body)
	return jobID, body, found(err, "read the idempotency key")
}

// PutIdempotencyKey says which job a claimed key stands for.
func PutIdempotencyKey(ctx context.Context, tx pgx.Tx, principal, key string, jobID int64) error {
	if _, err := tx.Exec(ctx, "update idempotency_keys set job_id = $3 where principal = $1 and key = $2", principal, key, jobID); err != nil {
		return fmt.Errorf("keep the idempotency key: %w", err)
	}
	return nil
}

// ForgetIdempotencyKeys deletes some of the keys that are too old to be
// remembered, and tells how many.
func ForgetIdempotencyKeys(ctx context.Context, q Querier, most int) (int64, error) {
	var n int64
	for _, table := range []string{"idempotency_keys", "task_keys"} {
		tag, err := q.Exec(ctx, `delete from `+table+` where ctid in
			(select ctid from `+table+` where created_at < now() - $1::interval order by created_at limit $2 for update skip locked)`, IdempotencyKept, most)
		if err != nil {
			return n, fmt.Errorf("forget old idempotency keys: %w", err)
		}
		n += tag.RowsAffected()
	}
	return n, nil
}
