package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// LockCaps makes those who count under the same caps and scopes wait for each
// other until the end of tx. They are taken in the order given: give them in one
// that all others keep too.
func LockCaps(ctx context.Context, tx pgx.Tx, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('muster cap ' || key, 7261)) from unnest($1::text[]) key", keys)
	if err != nil {
		return fmt.Errorf("wait for others under %d caps: %w", len(keys), err)
	}
	return nil
}

// Cap is what a blast cap counts.
type Cap struct {
	CapScope
	Works   []string // workflows and operations; empty: every one. A Workflow goes first
	Classes []string // of devices; empty: every one
	Share   bool     // all devices of the scope are counted too
}

// CapCount is what is counted under one cap.
type CapCount struct {
	Held    int      // devices that work holds which takes them from their users
	Holders []string // of these, in order
	All     int      // devices in service; 0 unless the cap is a share
}

// CountDisrupted counts under every cap at once: the locks of disruptive work
// one by one, which the caps keep few, and the devices in service by site, rack
// and class.
func CountDisrupted(ctx context.Context, q Querier, caps []Cap) ([]CapCount, error) {
	if len(caps) == 0 {
		return nil, nil
	}
	var lockSites, shareSites []int64 // null: any
	share := false
	for i := range caps {
		share = share || caps[i].Share
	}
	if !slices.ContainsFunc(caps, func(c Cap) bool { return c.SiteID == 0 }) {
		lockSites = sitesOf(caps)
	}
	shares := slices.DeleteFunc(slices.Clone(caps), func(c Cap) bool { return !c.Share })
	if !slices.ContainsFunc(shares, func(c Cap) bool { return c.SiteID == 0 }) {
		shareSites = sitesOf(shares)
	}
	rows, err := q.Query(ctx, `select l.device_id, l.holder, l.work, d.site_id, coalesce(d.rack_id, 0), d.device_class, 0
			from device_locks l join devices d on d.id = l.device_id where l.disruptive and ($1::bigint[] is null or d.site_id = any($1))
		union all select 0, '', '', d.site_id, coalesce(d.rack_id, 0), d.device_class, count(*)
			from devices d where $2 and d.retired_at is null and not d.inventory_only and ($3::bigint[] is null or d.site_id = any($3)) group by d.site_id, d.rack_id, d.device_class`,
		lockSites, share, shareSites)
	if err != nil {
		return nil, fmt.Errorf("count the devices under caps: %w", err)
	}
	counts := make([]CapCount, len(caps))
	held := make([]map[int64]bool, len(caps))
	var device, site, rack int64
	var holder, work, class string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&device, &holder, &work, &site, &rack, &class, &n}, func() error {
		for i := range caps {
			c := &caps[i]
			if !c.has(site, rack, class) {
				continue
			}
			if device == 0 {
				if c.Share {
					counts[i].All += n
				}
			} else if c.counts(work) {
				if held[i] == nil {
					held[i] = map[int64]bool{}
				}
				held[i][device] = true
				counts[i].Held = len(held[i])
				if !slices.Contains(counts[i].Holders, holder) {
					counts[i].Holders = append(counts[i].Holders, holder)
				}
			}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("count the devices under caps: %w", err)
	}
	for i := range counts {
		slices.Sort(counts[i].Holders)
	}
	return counts, nil
}

func sitesOf(caps []Cap) []int64 {
	sites := []int64{}
	for i := range caps {
		if !slices.Contains(sites, caps[i].SiteID) {
			sites = append(sites, caps[i].SiteID)
		}
	}
	return sites
}

// has reports whether a device lies in the scope.
func (c *Cap) has(site, rack int64, class string) bool {
	return (c.SiteID == 0 || c.SiteID == site) && (c.RackID == 0 || c.RackID == rack) && (c.Class == "" || c.Class == class) &&
		(len(c.Classes) == 0 || slices.Contains(c.Classes, class))
}

// counts reports whether work falls under the cap.
func (c *Cap) counts(work string) bool {
	if c.Workflow != "" {
		return work == c.Workflow
	}
	return len(c.Works) == 0 || slices.Contains(c.Works, work)
}
