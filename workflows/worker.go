package workflows

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

const (
	sitesEvery    = 10 * time.Second // between two looks at which sites there are
	longestPause  = 15 * time.Second // before a worker is started again
	siteAtOnce    = 64               // activities that touch one site, of one replica
	sitePollers   = 2
	mainAtOnce    = 64
	mainWorkflows = 64
)

func (r *Runner) workerOptions() worker.Options {
	return worker.Options{
		Interceptors: []interceptor.WorkerInterceptor{&beats{running: &r.running}}, WorkerStopTimeout: r.options.Stop, DisableRegistrationAliasing: true,
	}
}

// keepMain runs the worker of workflows and rows.
func (r *Runner) keepMain(ctx context.Context) {
	o := r.workerOptions()
	o.MaxConcurrentActivityExecutionSize, o.MaxConcurrentWorkflowTaskExecutionSize = mainAtOnce, mainWorkflows
	r.keep(ctx, r.options.Prefix+mainQueue, o, func(w worker.Worker) {
		registerWorkflows(w, r.options.Prefix)
		r.rows.register(w)
		for _, beside := range r.options.Beside {
			beside.Main(w, r.options.Prefix)
		}
	})
}

// keepSites runs a worker for each site that there is.
func (r *Runner) keepSites(ctx context.Context) {
	var all sync.WaitGroup
	ends := map[string]context.CancelFunc{} // by site
	defer all.Wait()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	r.every(ctx, sitesEvery, "look at the sites", func(ctx context.Context) error {
		sites, err := store.Sites(ctx, r.options.DB)
		if err != nil {
			return err
		}
		there := make(map[string]bool, len(sites))
		for i := range sites {
			name := sites[i].Spec.Name
			there[name] = true
			if ends[name] != nil {
				continue
			}
			working, end := context.WithCancel(ctx)
			ends[name] = end
			acts := &act.Site{
				ID: sites[i].ID, DB: r.options.DB, Clients: r.options.Clients, Devices: r.options.Devices, Policies: r.options.Policies,
				Clock: r.options.DB.Now, Poll: r.options.Poll,
			}
			all.Go(func() { r.keepSite(working, name, acts) })
		}
		for name, end := range ends {
			if !there[name] {
				end()
				delete(ends, name)
			}
		}
		return nil
	})
}

func (r *Runner) keepSite(ctx context.Context, name string, acts *act.Site) {
	o := r.workerOptions()
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityExecutionSize, o.MaxConcurrentActivityTaskPollers = siteAtOnce, sitePollers
	r.keep(ctx, siteQueue(r.options.Prefix, name), o, func(w worker.Worker) {
		registerActivities(w, acts)
		for _, beside := range r.options.Beside {
			beside.Site(w, acts)
		}
	})
}

// keep takes work from a queue until ctx ends. While Temporal is away, or has not
// the namespace, it tries again.
func (r *Runner) keep(ctx context.Context, queue string, o worker.Options, register func(worker.Worker)) {
	pause, told := time.Second, false
	for ctx.Err() == nil {
		broken := make(chan error, 1)
		o.OnFatalError = func(err error) {
			select {
			case broken <- err:
			default:
			}
		}
		w := worker.New(r.options.Temporal, queue, o)
		register(w)
		err := w.Start()
		if err == nil {
			r.metrics.queues.Inc()
			pause, told = time.Second, false
			select {
			case err = <-broken:
			case <-ctx.Done():
			}
			w.Stop()
			r.metrics.queues.Dec()
		}
		if err != nil && ctx.Err() == nil && !told {
			told = true
			r.log.Warn("no work is taken from the queue until Temporal is there", "queue", queue, "error", err)
		}
		if !act.Wait(ctx, pause) {
			return
		}
		pause = min(2*pause, longestPause)
	}
}
