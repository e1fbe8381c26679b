package reconciler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// Devices writes what the loops find. devices.Service is it.
type Devices interface {
	Look(ctx context.Context, siteID int64, source string, types uint64) (*devices.Known, error)
	Apply(ctx context.Context, b fleet.Batch) (devices.Applied, error)
	FinishSweep(ctx context.Context, f devices.Finish) error
	FailSweep(ctx context.Context, siteID int64, source, owner string, epoch int64, reason string) error
	Project(ctx context.Context, siteID int64, cause fleet.Cause) (devices.Projected, error)
}

// Clients gives the clients of the sources. registry.Registry is it.
type Clients interface {
	Use(site *fleet.Site, source string) (client sources.Source, release func(), err error)
	Drop(site int64, source string)
	Keep(sites []fleet.Site)
}

// Policies gives the bundle that this replica judges by, nil while it has none:
// then it claims no work.
type Policies interface{ Current() *engine.Bundle }

// Options are what a Reconciler is made of and how much it does at a time.
type Options struct {
	DB       *store.DB
	Devices  Devices
	Policies Policies
	Clients  Clients
	Owner    string         // names this replica; no two may have the same at a time
	Rand     func() float64 // in [0,1), for jitter
	Log      hclog.Logger
	Metrics  prometheus.Registerer // nil: none

	Sweeps      int           // at a time, default 16
	Projections int           // at a time, default 2
	Lease       time.Duration // of a sweep or a projection, renewed three times in it; default 30 s
	Poll        time.Duration // between two looks for work, default 250 ms
	Follow      time.Duration // between two looks at which sites there are, with what is known of their sources; default 5 s
	SweepLimit  time.Duration // the longest that one sweep may take, default 15 min
	CallLimit   time.Duration // the longest that reading one thing by its identity may take, default 1 min
}

// Reconciler is one replica's loops.
type Reconciler struct {
	Options
	metrics *metrics
	wake    chan struct{} // a projection was asked for here
	paused  pause
	logins  followed
}

// New makes a Reconciler; Run does the work.
func New(o Options) (*Reconciler, error) {
	if o.DB == nil || o.Devices == nil || o.Policies == nil || o.Clients == nil || o.Owner == "" || o.Rand == nil {
		return nil, errors.New("make a reconciler: database, devices, policies, clients, owner and randomness are required")
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	o.Log = o.Log.Named("reconciler")
	for _, n := range []struct {
		value    *int
		fallback int
	}{{&o.Sweeps, 16}, {&o.Projections, 2}} {
		if *n.value <= 0 {
			*n.value = n.fallback
		}
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&o.Lease, 30 * time.Second}, {&o.Poll, 250 * time.Millisecond}, {&o.Follow, 5 * time.Second}, {&o.SweepLimit, 15 * time.Minute}, {&o.CallLimit, time.Minute}} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Reconciler{Options: o, metrics: m, wake: make(chan struct{}, 1)}, nil
}

const (
	releaseLimit = 5 * time.Second
	policyPause  = 5 * time.Second
)

// Run works until ctx ends and everything that it has started has ended. What
// is under way is given back to the other replicas at once.
func (r *Reconciler) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { r.every(ctx, r.Follow, "follow the sites", r.followSites) })
	loops.Go(func() { r.work(ctx, r.Sweeps, nil, "claim sweeps", r.claimSweeps) })
	loops.Go(func() { r.work(ctx, r.Projections, r.wake, "claim projections", r.claimProjections) })
	loops.Wait()
}

// every runs f at once and then each time the interval has passed. An error is
// logged: the next round tries again.
func (r *Reconciler) every(ctx context.Context, interval time.Duration, doing string, f func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := guard(func() error { return f(ctx) }); err != nil && ctx.Err() == nil {
			r.Log.Error("loop failed", "doing", doing, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// work claims what is due, as much as fits beside what is under way, and runs
// it. It returns when ctx has ended and all of it is done.
func (r *Reconciler) work(ctx context.Context, most int, wake <-chan struct{}, doing string, claim func(context.Context, int) ([]func(context.Context), error)) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, most)
	done := make(chan struct{}, 1)
	for ctx.Err() == nil {
		var jobs []func(context.Context)
		err := guard(func() (err error) {
			if free := most - len(slots); free > 0 && r.ready() {
				// What is claimed as the replica stops is known and given back at once: a
				// claim that is broken off may have been made.
				claiming, cancel := givingBack(ctx)
				defer cancel()
				jobs, err = claim(claiming, free)
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			r.Log.Error("loop failed", "doing", doing, "error", err)
		}
		for _, job := range jobs {
			slots <- struct{}{}
			running.Go(func() {
				defer func() {
					<-slots
					signal(done)
				}()
				if err := guard(func() error { job(ctx); return nil }); err != nil {
					r.Log.Error("work failed", "doing", doing, "error", err)
				}
			})
		}
		r.rest(ctx, wake, done, len(slots) == most)
	}
}

// rest waits until there may be work again: a poll has passed, it was asked
// for, or a slot of a full house is free.
func (r *Reconciler) rest(ctx context.Context, wake, done <-chan struct{}, full bool) {
	if !full {
		done = nil
	}
	poll := time.NewTimer(r.jitter(r.Poll))
	defer poll.Stop()
	select {
	case <-ctx.Done():
	case <-poll.C:
	case <-wake:
	case <-done:
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ready tells whether this replica may take work: it has a policy to judge by.
func (r *Reconciler) ready() bool { return r.Policies.Current() != nil && !r.paused.on(time.Now()) }

// pause keeps a replica that cannot load the active policy from claiming.
type pause struct {
	mu    sync.Mutex
	until time.Time
}

func (p *pause) on(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.until)
}

func (p *pause) start(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
}

// followSites gives every source its sweep, closes the clients that no site
// needs, and shows what is known of all sources.
func (r *Reconciler) followSites(ctx context.Context) error {
	sites, err := store.Sites(ctx, r.DB)
	if err != nil {
		return err
	}
	if err := store.EnsureSweeps(ctx, r.DB, sites); err != nil {
		return err
	}
	r.Clients.Keep(sites)
	return r.observe(ctx, sites)
}

// guard makes a panic an error: one broken round ends nothing else.
func guard(f func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, fault, debug.Stack())
		}
	}()
	return f()
}

var errPanic = errors.New("a fault in muster itself")

// jitter spreads a duration by a tenth to both sides.
func (r *Reconciler) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*r.Rand()))
}
