package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
)

const slurmProject, owner = "6f70656e737461636b", "test"

// shipped is the product's own bundle, loaded once for all tests. What it does
// not let be submitted yet, it does.
var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	files, err := available()
	if err != nil {
		return nil, err
	}
	b, _, err := engine.Load(engine.Tree(files), engine.Options{})
	return b, err
})

// available is the shipped bundle with every workflow available.
func available() (map[string][]byte, error) {
	files, err := engine.Files(muster.Bundle())
	for name, data := range files {
		if strings.HasPrefix(name, "policies/workflows/") {
			files[name] = unavailable.ReplaceAll(data, []byte("available: true"))
		}
	}
	return files, err
}

var unavailable = regexp.MustCompile(`available: +false`)

// policies is a bundle that a test holds in its hands.
type policies struct {
	bundle atomic.Pointer[engine.Bundle]
	status atomic.Pointer[devices.PolicyStatus]
}

func (p *policies) Current() *engine.Bundle { return p.bundle.Load() }
func (p *policies) Status() devices.PolicyStatus {
	if s := p.status.Load(); s != nil {
		return *s
	}
	b := p.bundle.Load()
	return devices.PolicyStatus{Active: b.Version(), Loaded: b.Version(), LoadedAt: time.Now()}
}

func (p *policies) Refresh(context.Context) (*engine.Bundle, error) {
	if b := p.bundle.Load(); b != nil {
		return b, nil
	}
	return nil, devices.ErrNoPolicy
}

func (p *policies) Bundle(_ context.Context, version string) (*engine.Bundle, error) {
	if b := p.bundle.Load(); b != nil && b.Version() == version {
		return b, nil
	}
	return nil, store.ErrNotFound
}

// world is a server on a database with two sites, whose clock a test moves.
type world struct {
	t        testing.TB
	db       *store.DB
	svc      *devices.Service
	jobs     *jobs.Service
	policies *policies
	server   *httpapi.Server
	handler  http.Handler
	registry *prometheus.Registry
	log      *bytes.Buffer // written under the lock of the logger
	lab      fleet.Site
	annex    fleet.Site
	racks    *operations.Service
	now      atomic.Int64
	token    string // may everything
	tokens   int
	shapes   map[string]int // answers by operation and status
}

// validators compiles the schema of rules once for all tests.
var validators = sync.OnceValues(func() (*rule.Validator, error) { return rule.New(muster.Bundle()) })

func prepare(url string) error {
	b, err := shipped()
	if err != nil {
		return err
	}
	files, err := available()
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for name, data := range files {
		if strings.HasPrefix(name, "policies/") {
			texts[name] = string(data)
		}
	}
	return storetest.Active(url, storetest.Bundle{Version: b.Version(), Semantics: engine.Semantics, Types: b.TypeNames(), Files: texts})
}

// newWorld makes a server. change may alter what it is made of.
func newWorld(t testing.TB, change ...func(*httpapi.Deps)) *world {
	t.Helper()
	if parallel, ok := t.(*testing.T); ok {
		parallel.Parallel()
	}
	bundle, err := shipped()
	must(t, err)
	w := &world{t: t, policies: &policies{}, registry: prometheus.NewRegistry(), log: &bytes.Buffer{}, shapes: map[string]int{}}
	w.policies.bundle.Store(bundle)
	w.now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	w.db, err = store.Open(t.Context(), pgtest.Template(t, "api", prepare), store.Options{MaxConns: 8})
	must(t, err)
	t.Cleanup(w.db.Close)
	w.svc = devices.New(w.db, w.policies, w.clock, hclog.NewNullLogger())
	w.jobs = jobs.New(w.db, w.svc, w.policies, w.clock, hclog.NewNullLogger(), jobs.Options{
		Implemented: func(slug string) (jobs.Implementation, bool) { return jobs.Implementation{}, slug != "node_swap" },
	})
	validator, err := validators()
	must(t, err)
	w.racks = operations.New(w.db, w.svc, w.jobs, w.policies, validator, w.clock, hclog.NewNullLogger(), operations.Options{})
	w.lab, w.annex = w.site("lab"), w.site("annex")
	log := hclog.New(&hclog.LoggerOptions{Output: w.log, Level: hclog.Debug, JSONFormat: true})
	deps := httpapi.Deps{
		DB: w.db, Devices: w.svc, Policies: w.policies, Jobs: w.jobs, Operations: w.racks, Auth: httpapi.Tokens{DB: w.db, Clock: w.clock}, Clock: w.clock,
		Log: log, Registry: w.registry, Rate: httpapi.Rate{PerSecond: 1e6},
	}
	for _, f := range change {
		f(&deps)
	}
	w.server, err = httpapi.New(deps)
	must(t, err)
	w.handler = w.server.Handler()
	w.token = w.makeToken(store.Token{Scopes: httpapi.Scopes(), Writer: "custody"})
	return w
}

func (w *world) ctx() context.Context           { return w.t.Context() }
func (w *world) clock() time.Time               { return time.Unix(0, w.now.Load()).UTC() }
func (w *world) pass(d time.Duration) time.Time { w.now.Add(int64(d)); return w.clock() }

func (w *world) site(name string) fleet.Site {
	w.t.Helper()
	spec := fleet.SiteSpec{
		Name: name, EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true,
		CustomerReadyTrait: "CUSTOM_READY", Lessees: fleet.Lessees{Enrol: "656e726f6c", Slurm: slurmProject, Maintenance: "6d61696e74"},
		Sources: fleet.Sources{Recorded: map[string]string{"ironic": "x", "slurm": "x"}}, Imaging: &fleet.Imaging{Direct: &fleet.DirectImaging{Image: "x"}},
	}
	var site fleet.Site
	must(w.t, w.db.Tx(w.ctx(), func(tx pgx.Tx) (err error) {
		site, err = store.PutSite(w.ctx(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}))
	w.exec("update sweeps set owner = $1, epoch = 1 where site_id = $2", owner, site.ID)
	return site
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(w.ctx(), sql, args...)
	must(w.t, err)
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.ctx(), sql, args...).Scan(&n))
	return n
}

// makeToken keeps a token and gives its text.
func (w *world) makeToken(t store.Token) string {
	w.t.Helper()
	plain, hash := httpapi.NewToken()
	w.tokens++
	t.Name, t.Hash, t.CreatedBy = "t"+string(rune('0'+w.tokens%10)), hash, "test"
	_, err := store.CreateToken(w.ctx(), w.db, t)
	must(w.t, err)
	return plain
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

func ready(i *facts.Ironic)       { i.Traits = []string{"CUSTOM_READY"} }
func maintenance(i *facts.Ironic) { i.Maintenance = facts.True }
func leased(i *facts.Ironic) {
	i.Lessee, i.ProvisionState = facts.TextOf(slurmProject), facts.ProvisionStateActive
}

func slurm(states facts.SlurmStates) facts.Facts {
	var f facts.Facts
	f.Slurm = facts.Slurm{States: states, Reason: facts.TextOf("")}
	return f
}

// apply gives one reading of a ref to a site's source.
func (w *world) apply(site fleet.Site, source string, r fleet.Reading) devices.Applied {
	w.t.Helper()
	r.Name, r.At = r.Ref, w.clock()
	if source == "ironic" {
		r.Facts.Ironic.Name = facts.TextOf(r.Ref)
	}
	applied, err := w.svc.Apply(w.ctx(), fleet.Batch{SiteID: site.ID, Source: source, Owner: owner, Epoch: 1, Readings: []fleet.Reading{r}})
	must(w.t, err)
	return applied
}

// bear gives birth to a device by an Ironic node and ends the sweeps.
func (w *world) bear(site fleet.Site, ref string, f facts.Facts) int64 {
	w.t.Helper()
	applied := w.apply(site, "ironic", fleet.Reading{Ref: ref, Facts: f, Birth: true})
	if len(applied.Born) != 1 {
		w.t.Fatalf("no device was born: %+v", applied)
	}
	w.finish(site, "ironic", "slurm")
	return applied.Born[0]
}

// finish ends sweeps now.
func (w *world) finish(site fleet.Site, sources ...string) {
	w.t.Helper()
	for _, source := range sources {
		must(w.t, w.svc.FinishSweep(w.ctx(), devices.Finish{SiteID: site.ID, Source: source, Owner: owner, Epoch: 1, At: w.clock()}))
	}
}

// answer is what the server said.
type answer struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

// ask sends a request as the holder of a token; "" sends none. A body that is
// no text is sent as JSON.
func (w *world) ask(token, method, path string, body any, change ...func(*http.Request)) answer {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		must(w.t, err)
		reader = bytes.NewReader(data)
	}
	r := httptest.NewRequestWithContext(w.ctx(), method, path, reader)
	if reader != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range change {
		f(r)
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	a := answer{w.t, rec.Code, rec.Header(), rec.Body.Bytes()}
	w.shapes[method+" "+w.server.TemplateOf(r)+" "+http.StatusText(a.Status)]++
	if a.Status == http.StatusOK || w.shapes[method+" "+w.server.TemplateOf(r)+" "+http.StatusText(a.Status)] <= 3 { // checking takes longer than answering
		w.checkShape(r, a)
	}
	return a
}

// get asks with the token that may everything, and wants an answer.
func (w *world) get(path string) map[string]any {
	w.t.Helper()
	a := w.ask(w.token, http.MethodGet, path, nil)
	if a.Status != http.StatusOK {
		w.t.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
	}
	return a.json()
}

func (a answer) json() map[string]any {
	a.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.Body, &v); err != nil {
		a.t.Fatalf("not JSON: %v: %s", err, a.Body)
	}
	return v
}

// refused wants a problem document with a status and code, and gives what it
// says is wrong, by pointer or parameter.
func (a answer) refused(status int, code string) map[string]string {
	a.t.Helper()
	v := map[string]any{}
	if a.Header.Get("Content-Type") == "application/problem+json" {
		v = a.json()
	}
	if a.Status != status || v["code"] != code || v["status"] != float64(status) || v["detail"] == "" {
		a.t.Fatalf("answered %d %s, want %d %s", a.Status, a.Body, status, code)
	}
	faults := map[string]string{}
	all, _ := v["errors"].([]any)
	for _, one := range all {
		f := one.(map[string]any)
		where, ok := f["pointer"].(string)
		if !ok {
			where, _ = f["parameter"].(string)
		}
		faults[where], _ = f["detail"].(string)
	}
	return faults
}

// column lists one field of the items of a list.
func column(v map[string]any, name string) []any {
	values := []any{}
	for _, item := range v["items"].([]any) {
		values = append(values, item.(map[string]any)[name])
	}
	return values
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
