package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// world is one replica of muster on a database of its own: policy, devices,
// reconciler, and sites whose sources are in memory. Nothing is swept but when
// asked for.
type world struct {
	db      *store.DB
	meter   *meter
	sites   []fleet.Site
	listing map[string]*listing // by site and source
	stop    func()
}

const (
	pollEvery   = 5 * time.Millisecond
	sweepsLimit = 10 * time.Minute
)

// everyHour makes the paces of the policy so slow that no sweep and no
// staleness comes in by itself while something is measured.
func everyHour(text string) string {
	text = regexp.MustCompile(`health_hold:( *)"[0-9]+[sm]"`).ReplaceAllString(text, `health_hold:$1"3h"`)
	return regexp.MustCompile(`interval:( *)"[0-9]+[sm]"`).ReplaceAllString(text, `interval:$1"1h"`)
}

// newWorld makes a replica with a site for each list of listings.
func newWorld(ctx context.Context, url string, listings []map[string]*listing) (w *world, err error) {
	if _, err := migrations.Up(ctx, url); err != nil {
		return nil, err
	}
	w = &world{listing: map[string]*listing{}}
	if w.db, err = store.Open(ctx, url, store.Options{}); err != nil {
		return nil, err
	}
	db := w.db
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	policy, err := devices.OpenPolicy(w.db, muster.Bundle(), w.db.Now, log)
	if err != nil {
		return nil, err
	}
	tree, err := edited(map[string]func(string) string{"policies/limits/limits.cue": everyHour})
	if err != nil {
		return nil, err
	}
	if _, _, err := policy.Activate(ctx, tree, "bench"); err != nil {
		return nil, err
	}
	for i, of := range listings {
		change, err := devices.ApplySite(ctx, w.db, siteSpec(i), devices.SiteOptions{Actor: "bench"})
		if err != nil {
			return nil, err
		}
		w.sites = append(w.sites, change.Site)
		for source, l := range of {
			l.clock = w.db.Now
			w.listing[change.Site.Spec.Name+" "+source] = l
		}
	}
	if _, err := w.db.Exec(ctx, "update sweeps set due_at = now() + interval '1 year'"); err != nil {
		return nil, err
	}
	w.meter = &meter{Service: devices.New(w.db, policy, w.db.Now, log)}
	return w, w.start(ctx, policy, log)
}

func siteSpec(i int) fleet.SiteSpec {
	return fleet.SiteSpec{
		Name: fmt.Sprintf("bench-%d", i+1), EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic,
		TraitBased: true, CustomerReadyTrait: readyTrait,
		Lessees: fleet.Lessees{Enrol: enrolProject, Slurm: slurmProject, Maintenance: maintenanceProject},
		Sources: fleet.Sources{Recorded: map[string]string{"ironic": "in memory", "slurm": "in memory"}},
		Imaging: &fleet.Imaging{Direct: &fleet.DirectImaging{Image: "in memory"}},
	}
}

// start runs the replica's loops until stop, which waits for them.
func (w *world) start(ctx context.Context, policy *devices.Policy, log hclog.Logger) error {
	clients := registry.New(registry.Options{Clock: w.db.Now, Log: log, Build: func(spec *fleet.SiteSpec, source string) (sources.Source, error) {
		if l := w.listing[spec.Name+" "+source]; l != nil {
			return l, nil
		}
		return nil, fmt.Errorf("the benchmark has no %s for %s", source, spec.Name)
	}})
	r, err := reconciler.New(reconciler.Options{
		DB: w.db, Devices: w.meter, Policies: policy, Clients: clients, Owner: "bench", Rand: rand.Float64, Log: log, Poll: pollEvery,
	})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { r.Run(running) })
	w.stop = func() {
		cancel()
		loops.Wait()
		clients.Close()
		w.db.Close()
	}
	return nil
}

// sweep has the sources of sites read, all at once, and waits until they are
// and until the projections that follow are through.
func (w *world) sweep(ctx context.Context, sites []fleet.Site, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepsLimit)
	defer cancel()
	var ids []int64
	for _, site := range sites {
		ids = append(ids, site.ID)
		for _, source := range names {
			if err := store.RequestSweep(ctx, w.db, site.ID, source); err != nil {
				return err
			}
		}
	}
	return w.settled(ctx, ids)
}

// settled waits until nothing of the sites is due or under way.
func (w *world) settled(ctx context.Context, ids []int64) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var busy int
		var failed *string
		if err := w.db.QueryRow(ctx, `select
				(select count(*) from sweeps where site_id = any($1) and (due_at < clock_timestamp() + interval '1 minute' or leased_until > clock_timestamp()))
				+ (select count(*) from projections where site_id = any($1) and (due_at < clock_timestamp() or leased_until > clock_timestamp())),
				(select min(source || ': ' || (select detail::text from source_findings f where f.site_id = w.site_id and f.source = w.source limit 1))
					from watermarks w where site_id = any($1) and failing_since is not null)`, ids).Scan(&busy, &failed); err != nil {
			return fmt.Errorf("wait for sweeps: %w", err)
		}
		if failed != nil {
			return errors.New("a sweep failed: " + *failed)
		}
		if busy == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for sweeps: %w", context.Cause(ctx))
		}
	}
}

// meter is the devices' service, with what it did counted.
type meter struct {
	*devices.Service

	mu        sync.Mutex
	rows      devices.Rows
	changed   int
	latencies []time.Duration // of readings with news, from the instant of their page to the commit
}

func (m *meter) Apply(ctx context.Context, b fleet.Batch) (devices.Applied, error) {
	applied, err := m.Service.Apply(ctx, b)
	if err == nil {
		m.count(applied.Rows, applied.Changed)
		if applied.Changed > 0 {
			m.mu.Lock()
			m.latencies = append(m.latencies, time.Since(b.Readings[0].At))
			m.mu.Unlock()
		}
	}
	return applied, err
}

func (m *meter) Project(ctx context.Context, siteID int64, cause fleet.Cause) (devices.Projected, error) {
	p, err := m.Service.Project(ctx, siteID, cause)
	m.count(p.Rows, 0)
	return p, err
}

func (m *meter) count(rows devices.Rows, changed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows.Devices += rows.Devices
	m.rows.Facts += rows.Facts
	m.rows.Conditions += rows.Conditions
	m.rows.Writers += rows.Writers
	m.rows.Events += rows.Events
	m.changed += changed
}

// taken gives what was counted since the last call.
func (m *meter) taken() (rows devices.Rows, changed int, latencies []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows, changed, latencies = m.rows, m.changed, m.latencies
	m.rows, m.changed, m.latencies = devices.Rows{}, 0, nil
	return rows, changed, latencies
}
