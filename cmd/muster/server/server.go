package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rack"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows"
)

// The roles of a replica.
const (
	RoleAPI        = "api"
	RoleReconciler = "reconciler"
	RoleWorker     = "worker"
)

// Roles are all that this build has.
func Roles() []string { return []string{RoleAPI, RoleReconciler, RoleWorker} }

// Options are what a replica is made of.
type Options struct {
	DB       *store.DB
	Policies *devices.Policy
	Roles    []string
	Log      hclog.Logger

	Listener net.Listener          // closed by Run; without the role api it serves health and metrics alone
	Auth     httpapi.Authenticator // nil: only this machine is answered

	Temporal        client.Client // nil: there is none, and jobs wait
	Namespace       string        // of Temporal
	TaskQueuePrefix string

	Sweeps          int           // at a time, of the role reconciler
	Lease           time.Duration // of a sweep
	ShutdownTimeout time.Duration
}

// Server is one replica, ready to run.
type Server struct {
	options    Options
	clients    *registry.Registry
	reconciler *reconciler.Reconciler
	worker     *workflows.Runner // nil: it is not a role, or there is no Temporal
	temporal   *temporalWatch    // nil: there is none
	api        *httpapi.Server
}

// New makes a replica. Nothing runs before Run.
func New(o Options) (*Server, error) {
	metrics := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := metrics.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the process: %w", err)
		}
	}
	clock := o.DB.Now
	service := devices.New(o.DB, o.Policies, clock, o.Log.Named("devices"))
	if err := service.Instrument(metrics); err != nil {
		return nil, err
	}
	service.Respect(jobs.Locks{})
	work := jobs.New(o.DB, service, o.Policies, clock, o.Log.Named("jobs"), jobs.Options{Implemented: workflows.Implemented})
	validator, err := rule.New(muster.Bundle())
	if err != nil {
		return nil, err
	}
	racks := operations.New(o.DB, service, work, o.Policies, validator, clock, o.Log.Named("operations"), operations.Options{})
	if err := racks.Instrument(metrics); err != nil {
		return nil, err
	}
	s := &Server{options: o}
	reconciles, works := slices.Contains(o.Roles, RoleReconciler), slices.Contains(o.Roles, RoleWorker) && o.Temporal != nil
	if reconciles || works {
		if err := s.open(service, metrics); err != nil {
			return nil, err
		}
	}
	if reconciles {
		if s.reconciler, err = reconciler.New(reconciler.Options{
			DB: o.DB, Devices: service, Policies: o.Policies, Clients: s.clients, Owner: owner(), Rand: mathrand.Float64,
			Log: o.Log, Metrics: metrics, Sweeps: o.Sweeps, Lease: o.Lease,
		}); err != nil {
			return nil, err
		}
	}
	if works {
		if s.worker, err = workflows.New(workflows.Options{
			DB: o.DB, Jobs: work, Devices: service, Policies: o.Policies, Clients: s.clients, Temporal: o.Temporal, Prefix: o.TaskQueuePrefix, Log: o.Log, Metrics: metrics,
			Beside: []workflows.Work{rack.Work(racks.Rows())},
		}); err != nil {
			return nil, err
		}
	}
	if o.Temporal != nil {
		if s.temporal, err = newTemporalWatch(o.Temporal, o.Namespace, o.Log.Named("temporal"), metrics); err != nil {
			return nil, err
		}
	}
	s.api, err = httpapi.New(httpapi.Deps{
		DB: o.DB, Devices: service, Policies: o.Policies, Jobs: work, Operations: racks, Auth: o.Auth, Clock: clock, Log: o.Log.Named("api"),
		Registry: metrics, ShutdownTimeout: o.ShutdownTimeout, ProcessOnly: !slices.Contains(o.Roles, RoleAPI),
	})
	return s, err
}

// open makes the clients of the sites' systems: reconciler and worker share them.
func (s *Server) open(service *devices.Service, metrics *prometheus.Registry) error {
	meter, err := reconciler.NewSourceMeter(metrics)
	if err != nil {
		return err
	}
	o := &s.options
	s.clients = registry.New(registry.Options{
		Clock: o.DB.Now, Log: o.Log.Named("sources"), Rand: mathrand.Float64, Meter: meter, Slurm: meter.Slurm, Redfish: meter.Redfish,
		BMCs: func(ctx context.Context, site int64) ([]redfish.Target, error) { return targets(ctx, service, site) },
	})
	return nil
}

// targets lists the BMCs that the inventory says a site's devices have.
func targets(ctx context.Context, service *devices.Service, site int64) ([]redfish.Target, error) {
	bmcs, err := service.BMCs(ctx, site)
	if err != nil {
		return nil, err
	}
	targets := make([]redfish.Target, len(bmcs))
	for i, b := range bmcs {
		targets[i] = redfish.Target{Address: b.Address, Name: b.Name, Class: b.Class, Health: b.Health}
	}
	return targets, nil
}

// owner names this replica: no two that run at a time have the same name.
func owner() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}

// Run does the work of every role until ctx ends or one of them fails, and
// returns when all that it started has ended.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.options.DB.FollowClock(ctx); return nil })
	group.Go(func() error { return s.options.Policies.Follow(ctx) })
	if s.reconciler != nil {
		group.Go(func() error { s.reconciler.Run(ctx); return nil })
	}
	if s.worker != nil {
		group.Go(func() error { s.worker.Run(ctx); return nil })
	}
	if s.temporal != nil {
		group.Go(func() error { s.temporal.run(ctx, temporalEvery); return nil })
	}
	group.Go(func() error { return s.api.Serve(ctx, s.options.Listener) })
	err := group.Wait()
	if s.clients != nil {
		s.clients.Close()
	}
	return err
}
