package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

func TestSourcesTellHowWellTheyAreRead(t *testing.T) {
	w := newWorld(t)
	w.finish(w.lab, "ironic")
	w.pass(time.Hour)
	w.finish(w.lab, "slurm")
	must(t, w.svc.FailSweep(w.ctx(), w.lab.ID, "ironic", owner, 1, "IronicUnreachable"))
	v := w.get("/api/v1/sites/lab/sources/")
	if got := column(v, "source"); !cmp.Equal(got, []any{"ironic", "slurm"}) {
		t.Fatalf("sources %v", got)
	}
	if stale, reason := column(v, "stale"), column(v, "reason"); !cmp.Equal(stale, []any{true, false}) || !cmp.Equal(reason, []any{"IronicUnreachable", nil}) {
		t.Errorf("stale %v because of %v", stale, reason)
	}
	first := w.get("/api/v1/sites/lab/sources/?limit=1")
	if rest := w.get(first["next"].(string)); !cmp.Equal(column(rest, "source"), []any{"slurm"}) || rest["next"] != nil {
		t.Errorf("the second page has %v", rest)
	}
	sites := w.get("/api/v1/sites/?limit=1")
	if rest := w.get(sites["next"].(string)); !cmp.Equal(column(sites, "name"), []any{"annex"}) || !cmp.Equal(column(rest, "name"), []any{"lab"}) || rest["next"] != nil {
		t.Errorf("sites %v, then %v", sites, rest)
	}
	w.ask(w.token, http.MethodGet, "/api/v1/sites/lab/sources/netbox/", nil).refused(http.StatusNotFound, "source_not_found")
	w.ask(w.token, http.MethodGet, "/api/v1/sites/moon/sources/", nil).refused(http.StatusNotFound, "site_not_found")
}

func TestAPersonConfirmsExactlyTheSetThatWasLookedAt(t *testing.T) {
	w := newWorld(t)
	missing := func(refs ...string) {
		t.Helper()
		var findings []fleet.Finding
		for _, ref := range refs {
			findings = append(findings, fleet.Finding{Kind: fleet.FindingMissing, Ref: ref})
		}
		findings = append(findings, fleet.Finding{Kind: fleet.FindingUnjoined, Ref: "x", Detail: map[string]any{"name": "stranger"}})
		must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
			return store.ReplaceFindings(w.ctx(), tx, w.lab.ID, "ironic", []string{fleet.FindingMissing, fleet.FindingUnjoined}, findings)
		}))
	}
	const path = "/api/v1/sites/lab/sources/ironic/"
	confirm := func(hash any) answer {
		return w.post(w.token, "/sites/lab/sources/ironic/confirm/", fields{"hash": hash})
	}
	confirm("anything").refused(http.StatusConflict, "finding_changed")
	missing("a", "b")
	seen := w.get(path)["missing"].(map[string]any)
	if seen["count"] != 2.0 || !cmp.Equal(seen["refs"], any([]any{"a", "b"})) {
		t.Fatalf("missing %v", seen)
	}
	missing("a", "b", "c")
	confirm(seen["hash"]).refused(http.StatusConflict, "finding_changed")
	v := w.get(path + "?limit=3")
	if v["finding_counts"].(map[string]any)["missing"] != 3.0 || len(v["findings"].([]any)) != 3 || v["next"] == nil {
		t.Errorf("findings %v", v)
	}
	rest := w.get(v["next"].(string))["findings"].([]any)
	if len(rest) != 1 || rest[0].(map[string]any)["kind"] != "unjoined" {
		t.Errorf("the second page has %v", rest)
	}
	a := confirm(v["missing"].(map[string]any)["hash"])
	if a.Status != http.StatusOK || a.json()["confirmed"] != 3.0 {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	if n := w.count("select count(*) from audit where action = 'source.confirm' and principal = 'token:t1' and remote = '192.0.2.1'"); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	if n := w.count("select count(*) from source_confirmations where refs = '{a,b,c}' and used_at is null"); n != 1 {
		t.Errorf("%d confirmations, want 1", n)
	}
}

func TestTheSummaryNamesTheSourcesToLookAt(t *testing.T) {
	w := newWorld(t)
	w.finish(w.annex, "slurm")
	tell := func(source, kind, alert string) {
		t.Helper()
		f := devices.Finish{SiteID: w.lab.ID, Source: source, Owner: owner, Epoch: 1, At: w.clock(), Alert: alert, Kinds: []string{kind}}
		if kind != "" {
			f.Findings = []fleet.Finding{{Kind: kind, Ref: "x"}}
		}
		must(t, w.svc.FinishSweep(w.ctx(), f))
	}
	tell("slurm", fleet.FindingUnjoined, "")
	tell("ironic", "", "12 of 16 are missing")
	must(t, w.svc.FailSweep(w.ctx(), w.annex.ID, "ironic", owner, 1, "Stale"))
	if state := column(w.get("/api/v1/sites/lab/sources/"), "state"); !cmp.Equal(state, []any{"waiting", "good"}) {
		t.Errorf("the lab's sources are %v", state)
	}
	v := w.get("/api/v1/fleet/summary/")["sources"].([]any)
	var got []string
	for _, one := range v {
		row := one.(map[string]any)
		got = append(got, fmt.Sprint(row["site"], " ", row["source"], " ", row["state"], " ", row["alert"], " ", row["finding_counts"]))
	}
	if want := []string{"lab ironic waiting 12 of 16 are missing map[]", "annex ironic failing <nil> map[]", "lab slurm good <nil> map[unjoined:1]"}; !cmp.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
	_, cookie := w.login(w.token, "/ui/")
	text := w.ask("", http.MethodGet, "/ui/", nil, header("Cookie", cookie)).text()
	for _, want := range []string{"Sources to look at", "waits for a person: 12 of 16 are missing", "fails since", "unjoined 1", "muster source show lab ironic"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	annex := w.makeToken(store.Token{Scopes: []string{httpapi.DeviceRead}, Sites: []string{"annex"}})
	if seen := w.ask(annex, http.MethodGet, "/api/v1/fleet/summary/", nil).json()["sources"].([]any); len(seen) != 1 {
		t.Errorf("who sees the annex alone is told of %v", seen)
	}
}

// A listing that moved the watermark may still lack what only a person can say
// is gone; what the source itself is still asked for waits for nobody.
func TestASourceWhoseMissingSetWaitsForAPersonIsNotGood(t *testing.T) {
	w := newWorld(t)
	for why, want := range map[string]string{fleet.MissingUnconfirmed: "waiting", fleet.DecodeFailed: "good", "": "good"} {
		must(t, w.svc.FinishSweep(w.ctx(), devices.Finish{
			SiteID: w.lab.ID, Source: "slurm", Owner: owner, Epoch: 1, At: w.clock(), Kinds: []string{fleet.FindingMissing},
			Findings: []fleet.Finding{{Kind: fleet.FindingMissing, Ref: "x", Detail: map[string]any{"why": why}}},
		}))
		if state := w.get("/api/v1/sites/lab/sources/slurm/")["state"]; state != want {
			t.Errorf("what is missing because of %q leaves the source %v, want %s", why, state, want)
		}
		_, cookie := w.login(w.token, "/ui/")
		if got := strings.Contains(w.ask("", http.MethodGet, "/ui/", nil, header("Cookie", cookie)).text(), "waits for a person"); got != (want == "waiting") {
			t.Errorf("%q: the page says that a person is waited for: %v", why, got)
		}
	}
}

func TestAPersonAllowsALoginThatABMCRefused(t *testing.T) {
	w := newWorld(t)
	spec := w.lab.Spec
	spec.Sources.Recorded = map[string]string{"ironic": "x", "slurm": "x", "bmc": "x"}
	must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
		site, err := store.PutSite(w.ctx(), tx, fleet.Site{ID: w.lab.ID, Revision: w.lab.Revision, Spec: spec, AppliedBy: "test"})
		if err != nil {
			return err
		}
		return store.EnsureSweeps(w.ctx(), tx, []fleet.Site{site})
	}))
	one, two, other := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready)), w.bear(w.annex, "gpu-3", node(ready))
	for id, address := range map[int64]string{one: "192.0.2.1", two: "192.0.2.2", other: "192.0.2.3"} {
		w.exec("update devices set bmc_address = $2 where id = $1", id, address)
	}
	allow := func(body fields) answer { return w.post(w.token, "/sites/lab/sources/bmc/allow-login/", body) }
	for _, body := range []fields{{}, {"all": false}, {"address": ""}, {"address": "192.0.2.1", "all": true}} {
		allow(body).refused(http.StatusBadRequest, "request_invalid")
	}
	allow(fields{"address": "192.0.2.9"}).refused(http.StatusNotFound, "device_not_found")
	allow(fields{"device_id": other}).refused(http.StatusNotFound, "device_not_found")
	w.exec("update sweeps set due_at = now() + interval '1 year'")
	for _, try := range []struct {
		body fields
		want []any
	}{{fields{"address": "192.0.2.1/24"}, []any{"192.0.2.1"}}, {fields{"device_id": two}, []any{"192.0.2.2"}}, {fields{"all": true}, []any{}}} {
		a := allow(try.body)
		if a.Status != http.StatusOK || !cmp.Equal(a.json()["addresses"], any(try.want)) {
			t.Errorf("%v: %d %s", try.body, a.Status, a.Body)
		}
	}
	if n := w.count("select count(*) from sweeps where site_id = $1 and source = 'bmc' and due_at < now() + interval '1 hour'", w.lab.ID); n != 1 {
		t.Error("no round is asked for")
	}
	if n := w.count("select count(*) from audit where action = 'source.allow_login' and principal = 'token:t1' and remote = '192.0.2.1'"); n != 3 {
		t.Errorf("%d audit rows, want 3", n)
	}
	permissions, err := store.LoginsAllowed(w.ctx(), w.db, w.lab.ID, "bmc", 0)
	if err != nil || len(permissions) != 3 {
		t.Fatalf("%v %v", permissions, err)
	}
	if rest, err := store.LoginsAllowed(w.ctx(), w.db, w.lab.ID, "bmc", permissions[1].ID); err != nil || len(rest) != 1 || len(rest[0].Addresses) != 0 {
		t.Errorf("behind the second are %v, %v", rest, err)
	}
}

func TestTheSummaryCountsTheFleet(t *testing.T) {
	w := newWorld(t)
	w.bear(w.lab, "gpu-1", node(ready))
	w.bear(w.lab, "gpu-2", node(ready, maintenance))
	w.bear(w.annex, "gpu-3", node(ready))
	only, gone := w.bear(w.annex, "gpu-4", node()), w.bear(w.annex, "gpu-5", node())
	w.exec("update devices set inventory_only = true where id = $1", only)
	w.exec("update devices set retired_at = now() where id = $1", gone)
	w.exec("update devices set customer_ready = true where name = 'gpu-1'")
	w.pass(time.Second)
	w.apply(w.lab, "ironic", fleet.Reading{Ref: "gpu-1", Facts: node(ready, maintenance)})

	v := w.get("/api/v1/fleet/summary/")
	total := v["total"].(map[string]any)
	for field, want := range map[string]any{
		"devices": 3.0, "operational_status": map[string]any{"quarantine": 2.0, "available": 1.0}, "health_status": fields{"unknown": 3.0},
		"inventory_status": fields{"active": 3.0}, "customer_ready": 0.0, "stale": 0.0, "inventory_only": 1.0,
	} {
		if !cmp.Equal(total[field], want) {
			t.Errorf("%s: %v, want %v", field, total[field], want)
		}
	}
	recent := v["recent_changes"].([]any)
	if len(recent) != 1 || recent[0].(map[string]any)["from"] != "available" || recent[0].(map[string]any)["name"] != "gpu-1" {
		t.Errorf("recent changes %v", recent)
	}
	w.pass(time.Hour)
	w.finish(w.annex, "ironic", "slurm")
	sites := w.get("/api/v1/fleet/summary/")["sites"].([]any)
	expected := []fields{
		{"site": "annex", "devices": 1.0, "stale": 0.0, "stale_sources": []any{}},
		{"site": "lab", "devices": 2.0, "stale": 2.0, "stale_sources": []any{"ironic", "slurm"}},
	}
	for i, want := range expected {
		for field := range want {
			if got := sites[i].(map[string]any)[field]; !cmp.Equal(got, want[field]) {
				t.Errorf("%v: %s is %v, want %v", want["site"], field, got, want[field])
			}
		}
	}
	annex := w.makeToken(store.Token{Scopes: []string{httpapi.DeviceRead}, Sites: []string{"annex"}})
	if seen := w.ask(annex, http.MethodGet, "/api/v1/fleet/summary/", nil).json(); len(seen["recent_changes"].([]any)) != 0 || seen["total"].(map[string]any)["devices"] != 1.0 {
		t.Errorf("who sees the annex alone is told %v", seen)
	}
}

func TestRacksTellHowTheirDevicesStand(t *testing.T) {
	w := newWorld(t)
	w.bear(w.lab, "gpu-1", node(ready))
	w.bear(w.lab, "gpu-2", node(ready, maintenance))
	w.exec("insert into racks (site_id, source_ref, name) values ($1, 'r1', 'R1'), ($1, 'r2', 'R2'), ($2, 'r1', 'R1')", w.lab.ID, w.annex.ID)
	w.exec("update devices set rack_id = (select min(id) from racks)")
	first := w.get("/api/v1/racks/?limit=1&site=lab")
	rack := first["items"].([]any)[0].(map[string]any)
	if rack["name"] != "R1" || rack["site"] != "lab" || rack["devices"] != 2.0 || !cmp.Equal(rack["operational_status"], any(fields{"available": 1.0, "quarantine": 1.0})) {
		t.Errorf("rack %v", rack)
	}
	if rest := w.get(first["next"].(string)); !cmp.Equal(column(rest, "ref"), []any{"r2"}) || rest["next"] != nil {
		t.Errorf("the second page has %v", rest)
	}
}
