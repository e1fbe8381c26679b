package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

const breakerColumns = `b.name, b.policy, b.workflow, b.site_id, b.rack_id, b.device_class, b.tripped_at, b.reason, b.failed, b.runs, b.reset_at, b.reset_by, b.reset_reason`

func scanBreaker(row pgx.CollectableRow) (fleet.Breaker, error) {
	var b fleet.Breaker
	var site, rack *int64
	var tripped, reset *time.Time
	err := row.Scan(&b.Name, &b.Policy, &b.Workflow, &site, &rack, &b.DeviceClass, &tripped, &b.Reason, &b.Failed, &b.Runs, &reset, &b.ResetBy, &b.ResetReason)
	if site != nil {
		b.SiteID = *site
	}
	if rack != nil {
		b.RackID = *rack
	}
	b.TrippedAt, b.ResetAt = orZero(tripped), orZero(reset)
	return b, err
}

// Breakers lists every breaker that ever tripped, by name.
func Breakers(ctx context.Context, q Querier) ([]fleet.Breaker, error) {
	return breakers(ctx, q, "true")
}

// OpenBreakers lists the breakers that are open, by name.
func OpenBreakers(ctx context.Context, q Querier) ([]fleet.Breaker, error) {
	return breakers(ctx, q, "b.tripped_at is not null")
}

func breakers(ctx context.Context, q Querier, which string) ([]fleet.Breaker, error) {
	rows, err := q.Query(ctx, "select "+breakerColumns+" from breakers b where "+which+" order by b.name")
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanBreaker)
	if err != nil {
		return nil, fmt.Errorf("read breakers: %w", err)
	}
	return all, nil
}

// TripBreaker opens a breaker; false where it is open already.
func TripBreaker(ctx context.Context, q Querier, b *fleet.Breaker) (bool, error) {
	tag, err := q.Exec(ctx, `insert into breakers (name, policy, workflow, site_id, rack_id, device_class, tripped_at, reason, failed, runs)
		values ($1, $2, $3, $4, $5, $6, clock_timestamp(), $7, $8, $9)
		on conflict (name) do update set tripped_at = excluded.tripped_at, reason = excluded.reason, failed = excluded.failed, runs = excluded.runs
			where breakers.tripped_at is null`,
		b.Name, b.Policy, b.Workflow, idOrNull(b.SiteID), idOrNull(b.RackID), b.DeviceClass, text(b.Reason), b.Failed, b.Runs)
	if err != nil {
		return false, fmt.Errorf("trip breaker %s: %w", b.Name, err)
	}
	return tag.RowsAffected() > 0, nil
}

// ResetBreaker closes a breaker: what ended before no longer counts. ErrNotFound
// for one that never tripped; false where it is closed already.
func ResetBreaker(ctx context.Context, tx pgx.Tx, name, by, reason string) (bool, error) {
	var open bool
	err := tx.QueryRow(ctx, "select tripped_at is not null from breakers where name = $1 for no key update", name).Scan(&open)
	if err != nil {
		return false, found(err, "read breaker "+name)
	}
	if !open {
		return false, nil
	}
	if _, err := tx.Exec(ctx, "update breakers set tripped_at = null, reset_at = clock_timestamp(), reset_by = $2, reset_reason = $3 where name = $1",
		name, text(by), text(reason)); err != nil {
		return false, fmt.Errorf("reset breaker %s: %w", name, err)
	}
	return true, nil
}

// CountRuns counts the devices of jobs and the components of tasks that ended within the window in a scope,
// and of these the ones that failed or timed out, since the breaker of that name
// was reset last. Cancelled work says nothing. Works empty: every workflow.
func CountRuns(ctx context.Context, q Querier, breaker string, s CapScope, works []string, window time.Duration) (failed, runs int, err error) {
	if s.Workflow != "" {
		works = []string{s.Workflow}
	}
	err = q.QueryRow(ctx, `with since as (select greatest(clock_timestamp() - $1::interval, (select reset_at from breakers where name = $2)) as at),
		runs as (
			select jd.status, jd.device_id, j.site_id, j.workflow as work from since, job_devices jd join jobs j on j.id = jd.job_id where jd.finished_at > since.at
			union all select c.status, c.device_id, t.site_id, 'operation_' || t.operation from since, task_components c join tasks t on t.id = c.task_id where c.finished_at > since.at
		)
		select count(*) filter (where r.status in ('failed', 'timed_out')), count(*) from runs r
		where r.status in ('succeeded', 'failed', 'timed_out') and ($3 = 0 or r.site_id = $3) and (coalesce(cardinality($4::text[]), 0) = 0 or r.work = any($4))
			and ($5 = 0 and $6 = '' or exists (select from devices d where d.id = r.device_id and ($5 = 0 or d.rack_id = $5) and ($6 = '' or d.device_class = $6)))`,
		window, breaker, s.SiteID, works, s.RackID, s.Class).Scan(&failed, &runs)
	if err != nil {
		return 0, 0, fmt.Errorf("count runs under breaker %s: %w", breaker, err)
	}
	return failed, runs, nil
}
