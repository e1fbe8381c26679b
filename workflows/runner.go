package workflows

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

// Options are what a Runner works with. Zero durations take the defaults.
type Options struct {
	DB       *store.DB
	Jobs     *jobs.Service
	Devices  *devices.Service
	Policies act.Policies
	Clients  act.Clients   // of the systems of the sites
	Temporal client.Client // may be away
	Prefix   string        // before the name of every task queue
	Log      hclog.Logger
	Metrics  prometheus.Registerer

	// Beside is what else the workers take, such as the tasks of racks.
	Beside []Work

	Look     time.Duration // between two looks for what is to be handed over, default 5 s; the database tells besides
	Converge time.Duration // between two rounds against Temporal, default 30 s
	Keep     time.Duration // between two rounds over what is too late or too old, default 30 s
	Poll     time.Duration // between two looks at a machine that takes long, default 5 s
	Stop     time.Duration // that running activities have when the replica ends, default 5 s
}

// Work is given to the workers beside the workflows of the catalogue.
type Work struct {
	Main func(w worker.Registry, prefix string)          // workflows, and activities that write rows
	Site func(w worker.ActivityRegistry, site *act.Site) // activities that touch a site
}

// Runner is the role worker of one replica.
type Runner struct {
	options Options
	sender  *sender
	rows    *rows
	metrics *metrics
	log     hclog.Logger
	running sync.WaitGroup // activities
}

// New makes a Runner. Nothing runs before Run.
func New(o Options) (*Runner, error) {
	if o.DB == nil || o.Jobs == nil || o.Devices == nil || o.Policies == nil || o.Clients == nil || o.Temporal == nil || o.Log == nil || o.Metrics == nil {
		return nil, errors.New("a worker needs a database, jobs, devices, policies, clients, Temporal, a log and metrics")
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&o.Look, 5 * time.Second}, {&o.Converge, 30 * time.Second}, {&o.Keep, 30 * time.Second}, {&o.Poll, 5 * time.Second}, {&o.Stop, 5 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Runner{
		options: o, metrics: m, log: o.Log.Named("workflows"),
		sender: &sender{client: o.Temporal, queue: o.Prefix + mainQueue, metrics: m},
		rows:   &rows{db: o.DB, accounts: o.Jobs, metrics: m},
	}, nil
}

// Run works until ctx ends, and returns when all that it started has ended.
// Work that runs then goes on at another replica, or at the next start.
func (r *Runner) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, part := range []func(context.Context){r.keepMain, r.keepSites, r.dispatch, r.converge, r.keepHouse} {
		all.Go(func() { part(ctx) })
	}
	all.Wait()
	r.running.Wait()
}

// every calls f now and whenever d has passed, until ctx ends. An error is told
// when it is another than the one before.
func (r *Runner) every(ctx context.Context, d time.Duration, doing string, f func(context.Context) error) {
	before := ""
	for {
		switch err := f(ctx); {
		case ctx.Err() != nil:
			return
		case err == nil:
			before = ""
		case err.Error() != before:
			before = err.Error()
			r.log.Error("work on jobs is held up, it is tried again", "doing", doing, "error", err)
		}
		if !act.Wait(ctx, d) {
			return
		}
	}
}
