package devices_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

const slurmProject, enrolProject = "6f70656e737461636b", "656e726f6c"

// shipped is the product's own bundle, loaded once for all tests.
var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

// held is a bundle that a test holds in its hands.
type held struct {
	mu      sync.Mutex
	current *engine.Bundle
	next    *engine.Bundle // what a refresh finds
	kept    map[string]*engine.Bundle
}

func (h *held) Current() *engine.Bundle { h.mu.Lock(); defer h.mu.Unlock(); return h.current }

func (h *held) Refresh(context.Context) (*engine.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == nil {
		return nil, fmt.Errorf("the bundle does not load")
	}
	h.current = h.next
	return h.current, nil
}

func (h *held) Bundle(_ context.Context, version string) (*engine.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range []*engine.Bundle{h.current, h.next, h.kept[version]} {
		if b != nil && b.Version() == version {
			return b, nil
		}
	}
	return nil, store.ErrNotFound
}

// world is a database with one site, the shipped policy active, and a clock
// that the test moves.
type world struct {
	t        testing.TB
	db       *store.DB
	svc      *devices.Service
	site     fleet.Site
	policies *held
	bundle   *engine.Bundle
	now      atomic.Int64
	epoch    int64
}

const owner = "test"

func prepare(url string) error {
	b, err := shipped()
	if err != nil {
		return err
	}
	return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames()})
}

func activate(ctx context.Context, tx pgx.Tx, b *engine.Bundle) error {
	if _, err := store.GiveBits(ctx, tx, b.TypeNames(), b.Version()); err != nil {
		return err
	}
	if err := store.StoreBundle(ctx, tx, store.PolicyBundle{Version: b.Version(), Semantics: engine.Semantics, Files: map[string]string{}, StoredBy: "test"}); err != nil {
		return err
	}
	return store.Activate(ctx, tx, b.Version(), "test")
}

func newWorld(t testing.TB, change ...func(*fleet.SiteSpec)) *world {
	t.Helper()
	if b, ok := t.(*testing.T); ok {
		b.Parallel()
	}
	bundle, err := shipped()
	must(t, err)
	w := &world{t: t, bundle: bundle, policies: &held{current: bundle, next: bundle}}
	w.db = openAt(t, pgtest.Template(t, "active", prepare))
	w.now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	w.svc = w.service()
	spec := fleet.SiteSpec{
		Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true,
		CustomerReadyTrait: "CUSTOM_READY", Lessees: fleet.Lessees{Enrol: enrolProject, Slurm: slurmProject, Maintenance: "6d61696e74"},
		Sources: fleet.Sources{Recorded: map[string]string{"ironic": "x", "slurm": "x"}},
	}
	for _, f := range change {
		f(&spec)
	}
	must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
		w.site, err = store.PutSite(w.ctx(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}))
	w.epoch = 1
	w.exec("update sweeps set owner = $1, epoch = 1", owner)
	return w
}

func openAt(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{MaxConns: 8})
	must(t, err)
	t.Cleanup(db.Close)
	return db
}

// service makes another replica on the same database.
func (w *world) service() *devices.Service {
	return devices.New(w.db, w.policies, w.clock, hclog.NewNullLogger())
}

func (w *world) ctx() context.Context           { return w.t.Context() }
func (w *world) clock() time.Time               { return time.Unix(0, w.now.Load()).UTC() }
func (w *world) pass(d time.Duration) time.Time { w.now.Add(int64(d)); return w.clock() }

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	tag, err := w.db.Exec(w.ctx(), sql, args...)
	must(w.t, err)
	return tag.RowsAffected()
}

// node is an Ironic node that is enrolled and leased to nobody of ours.
func node(change ...func(*facts.Ironic)) facts.Facts {
	var f facts.Facts
	f.Ironic = facts.Ironic{
		Name: facts.TextOf("n"), ProvisionState: facts.ProvisionStateAvailable, Maintenance: facts.False, InstanceBound: facts.False,
		OurMark: facts.False, Lessee: facts.TextOf(""), ResourceClass: facts.TextOf("gpu"), Reservation: facts.TextOf(""), Traits: []string{},
	}
	for _, c := range change {
		c(&f.Ironic)
	}
	return f
}

func ready(i *facts.Ironic) { i.Traits = []string{"CUSTOM_READY"} }
func maintenance(i *facts.Ironic) {
	i.Maintenance, i.MaintenanceReason = facts.True, facts.TextOf("bad fan")
}
func leased(i *facts.Ironic) {
	i.Lessee, i.ProvisionState = facts.TextOf(slurmProject), facts.ProvisionStateActive
}
func cleanFailed(i *facts.Ironic) {
	i.ProvisionState, i.LastError = facts.ProvisionStateCleanFailed, facts.TextOf("no agent")
}
func bound(i *facts.Ironic) {
	i.ProvisionState, i.InstanceBound, i.InstanceUUID = facts.ProvisionStateActive, facts.True, facts.TextOf("i-1")
}

func slurm(states facts.SlurmStates) facts.Facts {
	var f facts.Facts
	f.Slurm = facts.Slurm{States: states, Reason: facts.TextOf("")}
	return f
}

// say is one reading of a ref.
func (w *world) say(ref string, f facts.Facts) fleet.Reading {
	if f.Ironic.Name.Known {
		f.Ironic.Name = facts.TextOf(ref)
	}
	return fleet.Reading{Ref: ref, Name: ref, At: w.clock(), Facts: f}
}

func born(r fleet.Reading) fleet.Reading { r.Birth = true; return r }

func joins(r fleet.Reading, id int64) fleet.Reading { r.Device = id; return r }

func (w *world) batch(source string, readings ...fleet.Reading) fleet.Batch {
	return fleet.Batch{SiteID: w.site.ID, Source: source, Owner: owner, Epoch: w.epoch, Readings: readings}
}

func (w *world) apply(source string, readings ...fleet.Reading) devices.Applied {
	w.t.Helper()
	applied, err := w.svc.Apply(w.ctx(), w.batch(source, readings...))
	must(w.t, err)
	return applied
}

// finish ends the sweeps of sources now.
func (w *world) finish(sources ...string) {
	w.t.Helper()
	for _, source := range sources {
		must(w.t, w.svc.FinishSweep(w.ctx(), devices.Finish{SiteID: w.site.ID, Source: source, Owner: owner, Epoch: w.epoch, At: w.clock()}))
	}
}

func (w *world) project() devices.Projected {
	w.t.Helper()
	p, err := w.svc.Project(w.ctx(), w.site.ID, fleet.Cause{Type: "projection"})
	must(w.t, err)
	return p
}

// bear gives birth to a device by an Ironic node, in a finished sweep.
func (w *world) bear(ref string, f facts.Facts) int64 {
	w.t.Helper()
	applied := w.apply("ironic", born(w.say(ref, f)))
	if len(applied.Born) != 1 {
		w.t.Fatalf("no device was born: %+v", applied)
	}
	w.finish("ironic", "slurm")
	return applied.Born[0]
}

func (w *world) device(id int64) fleet.Device {
	w.t.Helper()
	found, err := store.DevicesByID(w.ctx(), w.db, []int64{id})
	must(w.t, err)
	if len(found) != 1 {
		w.t.Fatalf("device %d: %d rows", id, len(found))
	}
	return found[0]
}

func (w *world) wantStatus(id int64, status, rung string) {
	w.t.Helper()
	if d := w.device(id); d.Operational.String() != status || d.Rung != rung {
		w.t.Fatalf("device %d is %s by %s, want %s by %s", id, d.Operational, d.Rung, status, rung)
	}
}

// condition reads one row as "Status Reason", "" for none.
func (w *world) condition(id int64, name string) string {
	w.t.Helper()
	all, err := store.ConditionsOf(w.ctx(), w.db, []int64{id})
	must(w.t, err)
	for _, c := range all {
		if c.Type == name {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func (w *world) wantCondition(id int64, name, want string) {
	w.t.Helper()
	if got := w.condition(id, name); got != want {
		w.t.Fatalf("%s of device %d is %q, want %q", name, id, got, want)
	}
}

// history lists the values of one axis, oldest first.
func (w *world) history(id int64, kind fleet.Kind) []string {
	w.t.Helper()
	rows, err := w.db.Query(w.ctx(), "select value from lifecycle_events where device_id = $1 and kind = $2 order by id", id, string(kind))
	must(w.t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(w.t, err)
	return values
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
