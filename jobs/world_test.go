package jobs_test

import (
	"context"
	"encoding/json"
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
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shipped is the product's own bundle, with every workflow available. It is
// loaded once for all tests.
var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		return nil, err
	}
	files = maps.Clone(files)
	for name, text := range files {
		if strings.HasPrefix(name, "policies/workflows/") {
			lines := strings.Split(string(text), "\n")
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "available:") })
			files[name] = []byte(strings.Join(lines, "\n"))
		}
	}
	b, _, err := engine.Load(engine.Tree(files), engine.Options{})
	return b, err
})

// held is a bundle that a test holds in its hands.
type held struct{ bundle *engine.Bundle }

func (h held) Current() *engine.Bundle                                { return h.bundle }
func (h held) Refresh(context.Context) (*engine.Bundle, error)        { return h.bundle, nil }
func (h held) Bundle(context.Context, string) (*engine.Bundle, error) { return h.bundle, nil }

const (
	exclusive = "enrollment"                // locks alone
	shared    = "verify_connectivity"       // locks beside others of its kind
	reading   = "gather_firmware_inventory" // locks nothing
	taking    = "node_unenrollment"         // locks alone, and counts under the caps
	swap      = "node_swap"                 // holds a spare by name
	cohort    = "multi_node_pairwise"       // one execution for all devices
)

// world is a database with two sites, the shipped policy active: lab reads no
// source, iron has an Ironic.
type world struct {
	t     testing.TB
	db    *store.DB
	svc   *jobs.Service
	lab   fleet.Site
	iron  fleet.Site
	names map[int64]string
}

func prepare(url string) error {
	b, err := shipped()
	if err != nil {
		return err
	}
	return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames()}, func(ctx context.Context, tx pgx.Tx) error {
		for _, spec := range []fleet.SiteSpec{
			{Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceFile, TraitBased: true, CustomerReadyTrait: "CUSTOM_READY", ForceReclaimEnabled: true,
				Imaging: &fleet.Imaging{Direct: &fleet.DirectImaging{Image: "x"}}},
			{Name: "iron", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true, CustomerReadyTrait: "CUSTOM_READY",
				ForceReclaimEnabled: true, Imaging: &fleet.Imaging{Direct: &fleet.DirectImaging{Image: "x"}}, Lessees: fleet.Lessees{Enrol: "656e726f6c", Slurm: "736c75726d"}, Sources: fleet.Sources{Recorded: map[string]string{"ironic": "x", "slurm": "x"}}},
		} {
			if _, err := store.PutSite(ctx, tx, fleet.Site{Spec: spec, AppliedBy: "test"}); err != nil {
				return err
			}
		}
		return nil
	})
}

func implemented(slug string) (jobs.Implementation, bool) {
	return jobs.Implementation{Batch: slug == cohort}, slug != "image_node"
}

func newWorld(t testing.TB, options ...func(*jobs.Options)) *world {
	t.Helper()
	if b, ok := t.(*testing.T); ok {
		b.Parallel()
	}
	db, err := store.Open(t.Context(), pgtest.Template(t, "jobs", prepare), store.Options{MaxConns: 12, LockTimeout: time.Minute, StatementTimeout: 2 * time.Minute})
	must(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, db: db, names: map[int64]string{}}
	o := jobs.Options{Implemented: implemented}
	for _, f := range options {
		f(&o)
	}
	w.svc = w.service(o)
	w.lab, err = store.SiteByName(t.Context(), db, "lab")
	must(t, err)
	w.iron, err = store.SiteByName(t.Context(), db, "iron")
	must(t, err)
	return w
}

func (w *world) service(o jobs.Options) *jobs.Service {
	b, err := shipped()
	must(w.t, err)
	log := hclog.NewNullLogger()
	svc := jobs.New(w.db, devices.New(w.db, held{b}, w.db.Now, log), held{b}, w.db.Now, log, o)
	svc.Limit(nil, nil) // the shipped ones are for a fleet
	return svc
}

func (w *world) ctx() context.Context { return w.t.Context() }

// device is a machine in quarantine that most work is admitted on.
func (w *world) device(name string, set ...string) int64 {
	w.t.Helper()
	return w.at(w.lab, name, set...)
}

func (w *world) at(site fleet.Site, name string, set ...string) int64 {
	w.t.Helper()
	var id int64
	must(w.t, w.db.QueryRow(w.ctx(), `insert into devices (site_id, name, name_key, device_class, resource_class, inventory_status, operational_status)
		values ($1, $2, $3, 'gpu_compute', 'GB300', 'active', 'quarantine') returning id`, site.ID, name, fleet.NameKey(name)).Scan(&id))
	for _, change := range set {
		w.exec("update devices set "+change+" where id = $1", id)
	}
	w.names[id] = name
	return id
}

func (w *world) devices(n int) []int64 {
	w.t.Helper()
	var ids []int64
	rows, err := w.db.Query(w.ctx(), `insert into devices (site_id, name, name_key, device_class, resource_class, inventory_status, operational_status)
		select $1, 'd' || n, 'd' || n, 'gpu_compute', 'GB300', 'active', 'quarantine' from generate_series(1, $2) n returning id`, w.lab.ID, n)
	must(w.t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	must(w.t, err)
	slices.Sort(ids)
	for i, id := range ids {
		w.names[id] = fmt.Sprintf("d%d", i+1)
	}
	return ids
}

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

// until waits for a query to say true.
func (w *world) until(sql string, args ...any) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if value[bool](w, sql, args...) {
			return
		}
	}
	w.t.Fatalf("never true: %s", sql)
}

func request(workflow string, ids ...int64) jobs.Request {
	r := jobs.Request{Workflow: workflow}
	for _, id := range ids {
		r.Devices = append(r.Devices, jobs.Ref{ID: id})
	}
	return r
}

func (w *world) submission(workflow string, ids ...int64) jobs.Submission {
	return jobs.Submission{Request: request(workflow, ids...), By: devices.Caller{Name: "ann", Remote: "127.0.0.1"}}
}

func (w *world) submit(workflow string, ids ...int64) fleet.Job {
	w.t.Helper()
	done, err := w.svc.Submit(w.ctx(), w.submission(workflow, ids...))
	must(w.t, err)
	return done.Job
}

// refused wants a submission to be refused with exactly these codes.
func (w *world) refused(s jobs.Submission, codes ...string) jobs.Report {
	w.t.Helper()
	before := value[int](w, "select count(*) from jobs") + value[int](w, "select count(*) from device_locks") + value[int](w, "select count(*) from audit")
	_, err := w.svc.Submit(w.ctx(), s)
	var refused *jobs.RefusedError
	if !errors.As(err, &refused) {
		w.t.Fatalf("%s was not refused: %v", s.Workflow, err)
	}
	if got := refused.Report.Codes(); !slices.Equal(got, codes) {
		w.t.Fatalf("%s is refused with %v, want %v: %+v", s.Workflow, got, codes, refused.Report)
	}
	if after := value[int](w, "select count(*) from jobs") + value[int](w, "select count(*) from device_locks") + value[int](w, "select count(*) from audit"); after != before {
		w.t.Fatalf("a refused submission left something behind")
	}
	return refused.Report
}

// coded wants an error with a code.
func coded(t testing.TB, err error, code string) {
	t.Helper()
	if !errors.Is(err, &jobs.Error{Code: code}) {
		t.Fatalf("want %s, got %v", code, err)
	}
}

func (w *world) job(id int64) store.JobRow {
	w.t.Helper()
	rows, err := store.ListJobs(w.ctx(), w.db, store.JobFilter{IDs: []int64{id}, Limit: 2})
	must(w.t, err)
	if len(rows) != 1 {
		w.t.Fatalf("job %d: %d rows", id, len(rows))
	}
	return rows[0]
}

func (w *world) wantJob(id int64, status fleet.JobStatus) {
	w.t.Helper()
	if j := w.job(id); j.Status != status {
		w.t.Fatalf("job %d is %s, want %s (devices %v)", id, j.Status, status, j.Devices)
	}
}

func (w *world) wantDevice(job, device int64, status fleet.JobDeviceStatus, code codes.Failure) {
	w.t.Helper()
	rows, err := store.JobDevices(w.ctx(), w.db, job, device-1, 1)
	must(w.t, err)
	if len(rows) != 1 || rows[0].DeviceID != device || rows[0].Status != status || rows[0].FailureCode != string(code) {
		w.t.Fatalf("device %d of job %d: %+v, want %q %q", device, job, rows, status, code)
	}
}

// locks lists who holds a device, as "holder mode".
func (w *world) locks(device int64) []string {
	w.t.Helper()
	all, err := store.LocksOf(w.ctx(), w.db, []int64{device})
	must(w.t, err)
	var held []string
	for _, l := range all {
		held = append(held, l.Holder+" "+l.Mode)
	}
	return held
}

func (w *world) wantFree(device int64, free bool) {
	w.t.Helper()
	if held := w.locks(device); (len(held) == 0) != free {
		w.t.Fatalf("device %d is held by %v, free should be %v", device, held, free)
	}
}

func workflowID(job fleet.Job, device int64) string {
	if device == 0 {
		return job.Holder() + "/batch"
	}
	return fmt.Sprintf("%s/device/%d", job.Holder(), device)
}

func (w *world) begin(job fleet.Job, device int64) jobs.Begun {
	w.t.Helper()
	b, err := w.svc.Begin(w.ctx(), workflowID(job, device))
	must(w.t, err)
	return b
}

func (w *world) finish(job fleet.Job, device int64, status fleet.JobDeviceStatus, code codes.Failure) {
	w.t.Helper()
	must(w.t, w.svc.Finish(w.ctx(), workflowID(job, device), device, jobs.Ending{Status: status, Code: code, Message: string(code)}))
}

// temporal remembers what it was told.
type temporal struct {
	mu        sync.Mutex
	started   []string
	cancelled []string
	fail      error
	meanwhile func(fleet.Execution)
}

func (t *temporal) Start(_ context.Context, e fleet.Execution) error {
	if t.meanwhile != nil {
		t.meanwhile(e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail == nil {
		t.started = append(t.started, e.WorkflowID)
	}
	return t.fail
}

func (t *temporal) Cancel(_ context.Context, e fleet.Execution) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail == nil {
		t.cancelled = append(t.cancelled, e.WorkflowID)
	}
	return t.fail
}

// dispatch hands over all that is due.
func (w *world) dispatch(to *temporal) (n int) {
	w.t.Helper()
	for range 10_000 {
		found, err := w.svc.Dispatch(w.ctx(), to)
		must(w.t, err)
		if !found {
			return n
		}
		n++
	}
	w.t.Fatal("dispatching has no end")
	return n
}

func object(t testing.TB, v map[string]any) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(v)
	must(t, err)
	return body
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
