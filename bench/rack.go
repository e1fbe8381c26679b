package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/rack"
	parts "github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows"
	"github.com/musterhq/muster/workflows/act"
)

// What a component of the rack takes: for a command until its effect is seen, and
// for a look.
const (
	commandTakes = 2 * time.Second
	quickTakes   = 500 * time.Millisecond // the same in a smoke test
	lookTakes    = 50 * time.Millisecond
	rackLimit    = 5 * time.Minute // of one operation
)

// rackSteps go the way of the shipped power_off; rackPath are the rounds of its
// longest path: 18 trays by six, 9 switches by three, 8 shelves by two.
const rackSteps = `{"steps": [
	{"component_type": "compute", "stage": 1, "max_parallel": 6, "main_operation": {"name": "PowerControl"}, "post_operation": [` + rackLook + `]},
	{"component_type": "nvswitch", "stage": 2, "max_parallel": 3, "main_operation": {"name": "PowerControl"}, "post_operation": [` + rackLook + `]},
	{"component_type": "powershelf", "stage": 3, "max_parallel": 2, "main_operation": {"name": "PowerControl"}, "post_operation": [` + rackLook + `]}]}`

const (
	rackLook = `{"name": "VerifyPowerStatus", "timeout": "1m", "poll_interval": "5s", "parameters": {"expected_status": "off"}}`
	rackPath = 3 + 3 + 4
)

// benchRack measures an operation on a rack of 35 components from its submission
// to its end, on a real Temporal and a real PostgreSQL.
func benchRack(ctx context.Context, r *report, s *server, quick bool) error {
	program := os.Getenv("MUSTER_TEMPORAL_BIN")
	if program == "" {
		program = filepath.Join("..", "bin", embedded.TemporalProgram)
	}
	program, err := filepath.Abs(program)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: no operation on a rack is measured: %v (`make temporal` builds it, or name it in MUSTER_TEMPORAL_BIN)\n", err)
		return nil
	}
	runs, takes := 3, commandTakes
	if quick {
		runs, takes = 1, quickTakes
	}
	h, err := newHall(ctx, s, program, runs, takes)
	if err != nil {
		return err
	}
	defer h.stop()
	path := rackPath * (takes + lookTakes)
	t := r.table("One operation on a rack", "18 compute trays, 9 NVLink switches, 8 power shelves, all off by the graceful rule; a command takes a component %s, a look %s. From the submission to the end, in wall time", takes, lookTakes)
	t.header = []string{"rack", "longest path", "submitted → running", "submitted → ended", "of the path", "events of histories"}
	worst, each := 0.0, 0.0
	for i := range runs {
		one, err := h.operate(ctx, i)
		if err != nil {
			return err
		}
		ratio := float64(one.took) / float64(path)
		worst = max(worst, ratio)
		each = float64(one.events) / 35
		t.row(fmt.Sprint(i+1), path.String(), one.started.Round(time.Millisecond).String(), one.took.Round(time.Millisecond).String(), times(ratio), fmt.Sprint(one.events))
	}
	t.target("whole / longest path, the slowest", worst, atMost, 1.1)
	t.remark("%.1f events a component, of the task and its three steps together.", each)
	return nil
}

// hall is a site with racks whose components take their time, and one replica.
type hall struct {
	db       *store.DB
	service  *operations.Service
	temporal client.Client
	racks    []int64
	takes    time.Duration // a command
	closers  []func()

	mu  sync.Mutex
	off map[int64]bool
}

func (h *hall) stop() {
	for i := len(h.closers) - 1; i >= 0; i-- {
		h.closers[i]()
	}
}

// during runs f until the hall stops.
func (h *hall) during(ctx context.Context, f func(context.Context)) {
	running, cancel := context.WithCancel(ctx)
	var one sync.WaitGroup
	one.Go(func() { f(running) })
	h.closers = append(h.closers, func() { cancel(); one.Wait() })
}

func newHall(ctx context.Context, s *server, program string, racks int, takes time.Duration) (_ *hall, err error) {
	h := &hall{takes: takes, off: map[int64]bool{}}
	defer func() {
		if err != nil {
			h.stop()
		}
	}()
	url, err := s.pg.CreateDatabase(ctx, "racks")
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, url); err != nil {
		return nil, err
	}
	if h.db, err = store.Open(ctx, url, store.Options{}); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, h.db.Close)
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	policy, err := devices.OpenPolicy(h.db, muster.Bundle(), h.db.Now, log)
	if err != nil {
		return nil, err
	}
	shipped, err := edited(nil)
	if err != nil {
		return nil, err
	}
	if _, _, err := policy.Activate(ctx, shipped, somebody.Name); err != nil {
		return nil, err
	}
	if err := h.temporals(ctx, program); err != nil {
		return nil, err
	}
	validator, err := rule.New(muster.Bundle())
	if err != nil {
		return nil, err
	}
	service := devices.New(h.db, policy, h.db.Now, log)
	work := jobs.New(h.db, service, policy, h.db.Now, log, jobs.Options{Implemented: workflows.Implemented})
	h.service = operations.New(h.db, service, work, policy, validator, h.db.Now, log, operations.Options{})
	runner, err := workflows.New(workflows.Options{
		DB: h.db, Jobs: work, Devices: service, Policies: policy, Clients: nobody{}, Temporal: h.temporal, Log: log, Metrics: prometheus.NewRegistry(),
		Beside: []workflows.Work{{
			Main: func(w worker.Registry, prefix string) { rack.RegisterMain(w, prefix, h.service.Rows()) },
			Site: func(w worker.ActivityRegistry, _ *act.Site) { rack.Register(w, h.managers(), h.find) },
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := h.furnish(ctx, racks); err != nil {
		return nil, err
	}
	h.during(ctx, runner.Run)
	text := fmt.Sprintf(`{"name": "bench", "operation_type": "power_control", "operation": "power_off", %s`, rackSteps[1:])
	_, err = h.service.CreateRule(ctx, rule.Document{Data: []byte(text)}, true, somebody, nil)
	return h, err
}

var somebody = devices.Caller{Name: "bench", Remote: "127.0.0.1"}

// furnish makes a site, the racks, and so many beside them that the shipped caps
// let one go at once.
func (h *hall) furnish(ctx context.Context, racks int) error {
	spec := siteSpec(0)
	spec.Inventory, spec.Imaging, spec.Lessees = facts.InventorySourceFile, nil, fleet.Lessees{}
	spec.Sources = fleet.Sources{Recorded: map[string]string{"inventory": "in memory", "bmc": "in memory"}}
	change, err := devices.ApplySite(ctx, h.db, spec, devices.SiteOptions{Actor: somebody.Name})
	if err != nil {
		return err
	}
	for i := range racks + 3 {
		var id int64
		name := fmt.Sprintf("r%02d", i+1)
		if err := h.db.QueryRow(ctx, "insert into racks (site_id, source_ref, name) values ($1, $2, $2) returning id", change.Site.ID, name).Scan(&id); err != nil {
			return fmt.Errorf("make a rack: %w", err)
		}
		for _, of := range []struct {
			letter, class string
			n             int
		}{{"c", "gpu_compute", 18}, {"n", "nvswitch", 9}, {"p", "powershelf", 8}} {
			if _, err := h.db.Exec(ctx, `insert into devices (site_id, rack_id, name, name_key, device_class, inventory_status, operational_status, bmc_address)
				select $1, $2, d, d, $3, 'active', 'quarantine', '192.0.2.1' from (select $4 || lpad(n::text, 2, '0') from generate_series(1, $5) n) as all_of(d)`,
				change.Site.ID, id, of.class, name+"-"+of.letter, of.n); err != nil {
				return fmt.Errorf("make devices: %w", err)
			}
		}
		if i < racks {
			h.racks = append(h.racks, id)
		}
	}
	return nil
}

// operated is what one operation took.
type operated struct {
	started, took time.Duration // since its submission
	events        int           // of the histories of the task and its steps
}

// operate switches a rack off.
func (h *hall) operate(ctx context.Context, i int) (o operated, err error) {
	ctx, cancel := context.WithTimeout(ctx, rackLimit)
	defer cancel()
	began := time.Now()
	done, err := h.service.Submit(ctx, operations.Request{
		OperationType: "power_control", Operation: "power_off", Racks: []jobs.Ref{{ID: h.racks[i]}}, Reason: "bench", By: somebody,
	})
	if err != nil {
		return o, err
	}
	task := done.Tasks[0].ID
	for {
		var status, message string
		if err := h.db.QueryRow(ctx, "select status, failure_message from tasks where id = $1", task).Scan(&status, &message); err != nil {
			return o, fmt.Errorf("look at the task: %w", err)
		}
		if o.started == 0 && status != string(fleet.TaskPending) {
			o.started = time.Since(began)
		}
		if fleet.TaskStatus(status).Ended() {
			o.took = time.Since(began)
			if status != string(fleet.TaskSucceeded) {
				return o, fmt.Errorf("the operation is %s: %s", status, message)
			}
			break
		}
		if !act.Wait(ctx, pollEvery) {
			return o, fmt.Errorf("the operation is %s: %w", status, ctx.Err())
		}
	}
	workflow := fmt.Sprintf("task/%d", task)
	for _, id := range []string{workflow, workflow + "/stage/1/compute", workflow + "/stage/2/nvswitch", workflow + "/stage/3/powershelf"} {
		for all := h.temporal.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); o.events++ {
			if _, err := all.Next(); err != nil {
				return o, fmt.Errorf("read the history of %s: %w", id, err)
			}
		}
	}
	return o, nil
}

func (h *hall) managers() map[string]component.Manager {
	m := component.Manager{Power: h, Reachability: h}
	return map[string]component.Manager{"compute": m, "nvswitch": m, "powershelf": m}
}

func (h *hall) find(_ context.Context, p parts.Part) (component.Part, error) {
	return component.Part{Device: p.Device, Name: p.Name, Type: p.Type}, nil
}

// State looks at a component.
func (h *hall) State(ctx context.Context, p component.Part) (component.State, error) {
	act.Wait(ctx, lookTakes)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.off[p.Device] {
		return component.State{Power: component.Off}, nil
	}
	return component.State{Power: component.On}, nil
}

// Switch takes a component's power.
func (h *hall) Switch(ctx context.Context, p component.Part, s component.Switch) (component.Switched, error) {
	act.Wait(ctx, h.takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off[p.Device] = true
	return component.Switched{Sent: s.Operation, State: component.Off}, nil
}

// Marker is not asked for.
func (h *hall) Marker(context.Context, component.Part) (string, error) { return "", nil }

// Reset is not asked for.
func (h *hall) Reset(context.Context, component.Part, bool) (component.Switched, error) {
	return component.Switched{}, errors.New("the benchmark resets nothing")
}

// nobody has no client of any system: the components stand for them.
type nobody struct{}

func (nobody) Open(_ *fleet.Site, name string) (any, func(), error) {
	return nil, nil, fmt.Errorf("the benchmark has no %s", name)
}

// temporals starts a Temporal of the hall's own.
func (h *hall) temporals(ctx context.Context, program string) error {
	dir, err := os.MkdirTemp("", "muster-bench-temporal-")
	if err != nil {
		return fmt.Errorf("make Temporal's directory: %w", err)
	}
	h.closers = append(h.closers, func() { _ = os.RemoveAll(dir) })
	t, err := embedded.OpenTemporal(embedded.TemporalOptions{Dir: dir, Program: program})
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = t.Close() })
	h.during(ctx, func(ctx context.Context) { _ = t.Run(ctx) })
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := t.Ready(ready); err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	h.temporal, err = client.Dial(client.Options{HostPort: t.Address(), Namespace: embedded.TemporalNamespace, Logger: workflows.Logger(hclog.NewNullLogger())})
	if err != nil {
		return fmt.Errorf("reach Temporal: %w", err)
	}
	h.closers = append(h.closers, h.temporal.Close)
	return nil
}
