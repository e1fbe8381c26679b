package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// database is the part of the run that needs PostgreSQL.
type database struct {
	*world
	plain   *plain
	server  *server
	admin   *pgx.Conn // for what is asked of the server as a whole
	ironic  [][]sources.Record
	devices int // of all sites
	quick   bool
	at      int // of the 1% that changes next
}

const siteCount = 4

// benchDatabase measures sweeps of a whole fleet against plain COPY and upsert
// of the conditions that they give.
func benchDatabase(ctx context.Context, r *report, s *server, count int, quick bool) (err error) {
	d := &database{server: s, devices: count, quick: quick}
	now := time.Now().UTC()
	var listings []map[string]*listing
	for i := range siteCount {
		ironic, slurm := siteOf(i, count/siteCount, now)
		d.ironic = append(d.ironic, ironic)
		listings = append(listings, map[string]*listing{"ironic": inMemory(ironic), "slurm": inMemory(slurm)})
	}
	url, err := s.pg.CreateDatabase(ctx, "muster")
	if err != nil {
		return err
	}
	if d.world, err = newWorld(ctx, url, listings); err != nil {
		return err
	}
	defer d.stop()
	if url, err = s.pg.CreateDatabase(ctx, "plain"); err != nil {
		return err
	}
	if d.plain, err = newPlain(ctx, url); err != nil {
		return err
	}
	defer d.plain.conn.Close(ctx)
	if d.admin, err = pgx.Connect(ctx, s.pg.URL()); err != nil {
		return err
	}
	defer d.admin.Close(ctx)
	for _, step := range []func(context.Context, *report) error{d.first, d.unchanged, d.changed, d.latency} {
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// pair is one site's work by both ways.
type pair struct{ ours, theirs time.Duration }

// pairs turns a measured piece of work into a table.
type pairs struct {
	list           []pair
	rows           int // condition rows that the plain way handled
	oursWAL, wal   int64
	devices, stats string
}

func (p *pairs) ratios() (ratios []float64) {
	for _, one := range p.list {
		ratios = append(ratios, one.theirs.Seconds()/one.ours.Seconds())
	}
	return ratios
}

// measure times both ways for one site, muster first: the plain way gets the
// rows that muster wrote.
func (d *database) measure(ctx context.Context, p *pairs, site int, steps ...[]string) error {
	from, err := d.wal(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	for _, names := range steps {
		if err := d.sweep(ctx, d.sites[site:site+1], names...); err != nil {
			return err
		}
	}
	ours := time.Since(start)
	to, err := d.wal(ctx)
	if err != nil {
		return err
	}
	p.oursWAL += to - from
	rows, err := d.rowsOf(ctx, d.sites[site].ID)
	if err != nil {
		return err
	}
	if from, err = d.wal(ctx); err != nil {
		return err
	}
	theirs, err := d.plain.upsert(ctx, rows)
	if err != nil {
		return err
	}
	if to, err = d.wal(ctx); err != nil {
		return err
	}
	p.wal += to - from
	p.rows += len(rows)
	p.list = append(p.list, pair{ours, theirs})
	return nil
}

// wal is how far the server has written its log, in bytes.
func (d *database) wal(ctx context.Context) (position int64, err error) {
	err = d.admin.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&position)
	if err != nil {
		return 0, fmt.Errorf("read the position of the log: %w", err)
	}
	return position, nil
}

func (p *pairs) table(r *report, title, note string) *table {
	t := r.table(title, "%s", note)
	t.header = []string{"way", "median a site", "middle half", "condition rows/s", "WAL"}
	var ours, theirs []float64
	for _, one := range p.list {
		ours, theirs = append(ours, one.ours.Seconds()), append(theirs, one.theirs.Seconds())
	}
	rows := float64(p.rows) / float64(len(p.list))
	for _, way := range []struct {
		name  string
		times []float64
		wal   int64
	}{{"muster", ours, p.oursWAL}, {"plain COPY and upsert", theirs, p.wal}} {
		t.row(way.name, seconds(quantile(way.times, 0.5)), seconds(quantile(way.times, 0.25))+" – "+seconds(quantile(way.times, 0.75)),
			thousands(int64(rows/quantile(way.times, 0.5))), megabytes(way.wal))
	}
	return t
}

func seconds(s float64) string   { return fmt.Sprintf("%.2f s", s) }
func megabytes(b int64) string   { return fmt.Sprintf("%.2f MB", float64(b)/1e6) }
func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// first brings every site in: births, facts, conditions, history.
func (d *database) first(ctx context.Context, r *report) error {
	p := &pairs{}
	for site := range d.sites {
		if err := d.measure(ctx, p, site, []string{"ironic"}, []string{"slurm"}); err != nil {
			return err
		}
	}
	rows, _, _ := d.meter.taken()
	if p.rows != d.devices*10 {
		return fmt.Errorf("%d devices have %d conditions, not ten each", d.devices, p.rows)
	}
	t := p.table(r, "First snapshot", fmt.Sprintf("%s devices at %d sites, one site after the other: Ironic's listing, SLURM's listing, projections; against the same %s condition rows",
		thousands(int64(d.devices)), len(d.sites), thousands(int64(p.rows))))
	t.target("muster / plain, in condition rows a second", quantile(p.ratios(), 0.5), atLeast, 0.8)
	t.remark("muster writes %s device rows, %s of facts, %s of conditions, %s of writers and %s of history meanwhile, the plain way %s of conditions.",
		thousands(int64(rows.Devices)), thousands(int64(rows.Facts)), thousands(int64(rows.Conditions)), thousands(int64(rows.Writers)), thousands(int64(rows.Events)), thousands(int64(p.rows)))
	return nil
}

// settleDown leaves both databases as they are found after a while of running.
func (d *database) settleDown(ctx context.Context) error {
	for _, run := range []func(sql string) error{
		func(sql string) error { _, err := d.plain.conn.Exec(ctx, sql); return err },
		func(sql string) error {
			// Longer than the pool's statements may take.
			conn, err := pgx.Connect(ctx, d.db.Config().ConnString())
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			_, err = conn.Exec(ctx, sql)
			return err
		},
	} {
		if err := run("vacuum (analyze)"); err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
	}
	if _, err := d.admin.Exec(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func (d *database) passes() int {
	if d.quick {
		return 1
	}
	return 2
}

// unchanged sweeps every site again: each source says what it said before.
func (d *database) unchanged(ctx context.Context, r *report) error {
	if err := d.settleDown(ctx); err != nil {
		return err
	}
	before, err := d.versions(ctx)
	if err != nil {
		return err
	}
	d.meter.taken()
	p := &pairs{}
	for range d.passes() {
		for site := range d.sites {
			if err := d.measure(ctx, p, site, []string{"ironic", "slurm"}); err != nil {
				return err
			}
		}
	}
	rows, changed, _ := d.meter.taken()
	after, err := d.versions(ctx)
	if err != nil {
		return err
	}
	if before != after || rows.Conditions != 0 || changed != 0 {
		return fmt.Errorf("a resync with nothing changed wrote %+v and found %d changes", rows, changed)
	}
	t := p.table(r, "Resync, nothing changed", fmt.Sprintf("both listings of a site at once, then its projections; %d times each of %d sites, after a vacuum and a checkpoint", d.passes(), len(d.sites)))
	t.target("plain / muster, time", quantile(p.ratios(), 0.5), atLeast, 10)
	t.target("WAL of plain's, %", 100*float64(p.oursWAL)/float64(p.wal), atMost, 1)
	t.target("condition rows written", float64(rows.Conditions), atMost, 0)
	t.remark("That no condition row was written was seen by the versions of all %s rows. muster wrote %d device rows, %d of facts, %d of history.",
		thousands(int64(d.devices*10)), rows.Devices, rows.Facts, rows.Events)
	return nil
}

// versions sums up which version of each condition row is stored where.
func (d *database) versions(ctx context.Context) (sum string, err error) {
	err = d.db.QueryRow(ctx, "select count(*) || ' ' || sum(hashtext(xmin::text || ctid::text)::bigint) from conditions").Scan(&sum)
	if err != nil {
		return "", fmt.Errorf("sum up the versions of conditions: %w", err)
	}
	return sum, nil
}

const percent = 100

// changed sweeps every site with one node in a hundred put in maintenance or
// taken out of it.
func (d *database) changed(ctx context.Context, r *report) error {
	p := &pairs{}
	d.meter.taken()
	toggled := 0
	for range d.passes() {
		for site := range d.sites {
			toggled += toggle(d.ironic[site], d.at, percent)
			if err := d.measure(ctx, p, site, []string{"ironic", "slurm"}); err != nil {
				return err
			}
		}
		d.at++
	}
	rows, changed, _ := d.meter.taken()
	if changed != toggled {
		return fmt.Errorf("%d nodes changed, muster saw %d", toggled, changed)
	}
	t := p.table(r, "Resync, 1% changed", "as above, after one node in a hundred went into maintenance or came out of it")
	t.target("plain / muster, time", quantile(p.ratios(), 0.5), atLeast, 5)
	t.remark("%s nodes changed; muster wrote %s device rows, %s of facts, %s of conditions, %s of history.", thousands(int64(changed)),
		thousands(int64(rows.Devices)), thousands(int64(rows.Facts)), thousands(int64(rows.Conditions)), thousands(int64(rows.Events)))
	return nil
}

const singleEvery = 20 * time.Millisecond

// latency measures what a change waits for while every site is swept at once
// and one node in a hundred has changed: of the readings that come with a
// page, from the instant of the page; of single readings, from their call.
func (d *database) latency(ctx context.Context, r *report) error {
	for site := range d.sites {
		toggle(d.ironic[site], d.at, percent)
	}
	d.at++
	d.meter.taken()
	swept := make(chan error, 1)
	start := time.Now()
	go func() { swept <- d.sweep(ctx, d.sites, "ironic", "slurm") }()
	single, err := d.singles(ctx, swept)
	if err != nil {
		return err
	}
	took := time.Since(start)
	_, _, paged := d.meter.taken()
	t := r.table("A change seen → status stored, during a full resync", "all %d sites with %s devices swept at once in %s, one node in a hundred changed; meanwhile a node read on its own every %v",
		len(d.sites), thousands(int64(d.devices)), seconds(took.Seconds()), singleEvery)
	t.header = []string{"change comes", "samples", "p50", "p99", "longest"}
	for _, way := range []struct {
		name  string
		times []time.Duration
	}{{"with a node read on its own", single}, {"with a page of the listing", paged}} {
		values := make([]float64, len(way.times))
		for i, d := range way.times {
			values[i] = ms(d)
		}
		t.row(way.name, thousands(int64(len(values))), msText(quantile(values, 0.5)), msText(quantile(values, 0.99)), msText(quantile(values, 1)))
		t.target(way.name+", p99 in ms", quantile(values, 0.99), atMost, 1000)
	}
	t.remark("A page's changes count from the instant before the page was asked for, so its wait for the page before it is in.")
	return nil
}

func msText(v float64) string { return fmt.Sprintf("%.0f ms", v) }

// singles applies changes of single nodes until the sweep has ended.
func (d *database) singles(ctx context.Context, swept <-chan error) (times []time.Duration, err error) {
	rng := rand.New(rand.NewPCG(seed, 4))
	tick := time.NewTicker(singleEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-swept:
			return times, err
		case <-tick.C:
		}
		site := rng.IntN(len(d.sites))
		one := d.ironic[site][rng.IntN(len(d.ironic[site]))]
		changed := []sources.Record{one}
		toggle(changed, 0, 1)
		start := time.Now()
		rd := fleet.Reading{Ref: one.Ref, Name: one.Name, Serial: one.Serial, At: d.db.Now()}
		rd.Facts.Ironic = *changed[0].Ironic
		applied, err := d.meter.Service.Apply(ctx, fleet.Batch{SiteID: d.sites[site].ID, Source: "ironic", Readings: []fleet.Reading{rd}})
		if err != nil {
			return nil, fmt.Errorf("apply a single reading: %w", err)
		}
		if applied.Changed == 1 {
			times = append(times, time.Since(start))
		}
	}
}
