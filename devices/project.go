package devices

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

const (
	// projectChunk is how many devices one transaction of a projection reads row
	// by row: short enough that a fresh change never waits for it.
	projectChunk = 500

	// projectEvery is how long a site at most goes without a projection.
	projectEvery = time.Hour
)

// Project verifies every device of a site against its stored masks, at the
// present instant and by the active bundle, and writes those that differ: whose
// rules changed, whose time has come, whose stored status is not what follows.
// Devices that agree in all that their judgement rests on are judged once for
// all of them; row by row it reads the others and those that seem to differ. It
// reads no condition rows but of what it writes. Work that comes in meanwhile
// waits for one chunk at most. It records when the site is next due.
func (s *Service) Project(ctx context.Context, siteID int64, cause fleet.Cause) (Projected, error) {
	start := time.Now()
	due, err := store.ProjectionDue(ctx, s.db, siteID)
	if err != nil {
		return Projected{}, err
	}
	var all Projected
	var suspects []int64
	err = s.judging(ctx, siteID, cause, func(tx pgx.Tx, r *round) (err error) {
		all = Projected{}
		suspects, err = r.survey(ctx, tx, &all)
		return err
	})
	if err != nil {
		return all, fmt.Errorf("project site %d: %w", siteID, err)
	}
	for ids := range slices.Chunk(suspects, projectChunk) {
		var chunk Projected
		var events map[string]int
		err := s.judging(ctx, siteID, cause, func(tx pgx.Tx, r *round) (err error) {
			chunk, events = Projected{}, r.events
			return r.projectRows(ctx, tx, ids, &chunk)
		})
		if err != nil {
			return all, fmt.Errorf("project site %d: %w", siteID, err)
		}
		all.Changed += chunk.Changed
		all.Rows.add(chunk.Rows)
		all.Next = fleet.Earlier(all.Next, chunk.Next)
		s.metrics.wrote(chunk.Rows, events)
	}
	next := fleet.Earlier(all.Next, s.clock().Add(projectEvery))
	if err := store.DeferProjection(ctx, s.db, siteID, due, next); err != nil {
		return all, err
	}
	s.metrics.projection.Observe(time.Since(start).Seconds())
	s.metrics.projected.WithLabelValues("checked").Add(float64(all.Checked))
	s.metrics.projected.WithLabelValues("written").Add(float64(all.Changed))
	return all, nil
}

// survey judges the devices of a site by groups, and gives those to be looked at
// by themselves: whose group differs from what follows, and in which something
// of their own ages. Where a source is so old that the instant of each device's
// own facts counts, or the policy asks for texts, that is all of them.
func (r *round) survey(ctx context.Context, tx pgx.Tx, p *Projected) ([]int64, error) {
	p.Next = r.nextOfSite()
	if r.quotesDevices || len(r.agedSources()) > 0 {
		ids, err := store.DeviceIDs(ctx, tx, r.site.ID)
		p.Checked = len(ids)
		return ids, err
	}
	groups, err := store.Groups(ctx, tx, r.site.ID, r.version, r.now)
	if err != nil {
		return nil, err
	}
	f := facts.Facts{Site: r.siteFacts}
	var codes facts.Codes
	var suspects []int64
	var differ []store.Group
	for i := range groups {
		g := &groups[i]
		p.Checked += g.Devices
		switch {
		case g.Alone != 0:
			suspects = append(suspects, g.Alone)
		case r.differs(&g.Like, &f, &codes, noAge):
			differ = append(differ, *g)
		default:
			p.Next = fleet.Earlier(p.Next, g.Due)
		}
	}
	if len(differ) > 0 {
		like, err := store.LikeThem(ctx, tx, r.site.ID, differ)
		if err != nil {
			return nil, err
		}
		suspects = append(suspects, like...)
	}
	slices.Sort(suspects)
	return slices.Compact(suspects), nil
}

// projectRows verifies devices row by row. It runs again when its transaction
// does, so it changes nothing but what it returns.
func (r *round) projectRows(ctx context.Context, tx pgx.Tx, ids []int64, p *Projected) error {
	devices, err := store.DevicesByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	devices = slices.DeleteFunc(devices, func(d fleet.Device) bool { return !d.RetiredAt.IsZero() })
	if err := r.allRacks(ctx, tx); err != nil {
		return err
	}
	ages, err := r.ages(ctx, tx, devices)
	if err != nil {
		return err
	}
	var differ []int64
	f := facts.Facts{Site: r.siteFacts}
	var codes facts.Codes
	for i := range devices {
		d := &devices[i]
		if r.differs(d, &f, &codes, ages[d.ID]) {
			differ = append(differ, d.ID)
			continue
		}
		p.Next = fleet.Earlier(p.Next, d.DueAt)
		p.Next = fleet.Earlier(p.Next, r.fresh.Device(ages[d.ID]).Next)
	}
	return r.repair(ctx, tx, differ, p)
}

// repair judges the devices that differ, under their locks.
func (r *round) repair(ctx context.Context, tx pgx.Tx, ids []int64, p *Projected) error {
	if len(ids) == 0 {
		return nil
	}
	all, err := lock(ctx, tx, ids)
	if err != nil {
		return err
	}
	all.list = slices.DeleteFunc(all.list, func(s *subject) bool { return s.device.SiteID != r.site.ID }) // it moved meanwhile
	if p.Rows, err = r.settle(ctx, tx, all); err != nil {
		return err
	}
	p.Changed = p.Rows.Devices
	for _, s := range all.list {
		p.Next = fleet.Earlier(p.Next, s.device.DueAt)
		p.Next = fleet.Earlier(p.Next, r.fresh.Device(s.age(r.model)).Next)
	}
	return nil
}

// differs tells whether a device row is not what follows from its masks.
func (r *round) differs(d *fleet.Device, f *facts.Facts, codes *facts.Codes, a *fleet.DeviceAge) bool {
	if d.ObservationVersion != r.version || !d.DueAt.IsZero() && !r.now.Before(d.DueAt) {
		return true
	}
	derived := *d
	c := r.conclude(&derived, f, codes, a, false)
	if c.derived && !c.frozen && (derived.Operational == facts.OperationalStatusFailed) == derived.FailedAt.IsZero() {
		return true
	}
	return !same(d, &derived)
}

// nextOfSite is the next instant at which the age of a source changes what all
// its devices are judged by.
func (r *round) nextOfSite() time.Time {
	next := r.fresh.Device(&fleet.DeviceAge{}).Next
	if bmc, ok := r.fresh.Source("bmc"); ok {
		if limit := bmc.At.Add(r.limits.HealthHold); r.now.Before(limit) {
			next = fleet.Earlier(next, limit)
		}
	}
	return next
}

var noAge = &fleet.DeviceAge{}

// ages gathers what the age of devices' conditions is judged by, reading no
// more than can make a difference: nothing for a device that has no unread and
// no posted types at a site all of whose sources are fresh.
func (r *round) ages(ctx context.Context, q store.Querier, devices []fleet.Device) (map[int64]*fleet.DeviceAge, error) {
	ages := make(map[int64]*fleet.DeviceAge, len(devices))
	var all, unread, posted []int64
	for i := range devices {
		d := &devices[i]
		ages[d.ID] = noAge
		all = append(all, d.ID)
		if d.Unread != 0 {
			unread = append(unread, d.ID)
		}
		if d.Posted != 0 {
			posted = append(posted, d.ID)
		}
	}
	own := func(id int64) *fleet.DeviceAge {
		if ages[id] == noAge {
			ages[id] = &fleet.DeviceAge{}
		}
		return ages[id]
	}
	if sources := r.agedSources(); len(sources) > 0 && len(all) > 0 {
		seen, err := store.SeenOf(ctx, q, all, sources)
		if err != nil {
			return nil, err
		}
		for id, at := range seen {
			own(id).Seen = at
		}
	}
	if len(unread) > 0 {
		writers, err := store.WritersOf(ctx, q, unread)
		if err != nil {
			return nil, err
		}
		for _, w := range writers {
			if w.Writer == inventoryWriter {
				continue
			}
			a := own(w.DeviceID)
			if a.Unread == nil {
				a.Unread = map[string]fleet.Unread{}
			}
			for t, u := range w.Unread {
				a.Unread[t] = u
			}
		}
	}
	if len(posted) > 0 {
		at, err := store.PostedOf(ctx, q, posted)
		if err != nil {
			return nil, err
		}
		for i := range devices {
			if d := &devices[i]; d.Posted != 0 {
				own(d.ID).Posted = r.postedOnly(d, at[d.ID])
			}
		}
	}
	return ages, nil
}

func (r *round) postedOnly(d *fleet.Device, at map[string]time.Time) map[string]time.Time {
	posted := map[string]time.Time{}
	for _, p := range r.policies {
		if d.Posted>>p.Bit&1 == 1 {
			posted[p.Name] = at[p.Name]
		}
	}
	return posted
}

// agedSources lists the sources that are old enough for a device's own reading
// to make a difference.
func (r *round) agedSources() []string {
	sources := r.fresh.StaleSources()
	bmc, has := r.fresh.Source("bmc")
	if has && !bmc.Stale && !r.now.Before(bmc.At.Add(r.limits.HealthHold)) {
		sources = append(sources, "bmc")
	}
	return sources
}

// allRacks reads the names of the site's racks once.
func (r *round) allRacks(ctx context.Context, q store.Querier) error {
	names, err := store.SiteRacks(ctx, q, r.site.ID)
	if err != nil {
		return err
	}
	r.rackNames = names
	return nil
}
