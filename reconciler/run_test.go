package reconciler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// run starts a replica; stop ends it and waits for everything it started.
func run(t *testing.T, r *Reconciler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		receive(t, "the replica's end", ended)
	})
	t.Cleanup(stop)
	return stop
}

// often makes the sweeps of the site due again and again.
func (w *world) often(source string) {
	must(w.t, store.RequestSweep(w.t.Context(), w.db, w.site.ID, source))
}

func TestReplicasFollowTheWorldAndLeaveNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1"), node("u2", "n2"))
	a, b := w.replica("a"), w.replica("b")
	stopA, stopB := run(t, a), run(t, b)
	eventually(t, "the devices are born and judged", func() bool {
		return w.count("select count(*) from devices where operational_status = 'available'") == 2
	})
	w.ironic().says(node("u1", "n1", maintenance), node("u2", "n2"))
	w.often("ironic")
	eventually(t, "the change is a status", func() bool { return w.device("n1").Operational == facts.OperationalStatusQuarantine })
	stopA()
	w.ironic().says(node("u1", "n1"), node("u2", "n2"))
	w.often("ironic")
	eventually(t, "the other replica goes on", func() bool { return w.device("n1").Operational == facts.OperationalStatusAvailable })
	stopB()
	w.wantCount(0, "select count(*) from sweeps where leased_until > clock_timestamp()")
	w.wantCount(0, "select count(*) from projections where leased_until > clock_timestamp()")
}

func TestNoGoroutineOutlivesRun(t *testing.T) {
	w := newWorld(t)
	entered := make(chan int, 8)
	w.ironic().set(func(s *script) {
		s.gate, s.entered, s.pages = make(chan struct{}), entered, [][]sources.Record{nodes(3), {}}
	})
	r := w.replica("leak-check")
	stop := run(t, r)
	receive(t, "a sweep in the middle of its listing", entered)
	if len(stacksOf(r)) == 0 {
		t.Fatal("no goroutine of a running replica is seen")
	}
	stop()
	for _, stack := range stacksOf(r) {
		t.Errorf("left behind:\n%s", stack)
	}
}

// stacksOf lists the goroutines that work for a replica: other tests run beside.
func stacksOf(r *Reconciler) (own []string) {
	buffer := make([]byte, 8<<20)
	for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "reconciler.(*Reconciler)") && strings.Contains(stack, fmt.Sprintf("(%p", r)) {
			own = append(own, stack)
		}
	}
	return own
}

func TestAReplicaThatLosesTheDatabaseInASweepNeverTurnsAStatusBack(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1"), node("u2", "n2"))
	w.sweep("ironic")

	db, err := store.Open(t.Context(), w.db.Config().ConnString(), store.Options{MaxConns: 2})
	must(t, err)
	defer db.Close()
	gate, entered := make(chan struct{}), make(chan int, 64)
	slow := &script{clock: db.Now, gate: gate, entered: entered, pages: [][]sources.Record{{node("u1", "n1")}, {node("u2", "n2")}}}
	short := func(o *Options) { o.Lease = 500 * time.Millisecond }
	paused := w.replica("paused", short, func(o *Options) {
		o.DB, o.Clients = db, &only{slow}
		o.Devices = devices.New(db, policies{w.bundle()}, db.Now, o.Log)
	})
	w.often("ironic")
	stop := run(t, paused)
	receive(t, "the first page", entered)
	// From here on it is as good as paused: it reaches the database no more, so
	// neither a heartbeat nor a batch gets through.
	first, err := db.Acquire(t.Context())
	must(t, err)
	second, err := db.Acquire(t.Context())
	must(t, err)

	w.ironic().says(node("u1", "n1", maintenance), node("u2", "n2", maintenance))
	run(t, w.replica("awake", short))
	eventually(t, "the other replica takes the sweep over", func() bool {
		return w.count("select count(*) from devices where operational_status = 'quarantine'") == 2
	})
	close(gate)
	first.Release()
	second.Release()
	stop()
	w.wantStatus("n1", "quarantine")
	w.wantStatus("n2", "quarantine")
	rows, err := w.db.Query(t.Context(), "select value from lifecycle_events where kind = 'operational' order by device_id, id")
	must(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if n := len(values); n%2 != 0 || !slices.Equal(values[:n/2], values[n/2:]) || values[n/2-1] != "quarantine" {
		t.Errorf("the history is %v", values)
	}
}

func TestALoopRepairsWhatAProjectionFinds(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", maintenance))
	run(t, w.replica("a"))
	eventually(t, "the device is judged", func() bool {
		return w.count("select count(*) from devices where operational_status = 'quarantine'") == 1
	})
	_, err := w.db.Exec(t.Context(), "update devices set operational_status = 'available'")
	must(t, err)
	must(t, store.RequestProjection(t.Context(), w.db, w.site.ID))
	eventually(t, "the status is repaired", func() bool { return w.device("n1").Operational == facts.OperationalStatusQuarantine })
}

// faulty is a writer of devices whose projections panic, then fail, then work.
type faulty struct {
	Devices
	projections atomic.Int64
}

func (f *faulty) Project(ctx context.Context, site int64, cause fleet.Cause) (devices.Projected, error) {
	switch f.projections.Add(1) {
	case 1:
		panic("a fault")
	case 2:
		return devices.Projected{}, errors.New("the database stumbles")
	}
	return f.Devices.Project(ctx, site, cause)
}

func TestAFailedProjectionIsTriedAgainAndStopsNothing(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1"))
	f := &faulty{Devices: w.svc}
	run(t, w.replica("a", func(o *Options) { o.Devices = f }))
	for want := int64(1); want <= 3; want++ {
		eventually(t, "it is projected again", func() bool { return f.projections.Load() >= want })
		must(t, store.RequestProjection(t.Context(), w.db, w.site.ID)) // rather than wait for the retry
	}
	eventually(t, "the sweeps went on", func() bool {
		return w.count("select count(*) from devices where operational_status = 'available'") == 1
	})
}

// none is a replica without a policy; it counts how often it is asked.
type none struct{ asked atomic.Int64 }

func (n *none) Current() *engine.Bundle { n.asked.Add(1); return nil }

func TestAReplicaWithoutAPolicyClaimsNothing(t *testing.T) {
	w := newWorld(t)
	n := &none{}
	run(t, w.replica("a", func(o *Options) { o.Policies = n }))
	eventually(t, "it has looked for work several times", func() bool { return n.asked.Load() > 20 })
	w.wantCount(0, "select count(*) from sweeps where epoch > 0")
	w.wantCount(0, "select count(*) from projections where owner <> ''")
}

// unjudging cannot load the policy that another replica activated.
type unjudging struct{ Devices }

func (unjudging) Apply(context.Context, fleet.Batch) (devices.Applied, error) {
	return devices.Applied{}, devices.ErrPolicyNotLoaded
}

func TestAReplicaThatCannotLoadTheActivePolicyLeavesTheWorkToOthers(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1"))
	r := w.replica("a", func(o *Options) { o.Devices = unjudging{w.svc} })
	r.sweep(t.Context(), w.claim(r, "ironic", time.Minute))
	if r.ready() {
		t.Error("it goes on claiming")
	}
	if mark := w.watermark("ironic"); !mark.FailingSince.IsZero() {
		t.Errorf("the source is blamed: %+v", mark)
	}
	leases, err := store.ClaimSweeps(t.Context(), w.db, "b", time.Minute, time.Minute, 0, 10)
	must(t, err)
	if !slices.ContainsFunc(leases, func(l store.SweepLease) bool { return l.Source == "ironic" }) {
		t.Errorf("another replica gets %+v", leases)
	}
}

func TestSitesAndSourcesComeAndGoWhileItRuns(t *testing.T) {
	w := newWorld(t)
	clients := registry.New(registry.Options{Clock: w.db.Now, Build: func(_ *fleet.SiteSpec, source string) (sources.Source, error) { return w.source(source), nil }})
	t.Cleanup(clients.Close)
	r := w.replica("a", func(o *Options) { o.Clients = clients })
	must(t, r.followSites(t.Context()))
	r.sweep(t.Context(), w.claim(r, "slurm", time.Minute))
	_, err := w.db.Exec(t.Context(), "update sites set revision = revision + 1, spec = jsonb_set(spec, '{sources,recorded}', '{\"ironic\": \"x\", \"file\": \"x\"}')")
	must(t, err)
	must(t, r.followSites(t.Context()))
	w.wantCount(1, "select count(*) from sweeps where source = 'file'")
	w.wantCount(0, "select count(*) from sweeps where source = 'slurm'")
	w.slurm().set(func(s *script) {
		if s.closed != 1 {
			t.Errorf("the client of the source that went was closed %d times", s.closed)
		}
	})
}

func TestMetricsTellOfSourcesAndNeverOfDevices(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	r := w.replica("a", func(o *Options) { o.Metrics = reg })
	w.ironic().says(nodes(2)...)
	w.slurm().set(func(s *script) { s.fail = errDown })
	r.sweep(t.Context(), w.claim(r, "ironic", time.Minute))
	_, err := w.db.Exec(t.Context(), "update sweeps set leased_until = null")
	must(t, err)
	r.sweep(t.Context(), w.claim(r, "slurm", time.Minute))
	must(t, r.followSites(t.Context()))
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
				if label.GetName() == "device" || strings.HasPrefix(label.GetValue(), "n0") {
					t.Errorf("%s has a label of a device: %s", f.GetName(), label)
				}
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"muster_sweep_records_total ironic": 2, "muster_sweep_seconds done ironic": 1, "muster_sweep_seconds failed slurm": 1,
		"muster_sweep_concluded_total born ironic": 2, "muster_source_age_seconds lab slurm": -1, "muster_source_findings failure lab slurm": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
	if got["muster_source_failing_seconds lab slurm"] <= 0 || got["muster_source_age_seconds lab ironic"] <= 0 {
		t.Errorf("ages: %v", got)
	}
}

func TestAReconcilerNeedsAllItsParts(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Owner: "a"}); err == nil {
		t.Error("a reconciler without parts is made")
	}
}
