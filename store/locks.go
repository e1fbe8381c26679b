package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/fleet"
)

// ErrLockConflict says that somebody else's lock forbids one of ours. Whoever
// locks the devices' rows first and looks never meets it.
var ErrLockConflict = errors.New("a device is locked by other work")

// LocksOf reads the locks on devices, in the order of devices and holders.
func LocksOf(ctx context.Context, q Querier, devices []int64) ([]fleet.DeviceLock, error) {
	rows, err := q.Query(ctx, `select device_id, holder, mode, work, disruptive, held, since from device_locks
		where device_id = any($1) order by device_id, holder`, devices)
	if err != nil {
		return nil, fmt.Errorf("read locks: %w", err)
	}
	locks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.DeviceLock, error) {
		var l fleet.DeviceLock
		err := row.Scan(&l.DeviceID, &l.Holder, &l.Mode, &l.Work, &l.Disruptive, &l.Held, &l.Since)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read locks: %w", err)
	}
	return locks, nil
}

// PutLocks locks devices, whose rows the caller holds, for one holder.
func PutLocks(ctx context.Context, tx pgx.Tx, l fleet.DeviceLock, devices []int64) error {
	_, err := tx.Exec(ctx, `insert into device_locks (device_id, holder, mode, work, disruptive, held)
		select unnest($1::bigint[]), $2, $3, $4, $5, $6`, devices, l.Holder, l.Mode, l.Work, l.Disruptive, l.Held)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23P01" || pg.ConstraintName == "device_locks_exclusive") {
		return fmt.Errorf("lock %d devices for %s: %w", len(devices), l.Holder, ErrLockConflict)
	}
	if err != nil {
		return fmt.Errorf("lock %d devices for %s: %w", len(devices), l.Holder, err)
	}
	return nil
}

// FreeLocks ends the locks of a job, whose row the caller holds, on those of
// these devices (nil: all of its own) that have ended and that nothing works on
// any more: a device that ended by its own needs its children to have ended, any
// other one its own execution as well.
func FreeLocks(ctx context.Context, tx pgx.Tx, jobID int64, devices []int64) error {
	holder := fleet.JobHolder(jobID)
	_, err := tx.Exec(ctx, `delete from device_locks l using job_devices jd
		where l.holder = $2 and not l.held and ($3::bigint[] is null or l.device_id = any($3)) and jd.job_id = $1 and jd.device_id = l.device_id and job_ended(jd.status)
			and not exists (select from executions e where e.job_id = $1 and e.state <> 'closed' and (e.device_id is null or e.device_id = l.device_id)
				and (e.kind = 'child' or jd.status not in ('succeeded', 'failed')))`, jobID, holder, devices)
	if err != nil {
		return fmt.Errorf("free devices of job %d: %w", jobID, err)
	}
	return nil
}

// FreeHeld ends the locks on what an ended job, whose row the caller holds, held
// by name, when nothing works for it any more.
func FreeHeld(ctx context.Context, tx pgx.Tx, jobID int64) error {
	_, err := tx.Exec(ctx, `delete from device_locks l using jobs j
		where l.holder = $2 and l.held and j.id = $1 and job_ended(j.status)
			and not exists (select from executions e where e.job_id = $1 and e.state <> 'closed')`, jobID, fleet.JobHolder(jobID))
	if err != nil {
		return fmt.Errorf("free what job %d held: %w", jobID, err)
	}
	return nil
}

// CapScope is what a blast cap counts in. Zero fields are any.
type CapScope struct {
	Workflow string
	SiteID   int64
	RackID   int64
	Class    string
}

// LockCap makes those who count under the same cap and scope wait for each
// other until the end of tx. Take several in one order.
func LockCap(ctx context.Context, tx pgx.Tx, key string) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 7261))", "muster cap "+key); err != nil {
		return fmt.Errorf("wait for others under the cap %s: %w", key, err)
	}
	return nil
}

// CountDisrupted counts the devices of a scope that work holds which takes them
// from their users, and all devices of it that are in service at all. Works empty:
// every workflow and operation; classes empty: every class.
func CountDisrupted(ctx context.Context, q Querier, s CapScope, works, classes []string) (held, all int, holders []string, err error) {
	if s.Workflow != "" {
		works = []string{s.Workflow}
	}
	const scope = "($1 = 0 or d.site_id = $1) and ($2 = 0 or d.rack_id = $2) and ($3 = '' or d.device_class = $3) and (coalesce(cardinality($4::text[]), 0) = 0 or d.device_class = any($4))"
	err = q.QueryRow(ctx, `select count(distinct l.device_id), coalesce(array_agg(distinct l.holder), '{}') from device_locks l join devices d on d.id = l.device_id
		where l.disruptive and `+scope+` and (coalesce(cardinality($5::text[]), 0) = 0 or l.work = any($5))`, s.SiteID, s.RackID, s.Class, classes, works).Scan(&held, &holders)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("count the devices under a cap: %w", err)
	}
	err = q.QueryRow(ctx, "select count(*) from devices d where d.retired_at is null and not d.inventory_only and "+scope, s.SiteID, s.RackID, s.Class, classes).Scan(&all)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("count the devices of a cap's scope: %w", err)
	}
	return held, all, holders, nil
}
