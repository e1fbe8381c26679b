package operations_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const limits = `package limits

limits: blast_caps: rack: {per: ["site"], devices: %d}
limits: breakers: own: {per: ["site", "workflow"], window: "1h", min_runs: 3, failure_share: 0.5}
`

// shipped is the product's own bundle with limits of its own.
func shipped(most int) (*engine.Bundle, error) {
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		return nil, err
	}
	files = maps.Clone(files)
	files["policies/limits/blast.cue"] = []byte(fmt.Sprintf(limits, most))
	b, _, err := engine.Load(engine.Tree(files), engine.Options{})
	return b, err
}

var (
	wide      = sync.OnceValues(func() (*engine.Bundle, error) { return shipped(100_000) })
	narrow    = sync.OnceValues(func() (*engine.Bundle, error) { return shipped(8) })
	validator = sync.OnceValues(func() (*rule.Validator, error) { return rule.New(muster.Bundle()) })
)

// held is a bundle that a test holds in its hands.
type held struct{ bundle *engine.Bundle }

func (h held) Current() *engine.Bundle                                { return h.bundle }
func (h held) Refresh(context.Context) (*engine.Bundle, error)        { return h.bundle, nil }
func (h held) Bundle(context.Context, string) (*engine.Bundle, error) { return h.bundle, nil }

func prepare(of func() (*engine.Bundle, error)) func(url string) error {
	return func(url string) error {
		b, err := of()
		if err != nil {
			return err
		}
		return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames()}, func(ctx context.Context, tx pgx.Tx) error {
			spec := fleet.SiteSpec{Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceFile, TraitBased: true, CustomerReadyTrait: "CUSTOM_READY"}
			_, err := store.PutSite(ctx, tx, fleet.Site{Spec: spec, AppliedBy: "test"})
			return err
		})
	}
}

// world is a database with one site, the shipped policy active.
type world struct {
	t    testing.TB
	db   *store.DB
	jobs *jobs.Service
	svc  *operations.Service
	lab  fleet.Site
}

func newWorld(t testing.TB) *world { return worldOf(t, "operations", wide) }

func worldOf(t testing.TB, name string, of func() (*engine.Bundle, error), options ...func(*operations.Options)) *world {
	t.Helper()
	if b, ok := t.(*testing.T); ok {
		b.Parallel()
	}
	db, err := store.Open(t.Context(), pgtest.Template(t, name, prepare(of)), store.Options{MaxConns: 12, LockTimeout: time.Minute, StatementTimeout: 2 * time.Minute})
	must(t, err)
	t.Cleanup(db.Close)
	b, err := of()
	must(t, err)
	v, err := validator()
	must(t, err)
	w := &world{t: t, db: db}
	log := hclog.NewNullLogger()
	d := devices.New(db, held{b}, db.Now, log)
	w.jobs = jobs.New(db, d, held{b}, db.Now, log, jobs.Options{Implemented: func(string) (jobs.Implementation, bool) { return jobs.Implementation{}, true }})
	o := operations.Options{}
	for _, f := range options {
		f(&o)
	}
	w.svc = operations.New(db, d, w.jobs, held{b}, v, db.Now, log, o)
	w.lab, err = store.SiteByName(t.Context(), db, "lab")
	must(t, err)
	return w
}

func (w *world) ctx() context.Context { return w.t.Context() }

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	tag, err := w.db.Exec(w.ctx(), sql, args...)
	must(w.t, err)
	return tag.RowsAffected()
}

func value[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	must(w.t, w.db.QueryRow(w.ctx(), sql, args...).Scan(&v))
	return v
}

// rack makes a rack with 2 shelves, 2 switches of the links and 3 trays, and a
// switch that is no component, and gives their ids by name.
func (w *world) rack(name string) (int64, map[string]int64) {
	w.t.Helper()
	id := value[int64](w, "insert into racks (site_id, source_ref, name) values ($1, $2, $2) returning id", w.lab.ID, name)
	ids := map[string]int64{}
	for _, d := range []struct{ name, class string }{
		{"p1", "powershelf"}, {"p2", "powershelf"}, {"n1", "nvswitch"}, {"n2", "nvswitch"}, {"c1", "gpu_compute"}, {"c2", "gpu_compute"}, {"c3", "gpu_compute"}, {"s1", "switch"},
	} {
		ids[d.name] = value[int64](w, `insert into devices (site_id, rack_id, name, name_key, device_class, inventory_status, operational_status, bmc_address)
			values ($1, $2, $3, $4, $5, 'active', 'quarantine', $6) returning id`, w.lab.ID, id, name+"-"+d.name, fleet.NameKey(name+"-"+d.name), d.class, "10.0.0."+fmt.Sprint(len(ids)+1))
	}
	return id, ids
}

var ann = devices.Caller{Name: "ann", Remote: "127.0.0.1"}

func power(operation string, racks ...int64) operations.Request {
	r := operations.Request{OperationType: "power_control", Operation: operation, Reason: "CHG-1", By: ann}
	for _, id := range racks {
		r.Racks = append(r.Racks, jobs.Ref{ID: id})
	}
	return r
}

func named(names ...string) []jobs.Ref {
	var refs []jobs.Ref
	for _, name := range names {
		refs = append(refs, jobs.Ref{Name: name})
	}
	return refs
}

func (w *world) submit(r operations.Request) fleet.Task {
	w.t.Helper()
	done, err := w.svc.Submit(w.ctx(), r)
	must(w.t, err)
	if len(done.Tasks) != len(r.Racks) {
		w.t.Fatalf("%d tasks of %d racks", len(done.Tasks), len(r.Racks))
	}
	return done.Tasks[0]
}

// refused wants a request to be refused with exactly these codes, and nothing to be
// left behind.
func (w *world) refused(r operations.Request, codes ...string) jobs.Report {
	w.t.Helper()
	const left = "select (select count(*) from tasks) + (select count(*) from device_locks) + (select count(*) from audit) + (select count(*) from executions)"
	before := value[int](w, left)
	_, err := w.svc.Submit(w.ctx(), r)
	var refused *jobs.RefusedError
	var coded *jobs.Error
	switch {
	case errors.As(err, &refused):
		if got := refused.Report.Codes(); !slices.Equal(got, codes) {
			w.t.Fatalf("%s is refused with %v, want %v: %+v", r.Operation, got, codes, refused.Report)
		}
	case errors.As(err, &coded):
		if !slices.Equal([]string{coded.Code}, codes) {
			w.t.Fatalf("%s is refused with %v, want %v", r.Operation, coded, codes)
		}
	default:
		w.t.Fatalf("%s was not refused: %v", r.Operation, err)
	}
	if after := value[int](w, left); after != before {
		w.t.Fatal("a refused request left something behind")
	}
	if refused == nil {
		return jobs.Report{}
	}
	return refused.Report
}

func (w *world) task(id int64) store.TaskRow {
	w.t.Helper()
	rows, err := store.ListTasks(w.ctx(), w.db, store.TaskFilter{IDs: []int64{id}, Limit: 2})
	must(w.t, err)
	if len(rows) != 1 {
		w.t.Fatalf("task %d: %d rows", id, len(rows))
	}
	return rows[0]
}

func (w *world) want(id int64, status fleet.TaskStatus, code string) {
	w.t.Helper()
	if t := w.task(id); t.Status != status || t.FailureCode != code {
		w.t.Fatalf("task %d is %s %q (%s), want %s %q", id, t.Status, t.FailureCode, t.FailureMessage, status, code)
	}
}

// locked lists the devices that a task holds.
func (w *world) locked(t fleet.Task) []int64 {
	w.t.Helper()
	rows, err := w.db.Query(w.ctx(), "select device_id from device_locks where holder = $1 and mode = 'exclusive' order by 1", t.Holder())
	must(w.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	must(w.t, err)
	return ids
}

func (w *world) wantLocked(t fleet.Task, ids ...int64) {
	w.t.Helper()
	slices.Sort(ids)
	if got := w.locked(t); !slices.Equal(got, ids) {
		w.t.Fatalf("%s holds %v, want %v", t.Holder(), got, ids)
	}
}

func (w *world) begin(t fleet.Task) operations.Begun {
	w.t.Helper()
	b, err := w.svc.Begin(w.ctx(), t.Holder())
	must(w.t, err)
	return b
}

func (w *world) finish(t fleet.Task, e jobs.Ending) {
	w.t.Helper()
	must(w.t, w.svc.Finish(w.ctx(), t.Holder(), e))
}

func (w *world) promote() int {
	w.t.Helper()
	n, err := w.svc.Promote(w.ctx())
	must(w.t, err)
	return n
}

func succeeded() jobs.Ending { return jobs.Ending{Status: fleet.DeviceSucceeded} }

// steps is a document of a rule for one type.
func steps(operation, kind string, more ...string) rule.Document {
	typ := "power_control"
	if operation == "upgrade" {
		typ = "firmware_control"
	}
	action := `{"name": "PowerControl"}`
	if operation == "upgrade" {
		action = `{"name": "FirmwareControl"}`
	}
	step := fmt.Sprintf(`{"component_type": %q, "stage": 1, "main_operation": %s}`, kind, action)
	return rule.Document{Data: []byte(fmt.Sprintf(`{"name": "own %s", "operation_type": %q, "operation": %q, "steps": [%s]}`, kind, typ, operation, strings.Join(append([]string{step}, more...), ",")))}
}

func (w *world) create(d rule.Document, isDefault bool) store.RuleRow {
	w.t.Helper()
	stored, err := w.svc.CreateRule(w.ctx(), d, isDefault, ann, nil)
	must(w.t, err)
	return stored.Rule
}

// coded wants an error with a code.
func coded(t testing.TB, err error, code string) {
	t.Helper()
	if !errors.Is(err, &jobs.Error{Code: code}) {
		t.Fatalf("want %s, got %v", code, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
