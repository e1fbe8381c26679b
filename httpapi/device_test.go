package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

func TestADeviceShowsItsStatusWithWhatDecidedIt(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready, maintenance))
	d := w.get(fmt.Sprintf("/api/v1/devices/%d/", id))
	for field, want := range map[string]any{
		"name": "gpu-1", "site": "lab", "operational_status": "quarantine", "rung": "maintenance", "status_fresh": true, "held": false,
		"triage_ticket_url": nil, "parent_ticket_url": nil, "ironic_provision_state": "available", "infrastructure_ref": "gpu-1", "chassis_health": nil,
	} {
		if d[field] != want {
			t.Errorf("%s is %v, want %v", field, d[field], want)
		}
	}
	decided := d["operational_status_conditions"].([]any)
	if len(decided) != 1 || decided[0].(map[string]any)["type"] != "Maintenance" || decided[0].(map[string]any)["status"] != "True" {
		t.Errorf("decided by %v, want Maintenance True", decided)
	}
}

func TestSilenceShowsAsUnknownWithTheLastValueBesideIt(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	w.pass(time.Hour)
	must(t, w.svc.FailSweep(w.ctx(), w.lab.ID, "ironic", owner, 1, "IronicUnreachable"))

	d := w.get(fmt.Sprintf("/api/v1/devices/%d/", id))
	if d["operational_status"] != "available" || d["status_fresh"] != false || len(d["stale_conditions"].([]any)) == 0 {
		t.Errorf("status %v, fresh %v, stale %v: want available, held up by stale values", d["operational_status"], d["status_fresh"], d["stale_conditions"])
	}
	all := w.get(fmt.Sprintf("/api/v1/device-conditions/?device=%d&type=Enrolled", id))
	got := all["items"].([]any)[0].(map[string]any)
	want := map[string]any{"status": "True", "reason": got["last"].(map[string]any)["reason"], "message": ""}
	if got["status"] != "Unknown" || got["reason"] != "IronicUnreachable" || got["stale"] != true || !cmp.Equal(got["last"], any(want)) {
		t.Errorf("shown as %v", got)
	}
	if n := len(w.get("/api/v1/device-conditions/?status=True")["items"].([]any)); n != 0 {
		t.Errorf("%d stale conditions are listed as True", n)
	}
	if n := len(w.get("/api/v1/device-conditions/?status=Unknown&type=Enrolled")["items"].([]any)); n != 1 {
		t.Errorf("%d stale conditions are listed as Unknown, want 1", n)
	}
}

func TestSlurmsMirrorTellsWhenItWasLastConfirmed(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(leased))
	w.pass(time.Minute)
	w.apply(w.lab, "slurm", fleet.Reading{Ref: "gpu-1", Device: id, Facts: slurm(facts.SlurmIdle | facts.SlurmDrain)})
	seen := w.clock()
	d := w.get(fmt.Sprintf("/api/v1/devices/%d/", id))
	if !cmp.Equal(d["slurm_states"], any([]any{"IDLE", "DRAIN"})) || d["slurm_state_updated_at"] != seen.Format(time.RFC3339) {
		t.Errorf("slurm_states %v of %v, want those of %v", d["slurm_states"], d["slurm_state_updated_at"], seen)
	}
	later := w.pass(time.Minute)
	w.finish(w.lab, "slurm")
	items := w.get("/api/v1/devices/?slurm_states=DRAIN&slurm_states=DOWN")["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["slurm_state_updated_at"] != later.Format(time.RFC3339) {
		t.Errorf("listed %v, want one confirmed at %v", items, later)
	}
}

func TestASingleDeviceIsNotSentAgainWhileItIsTheSame(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	path := fmt.Sprintf("/api/v1/devices/%d/", id)
	tag := w.ask(w.token, http.MethodGet, path, nil).Header.Get("ETag")
	again := func() answer {
		return w.ask(w.token, http.MethodGet, path, nil, func(r *http.Request) { r.Header.Set("If-None-Match", `"other", W/`+tag) })
	}
	if a := again(); a.Status != http.StatusNotModified || len(a.Body) != 0 {
		t.Errorf("answered %d with %d bytes, want 304", a.Status, len(a.Body))
	}
	w.pass(time.Second)
	w.apply(w.lab, "ironic", fleet.Reading{Ref: "gpu-1", Facts: node(ready, maintenance)})
	if a := again(); a.Status != http.StatusOK || a.Header.Get("ETag") == tag {
		t.Errorf("answered %d after a change", a.Status)
	}
}

func TestListsArePagedInAStableOrder(t *testing.T) {
	w := newWorld(t)
	var want []any
	for i := range 7 {
		want = append(want, float64(w.bear(w.lab, fmt.Sprintf("gpu-%d", i), node(ready))))
	}
	for _, path := range []string{"/api/v1/devices/?limit=3&site=lab", "/api/v1/devices?limit=1"} {
		var got []any
		for next := any(path); next != nil; {
			page := w.get(next.(string))
			got = append(got, column(page, "id")...)
			next = page["next"]
			if len(got) > len(want) {
				break
			}
		}
		if !cmp.Equal(got, want) {
			t.Errorf("%s: paged to %v, want %v", path, got, want)
		}
	}
	var types, paged []any
	whole := w.get("/api/v1/device-conditions/?limit=1000")
	types = column(whole, "type")
	for next := any("/api/v1/device-conditions/?limit=4"); next != nil; {
		page := w.get(next.(string))
		paged = append(paged, column(page, "type")...)
		next = page["next"]
	}
	if len(types) < 7*8 || !cmp.Equal(paged, types) {
		t.Errorf("%d conditions paged, %d in one page", len(paged), len(types))
	}
}

func TestDevicesAreFiltered(t *testing.T) {
	w := newWorld(t)
	a := w.bear(w.lab, "Alpha-1", node(ready))
	b := w.bear(w.lab, "beta_1", node(maintenance))
	c := w.bear(w.annex, "alpha-2", node(leased))
	gone := w.bear(w.annex, "alpha-3", node())
	w.exec("update devices set retired_at = now() where id = $1", gone)
	w.exec("update devices set customer_ready = true where id = $1", a)
	w.exec("update devices set in_triage = true, serial = 'S1', serial_key = 'S1' where id = $1", b)
	w.exec("insert into racks (site_id, source_ref, name) values ($1, 'r1', 'R 1')", w.annex.ID)
	w.exec("update devices set rack_id = (select id from racks) where id = $1", c)
	for query, want := range map[string][]int64{
		"":                              {a, b, c},
		"name=%20%20":                   {a, b, c},
		"name=ALPHA-1":                  {a},
		"name=alpha-*":                  {a, c},
		"name=beta%251":                 {},
		"name=alpha-1&name=beta_1":      {a, b},
		"site=annex":                    {c},
		"site=nowhere":                  {},
		"serial=s1":                     {b},
		"rack=R+1":                      {c},
		"rack_id=999999999999999":       {},
		"operational_status=available":  {a},
		"operational_status=quarantine": {b, c},
		"operational_status=available&operational_status=quarantine": {a, b, c},
		"customer_ready=true":              {a},
		"in_triage=true":                   {b},
		"in_triage=false&site=lab":         {a},
		"inventory_only=true":              {},
		"retired=true":                     {gone},
		"retired=any&site=annex":           {c, gone},
		fmt.Sprintf("id=%d&id=%d", a, c):   {a, c},
		"health_status=unknown&site=annex": {c},
	} {
		got := []int64{}
		for _, id := range column(w.get("/api/v1/devices/?"+query), "id") {
			got = append(got, int64(id.(float64)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("?%s: devices %v, want %v", query, got, want)
		}
	}
}

func TestHistoryIsReadNewestFirstWithItsEnds(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	changed := w.pass(time.Second)
	w.apply(w.lab, "ironic", fleet.Reading{Ref: "gpu-1", Facts: node(ready, maintenance)})
	w.pass(time.Second)
	w.apply(w.lab, "ironic", fleet.Reading{Ref: "gpu-1", Facts: node(ready)})

	path := fmt.Sprintf("/api/v1/devices/%d/lifecycle-events/?kind=operational&limit=2", id)
	first := w.get(path)
	if got := column(first, "value"); !cmp.Equal(got, []any{"available", "quarantine"}) {
		t.Fatalf("values %v", got)
	}
	newest, older := first["items"].([]any)[0].(map[string]any), first["items"].([]any)[1].(map[string]any)
	if newest["ended_at"] != nil || older["ended_at"] != newest["created_at"] || newest["rung"] != "customer-available" || older["rung"] != "maintenance" {
		t.Errorf("newest %v, older %v", newest, older)
	}
	if older["created_at"] != changed.Format(time.RFC3339) || older["cause"].(map[string]any)["type"] != "snapshot" || older["bundle_version"] == nil {
		t.Errorf("older %v", older)
	}
	last := w.get(first["next"].(string))
	born := last["items"].([]any)[0].(map[string]any)
	if born["cause"].(map[string]any)["type"] != "birth" || born["ended_at"] != older["created_at"] || last["next"] != nil {
		t.Errorf("the row on the second page is %v", born)
	}
	present := []any{}
	all := w.get(fmt.Sprintf("/api/v1/devices/%d/lifecycle-events/", id))
	for _, item := range all["items"].([]any) {
		if event := item.(map[string]any); event["ended_at"] == nil {
			present = append(present, event["kind"])
		}
	}
	if len(all["items"].([]any)) != 5 || len(present) != 3 {
		t.Errorf("%d rows, want a birth of each kind and two changes; present are %v", len(all["items"].([]any)), present)
	}
}

func TestExplainGivesEveryRungWithItsPlace(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready, maintenance))
	e := w.get(fmt.Sprintf("/api/v1/devices/%d/explain/", id))
	status := e["operational"].(map[string]any)
	if status["rung"] != "maintenance" || status["outcome"] != "quarantine" || len(status["steps"].([]any)) < 10 {
		t.Errorf("operational: %v", status)
	}
	first := status["steps"].([]any)[0].(map[string]any)
	failed := first["failed"].(map[string]any)
	if first["rung"] != "provision-failed" || failed["path"] != "conditions.ProvisionFailed" || failed["actual"] != "False" || len(failed["pos"].(string)) == 0 {
		t.Errorf("first rung: %v", first)
	}
	if e["facts"].(map[string]any)["ironic"] == nil || len(e["writers"].([]any)) < 3 || len(e["sources"].([]any)) != 1 {
		t.Errorf("facts, writers or sources are missing: %v", e)
	}
}

func TestAnEventIsReplayed(t *testing.T) {
	w := newWorld(t)
	id, other := w.bear(w.lab, "gpu-1", node(ready, maintenance)), w.bear(w.lab, "gpu-2", node(ready))
	w.pass(time.Second)
	w.apply(w.lab, "ironic", fleet.Reading{Ref: "gpu-1", Facts: node(ready)})
	events := w.get(fmt.Sprintf("/api/v1/devices/%d/lifecycle-events/?kind=operational", id))["items"].([]any)
	birth := events[1].(map[string]any)["id"].(float64)
	e := w.get(fmt.Sprintf("/api/v1/devices/%d/explain/?event=%.0f", id, birth))
	if got := e["operational"].(map[string]any)["rung"]; got != "maintenance" {
		t.Errorf("replayed to %v, want maintenance", got)
	}
	w.ask(w.token, http.MethodGet, fmt.Sprintf("/api/v1/devices/%d/explain/?event=%.0f", other, birth), nil).refused(http.StatusNotFound, "event_not_found")
	w.ask(w.token, http.MethodGet, fmt.Sprintf("/api/v1/devices/%d/explain/?event=99999", id), nil).refused(http.StatusNotFound, "event_not_found")
}
