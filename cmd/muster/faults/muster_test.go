package faults

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	domain "github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

const (
	patience = 40 * time.Second // for what a test waits for, on a loaded machine
	quick    = 150 * time.Millisecond
	seldom   = time.Hour       // the sources that are read when the test says so
	answers  = 3 * time.Second // how long a source may take
)

// shipped is the product's own bundle, loaded once for all tests.
var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

// policies is a policy that never changes.
type policies struct{ b *engine.Bundle }

func (p policies) Current() *engine.Bundle                                { return p.b }
func (p policies) Refresh(context.Context) (*engine.Bundle, error)        { return p.b, nil }
func (p policies) Bundle(context.Context, string) (*engine.Bundle, error) { return p.b, nil }

// replica is muster itself over one fleet.
type replica struct {
	*fleet
	db      *store.DB
	site    domain.Site
	metrics *prometheus.Registry
	log     *lockedBuffer
	often   string // the source that is read by itself, every `quick`; "" none
}

// newReplica starts muster over a fleet and waits until it has seen all of it.
func newReplica(t *testing.T, often string, bmcs int) *replica {
	t.Helper()
	r := &replica{fleet: newFleet(t, bmcs), metrics: prometheus.NewRegistry(), log: &lockedBuffer{}}
	var err error
	r.db, err = store.Open(t.Context(), pgtest.Template(t, "active", prepare), store.Options{MaxConns: 12})
	must(t, err)
	t.Cleanup(r.db.Close)
	must(t, r.db.Tx(t.Context(), func(tx pgx.Tx) (err error) {
		r.site, err = store.PutSite(t.Context(), tx, domain.Site{Spec: r.spec(), AppliedBy: "test"})
		return err
	}))
	r.run(t)
	r.settle(t)
	if often == "" {
		return r
	}
	// Only now: what is read so often is soon old, and nothing old promotes.
	r.often = often
	_, err = devices.ApplySite(t.Context(), r.db, r.spec(), devices.SiteOptions{Actor: "test"})
	must(t, err)
	r.settle(t)
	return r
}

func prepare(url string) error {
	b, err := shipped()
	if err != nil {
		return err
	}
	return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames()})
}

// spec is the site as an operator would write it, with pages so small that a
// listing has several.
func (r *replica) spec() domain.SiteSpec {
	var site world.Site
	r.world.Read(func(s *world.State) { site = *s.Sites.Get(siteName) })
	at := func(source, path string) domain.Endpoint {
		interval := seldom
		if source == r.often {
			interval = quick
		}
		return domain.Endpoint{URL: r.url + path, Interval: domain.Duration(interval), Timeout: domain.Duration(answers)}
	}
	openstack := func(source string) domain.OpenStackSource {
		return domain.OpenStackSource{
			Endpoint: at(source, "/"+siteName+"/"+source), Auth: "keystone", Username: user, Password: "file:" + r.secret("password"),
			Keystone: &domain.Keystone{URL: r.url + "/keystone/v3", Project: "service", UserDomain: "Default", ProjectDomain: "Default", Region: siteName},
		}
	}
	own := openstack("placement")
	scheduler := at("slurm", "/"+siteName+"/slurm")
	scheduler.Timeout = 0 // it must be above what slurmrestd itself waits for its controller
	return domain.SiteSpec{
		Name: siteName, EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceNetbox, PlacementEnabled: true,
		TraitBased: site.TraitBased, CustomerReadyTrait: site.Trait,
		Lessees: domain.Lessees{Enrol: site.Lessees.Enrol, Slurm: site.Lessees.Slurm, Maintenance: site.Lessees.Maintenance},
		NetBox:  &domain.NetBoxSites{Instance: "simulated", Sites: []string{siteName}},
		Sources: domain.Sources{
			Ironic:    &domain.IronicSource{OpenStackSource: openstack("ironic"), PageSize: 5},
			Placement: &own,
			Slurm:     &domain.SlurmSource{Endpoint: scheduler, User: "root", Token: "file:" + r.secret("slurm")},
			NetBox:    &domain.NetBoxSource{Endpoint: at("netbox", "/netbox"), Token: "file:" + r.secret("netbox"), PageSize: 10},
			BMC: &domain.BMCSource{
				Port: r.port, Networks: []string{"127.0.0.0/8"}, Interval: at("bmc", "").Interval,
				TLS: domain.BMCTLS{CA: r.ca}, Credentials: []domain.BMCCredential{{Match: "*", Ref: "file:" + r.secret("bmc")}},
			},
		},
	}
}

// run starts the loops; they end before the test does.
func (r *replica) run(t *testing.T) {
	t.Helper()
	b, err := shipped()
	must(t, err)
	log := hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Warn})
	service := devices.New(r.db, policies{b}, r.db.Now, log)
	meter, err := reconciler.NewSourceMeter(prometheus.NewRegistry())
	must(t, err)
	half := func() float64 { return 0.5 }
	clients := registry.New(registry.Options{
		Clock: r.db.Now, Log: log, Rand: half, Meter: meter, Slurm: meter.Slurm, Redfish: meter.Redfish,
		Bounds: sources.Options{BackoffBase: 5 * time.Millisecond, BackoffCap: 20 * time.Millisecond, BreakerCoolDown: quick},
		BMCs:   func(ctx context.Context, site int64) ([]redfish.Target, error) { return targets(ctx, service, site) },
	})
	loops, err := reconciler.New(reconciler.Options{
		DB: r.db, Devices: service, Policies: policies{b}, Clients: clients, Owner: "one", Rand: half,
		Log: log, Metrics: r.metrics, Poll: 40 * time.Millisecond, Follow: quick,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { loops.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		clients.Close()
		if t.Failed() {
			t.Logf("muster said:\n%s", r.log.tail(30))
		}
	})
}

func targets(ctx context.Context, service *devices.Service, site int64) ([]redfish.Target, error) {
	bmcs, err := service.BMCs(ctx, site)
	found := make([]redfish.Target, len(bmcs))
	for i, b := range bmcs {
		found[i] = redfish.Target{Address: b.Address, Name: b.Name, Class: b.Class}
	}
	return found, err
}

// metric reads the sum of a metric's series that have all the labels; of a
// histogram, its count.
func (r *replica) metric(t *testing.T, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := r.metrics.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if hasLabels(m, labels) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, label := range m.GetLabel() {
		if want, asked := labels[label.GetName()]; asked && want == label.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// sweeps counts how many sweeps of a source ended so.
func (r *replica) sweeps(t *testing.T, source, result string) int {
	t.Helper()
	return int(r.metric(t, "muster_sweep_seconds", map[string]string{"source": source, "result": result}))
}

// ended counts the sweeps of a source that ended, well or not.
func (r *replica) ended(t *testing.T, source string) int {
	t.Helper()
	return r.sweeps(t, source, "done") + r.sweeps(t, source, "failed")
}

// read has sources read anew, begun after now, and the site judged after it. Of a
// source that is read by itself a sweep may be under way: then the next one
// counts.
func (r *replica) read(t *testing.T, sources ...string) {
	t.Helper()
	r.ask(t, sources)
	r.ask(t, slices.DeleteFunc(slices.Clone(sources), func(source string) bool {
		return source != r.often && r.mark(t, source).FailingSince.IsZero() && r.sweeps(t, source, "failed") == 0
	}))
	before := r.metric(t, "muster_projections_total", nil)
	must(t, store.RequestProjection(t.Context(), r.db, r.site.ID))
	eventually(t, "the site is judged", func() error {
		if n := r.metric(t, "muster_projections_total", nil); n < before+1 {
			return fmt.Errorf("%v projections, %v before", n, before)
		}
		return nil
	})
}

var allSources = []string{"netbox", "ironic", "placement", "slurm", "bmc"}

// ask asks for a sweep of each source and waits until one has ended.
func (r *replica) ask(t *testing.T, sources []string) {
	t.Helper()
	least := map[string]int{}
	for _, source := range sources {
		least[source] = r.ended(t, source) + 1
		must(t, store.RequestSweep(t.Context(), r.db, r.site.ID, source))
	}
	eventually(t, "the sources are read", func() error {
		for source, n := range least {
			if now := r.ended(t, source); now < n {
				return fmt.Errorf("%d of %d sweeps of %s have ended", now, n, source)
			}
		}
		return nil
	})
}

// others are all sources but one.
func others(source string) []string {
	return slices.DeleteFunc(slices.Clone(allSources), func(s string) bool { return s == source })
}

// settle reads everything until nothing new comes of it.
func (r *replica) settle(t *testing.T) {
	t.Helper()
	eventually(t, "the sweeps of all sources exist", func() error {
		var n int
		if err := r.db.QueryRow(t.Context(), "select count(*) from sweeps").Scan(&n); err != nil || n < len(allSources) {
			return fmt.Errorf("%d sweeps, %v", n, err)
		}
		return nil
	})
	var before rows
	for range 8 {
		r.read(t, "netbox")
		r.read(t, others("netbox")...)
		now := r.rows(t)
		if before != nil && len(before.differ(now)) == 0 {
			for _, source := range allSources {
				if m := r.mark(t, source); m.At.IsZero() || !m.FailingSince.IsZero() || m.Alert != "" {
					t.Fatalf("%s is not read well: %+v", source, m)
				}
			}
			return
		}
		before = now
	}
	t.Fatal("the fleet does not come to rest")
}

// eventually waits until nothing is missing any more.
func eventually(t *testing.T, what string, missing func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := missing()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("in vain waited until %s: %v", what, err)
		}
	}
}

// lockedBuffer keeps what muster logs.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// since gives what was logged after a length, and the length by now.
func (b *lockedBuffer) since(from int) (string, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()[from:], b.text.Len()
}

func (b *lockedBuffer) tail(lines int) string {
	all, _ := b.since(0)
	each := strings.Split(strings.TrimSpace(all), "\n")
	return strings.Join(each[max(0, len(each)-lines):], "\n")
}
