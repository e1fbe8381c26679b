package reconciler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

const slurmProject = "6f70656e737461636b"

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

// script is a source that says what the test wants.
type script struct {
	clock sources.Clock

	mu       sync.Mutex
	pages    [][]sources.Record
	dropped  int
	partial  bool
	fail     error            // at the listing's end
	unsure   map[string]error // what asking for one thing answers
	entered  chan int         // told the number of each page that was given
	gate     chan struct{}    // each page but the first waits for it
	fault    bool             // panic
	listings int
	asked    []string
	closed   int
}

func (s *script) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	s.mu.Lock()
	s.listings++
	pages, entered, gate, fault, fail := s.pages, s.entered, s.gate, s.fault, s.fail
	end := sources.End{At: s.clock(), Complete: !s.partial, Dropped: s.dropped}
	s.mu.Unlock()
	if fault {
		panic("a broken adapter")
	}
	for i, page := range pages {
		if i > 0 && gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return end, ctx.Err()
			}
		}
		stamped := slices.Clone(page)
		for n := range stamped {
			stamped[n].At = s.clock()
		}
		end.Records += len(stamped)
		if err := yield(stamped); err != nil {
			return end, err
		}
		if entered != nil {
			entered <- i
		}
	}
	return end, fail
}

func (s *script) Get(_ context.Context, ref string) (*sources.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, ref)
	if err := s.unsure[ref]; err != nil {
		return nil, err
	}
	for _, page := range s.pages {
		for _, r := range page {
			if r.Ref == ref {
				r.At = s.clock()
				return &r, nil
			}
		}
	}
	return nil, fmt.Errorf("get %s: %w", ref, sources.ErrGone)
}

func (s *script) Close() { s.mu.Lock(); defer s.mu.Unlock(); s.closed++ }

func (s *script) set(change func(*script)) { s.mu.Lock(); defer s.mu.Unlock(); change(s) }

// says makes the source list these records on one page.
func (s *script) says(records ...sources.Record) {
	s.set(func(s *script) {
		s.pages, s.fail, s.dropped, s.partial, s.fault = [][]sources.Record{records}, nil, 0, false, false
	})
}

// world is a database with the shipped policy active, sites, and scripted
// sources.
type world struct {
	t    *testing.T
	db   *store.DB
	svc  *devices.Service
	site fleet.Site

	mu      sync.Mutex
	scripts map[string]*script
}

func prepare(url string) error {
	b, err := shipped()
	if err != nil {
		return err
	}
	return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames()})
}

func newWorld(t *testing.T, change ...func(*fleet.SiteSpec)) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, scripts: map[string]*script{}}
	db, err := store.Open(t.Context(), pgtest.Template(t, "active", prepare), store.Options{MaxConns: 12})
	must(t, err)
	t.Cleanup(db.Close)
	w.db = db
	w.svc = devices.New(db, policies{w.bundle()}, db.Now, hclog.NewNullLogger())
	spec := fleet.SiteSpec{
		Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true,
		CustomerReadyTrait: "CUSTOM_READY", Lessees: fleet.Lessees{Slurm: slurmProject},
		Sources: fleet.Sources{Recorded: map[string]string{"ironic": "x", "slurm": "x"}},
	}
	for _, f := range change {
		f(&spec)
	}
	must(t, db.Tx(t.Context(), func(tx pgx.Tx) error {
		w.site, err = store.PutSite(t.Context(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}))
	return w
}

func (w *world) bundle() *engine.Bundle {
	w.t.Helper()
	b, err := shipped()
	must(w.t, err)
	return b
}

// source gives the script of one source of the site.
func (w *world) source(name string) *script {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.scripts[name] == nil {
		w.scripts[name] = &script{clock: w.db.Now, pages: [][]sources.Record{{}}}
	}
	return w.scripts[name]
}

func (w *world) ironic() *script { return w.source("ironic") }
func (w *world) slurm() *script  { return w.source("slurm") }

// replica makes a reconciler on the world's database; change may give it
// sources of its own.
func (w *world) replica(owner string, change ...func(*Options)) *Reconciler {
	w.t.Helper()
	clients := registry.New(registry.Options{Clock: w.db.Now, Build: func(_ *fleet.SiteSpec, source string) (sources.Source, error) {
		return w.source(source), nil
	}})
	w.t.Cleanup(clients.Close)
	o := Options{
		DB: w.db, Devices: w.svc, Policies: policies{w.bundle()}, Clients: clients, Owner: owner, Rand: func() float64 { return 0.5 },
		Log: hclog.NewNullLogger(), Poll: 5 * time.Millisecond,
	}
	for _, f := range change {
		f(&o)
	}
	r, err := New(o)
	must(w.t, err)
	return r
}

// claim takes the due sweep of one source.
func (w *world) claim(r *Reconciler, source string, lease time.Duration) store.SweepLease {
	w.t.Helper()
	must(w.t, store.RequestSweep(w.t.Context(), w.db, w.site.ID, source))
	leases, err := store.ClaimSweeps(w.t.Context(), w.db, r.Owner, lease, time.Minute, 0, 100)
	must(w.t, err)
	for _, l := range leases {
		if l.Source == source {
			return l
		}
	}
	w.t.Fatalf("the sweep of %s is not to be had: %+v", source, leases)
	return store.SweepLease{}
}

// sweep reads sources once, one after the other.
func (w *world) sweep(sources ...string) {
	w.t.Helper()
	r := w.replica("once")
	for _, source := range sources {
		_, err := w.db.Exec(w.t.Context(), "update sweeps set due_at = 'infinity', leased_until = null where source <> $1", source)
		must(w.t, err)
		r.sweep(w.t.Context(), w.claim(r, source, time.Minute))
	}
}

func (w *world) watermark(source string) fleet.Watermark {
	w.t.Helper()
	marks, err := store.Watermarks(w.t.Context(), w.db, w.site.ID)
	must(w.t, err)
	return marks[source]
}

// device reads a device by name; it is the only one of that name.
func (w *world) device(name string) fleet.Device {
	w.t.Helper()
	var ids []int64
	rows, err := w.db.Query(w.t.Context(), "select id from devices where name = $1", name)
	must(w.t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	must(w.t, err)
	if len(ids) != 1 {
		w.t.Fatalf("%d devices are called %s", len(ids), name)
	}
	found, err := store.DevicesByID(w.t.Context(), w.db, ids)
	must(w.t, err)
	return found[0]
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

func (w *world) wantCount(want int, sql string, args ...any) {
	w.t.Helper()
	if got := w.count(sql, args...); got != want {
		w.t.Errorf("%d instead of %d: %s", got, want, sql)
	}
}

func (w *world) wantStatus(name, status string) {
	w.t.Helper()
	if d := w.device(name); d.Operational.String() != status {
		w.t.Errorf("%s is %s by %s, want %s", name, d.Operational, d.Rung, status)
	}
}

func (w *world) wantCondition(name, conditionType, want string) {
	w.t.Helper()
	all, err := store.ConditionsOf(w.t.Context(), w.db, []int64{w.device(name).ID})
	must(w.t, err)
	got := ""
	for _, c := range all {
		if c.Type == conditionType {
			got = string(c.Status) + " " + c.Reason
		}
	}
	if got != want {
		w.t.Errorf("%s of %s is %q, want %q", conditionType, name, got, want)
	}
}

// findings lists "kind ref" of one source, sorted, of the kinds that this
// package finds.
func (w *world) findings(source string) []string {
	w.t.Helper()
	rows, err := store.Findings(w.t.Context(), w.db, w.site.ID, source, "", "", 1000)
	must(w.t, err)
	var all []string
	for _, f := range rows {
		if f.Kind != fleet.FindingSwap && !slices.Contains(kindsOfEnd, f.Kind) {
			continue
		}
		all = append(all, strings.TrimSpace(f.Kind+" "+f.Ref))
	}
	return all
}

func (w *world) wantFindings(source string, want ...string) {
	w.t.Helper()
	if got := w.findings(source); !slices.Equal(got, want) {
		w.t.Errorf("findings of %s are %q, want %q", source, got, want)
	}
}

// eventually waits until a condition holds, at most two minutes: under the race
// detector and beside other tests a bundle alone loads for half of one.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// receive takes the next value of a channel, waiting as long.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(2 * time.Minute):
		t.Fatalf("in vain waited for %s", what)
	}
	panic("unreachable")
}

// node is an Ironic node at rest, available to nobody.
func node(ref, name string, change ...func(*sources.Record)) sources.Record {
	r := sources.Record{Ref: ref, Name: name, Ironic: &facts.Ironic{
		Listed: facts.True, Name: facts.TextOf(name), ProvisionState: facts.ProvisionStateAvailable, Maintenance: facts.False,
		InstanceBound: facts.False, OurMark: facts.False, Lessee: facts.TextOf(""), ResourceClass: facts.TextOf("gpu"),
		Reservation: facts.TextOf(""), Traits: []string{"CUSTOM_READY"},
	}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func maintenance(r *sources.Record) { r.Ironic.Maintenance = facts.True }
func leased(r *sources.Record) {
	r.Ironic.Lessee, r.Ironic.ProvisionState, r.Ironic.Traits = facts.TextOf(slurmProject), facts.ProvisionStateActive, []string{}
}
func serial(s string) func(*sources.Record) { return func(r *sources.Record) { r.Serial = s } }

func nodes(n int) []sources.Record {
	var all []sources.Record
	for i := range n {
		all = append(all, node(fmt.Sprintf("u%03d", i), fmt.Sprintf("n%03d", i)))
	}
	return all
}

func slurmNode(name string, states facts.SlurmStates) sources.Record {
	return sources.Record{Ref: name, Name: name, Slurm: &facts.Slurm{Listed: facts.True, States: states, Reason: facts.TextOf("")}}
}

var errDown = &sources.Error{Kind: sources.KindTransient, Op: "list", Message: "connection refused"}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
