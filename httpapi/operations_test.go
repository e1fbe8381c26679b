package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

// rack makes a rack of two trays and a shelf.
func (w *world) rack(site fleet.Site, name string) (int64, map[string]int64) {
	w.t.Helper()
	var rack int64
	must(w.t, w.db.QueryRow(w.ctx(), "insert into racks (site_id, source_ref, name) values ($1, $2, $2) returning id", site.ID, name).Scan(&rack))
	ids := map[string]int64{}
	for kind, class := range map[string]string{"c1": "gpu_compute", "c2": "gpu_compute", "p1": "powershelf"} {
		var id int64
		must(w.t, w.db.QueryRow(w.ctx(), `insert into devices (site_id, rack_id, name, name_key, device_class, inventory_status, operational_status, bmc_address)
			values ($1, $2, $3, $4, $5, 'active', 'quarantine', '10.0.0.1') returning id`, site.ID, rack, name+"-"+kind, fleet.NameKey(name+"-"+kind), class).Scan(&id))
		ids[kind] = id
	}
	// Enough of each class besides that caps which count shares let a whole rack go.
	w.exec(`insert into devices (site_id, name, name_key, device_class, inventory_status, operational_status)
		select $1, $2 || c || n, lower($2 || c || n), c, 'active', 'quarantine' from unnest(array['gpu_compute', 'powershelf']) c, generate_series(1, 8) n`, site.ID, name+"-x")
	return rack, ids
}

// hall is a site of racks alone, without any source.
func (w *world) hall() fleet.Site {
	w.t.Helper()
	spec := fleet.SiteSpec{Name: "hall", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceFile, TraitBased: true, CustomerReadyTrait: "CUSTOM_READY"}
	var site fleet.Site
	must(w.t, w.db.Tx(w.ctx(), func(tx pgx.Tx) (err error) {
		site, err = store.PutSite(w.ctx(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}))
	return site
}

func (w *world) operate(kind string, body fields, change ...func(*http.Request)) answer {
	w.t.Helper()
	if body["reason"] == nil {
		body["reason"] = "CHG-1"
	}
	return w.ask(w.token, http.MethodPost, "/api/v1/operations/"+kind+"/", body, change...)
}

func firstTask(a answer) map[string]any {
	a.t.Helper()
	tasks, _ := a.json()["tasks"].([]any)
	if len(tasks) == 0 {
		a.t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	return tasks[0].(map[string]any)
}

func ownRule(operation, kind string) fields {
	return fields{"name": "own", "operation_type": "power_control", "operation": operation, "steps": []fields{{"component_type": kind, "stage": 1, "main_operation": fields{"name": "PowerControl"}}}}
}

func TestRulesAreKeptOverTheAPI(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack(w.hall(), "r1")
	rules := "/api/v1/operation-rules/"
	wrong := ownRule("power_on", "warp core")
	wrong["stepz"] = 1
	faults := w.ask(w.token, http.MethodPost, rules, fields{"rule": wrong}).refused(http.StatusUnprocessableEntity, operations.CodeRuleInvalid)
	if len(faults) != 2 || faults["/rule/steps/0/component_type"] == "" || faults["/rule/stepz"] == "" {
		t.Errorf("wrong are %v", faults)
	}
	a := w.ask(w.token, http.MethodPost, rules, fields{"rule": ownRule("power_on", "Compute"), "is_default": true})
	if a.Status != http.StatusCreated {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	one := a.Header.Get("Location")
	w.ask(w.token, http.MethodPost, rules, fields{"rule": ownRule("power_on", "compute"), "is_default": true}).refused(http.StatusConflict, operations.CodeDefaultExists)
	w.ask(w.token, http.MethodDelete, one, nil).refused(http.StatusConflict, operations.CodeRuleInUse)
	second := w.ask(w.token, http.MethodPost, rules, fields{"rule": ownRule("power_on", "nvswitch")}).json()["id"]
	if a := w.ask(w.token, http.MethodPost, fmt.Sprintf("%s%v/set-default/", rules, second), nil); a.Status != http.StatusOK || a.json()["is_default"] != true {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	bind := fmt.Sprintf("/api/v1/racks/%d/operation-rules/power_on/", rack)
	if a := w.ask(w.token, http.MethodPut, bind, fields{"rule_id": second}); a.Status != http.StatusOK || len(a.json()["racks"].([]any)) != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	bound := fmt.Sprintf("/api/v1/racks/%d/operation-rules/", rack)
	if page := w.get(bound); len(column(page, "id")) != 1 || column(page, "id")[0] != second || fmt.Sprint(column(page, "racks")) != fmt.Sprintf("[[%d]]", rack) {
		t.Errorf("the rack is bound to %v", page)
	}
	other, _ := w.rack(w.lab, "r2")
	if ids := column(w.get(fmt.Sprintf("/api/v1/racks/%d/operation-rules/", other)), "id"); len(ids) != 0 {
		t.Errorf("a rack without rules of its own has %v", ids)
	}
	w.ask(w.token, http.MethodGet, "/api/v1/racks/999/operation-rules/", nil).refused(http.StatusNotFound, operations.CodeRackNotFound)
	w.ask(w.makeToken(store.Token{Scopes: []string{"rule:read"}, Sites: []string{"annex"}}), http.MethodGet, bound, nil).refused(http.StatusNotFound, operations.CodeRackNotFound)
	w.ask(w.token, http.MethodPut, fmt.Sprintf("/api/v1/racks/%d/operation-rules/power_off/", rack), fields{"rule_id": second}).refused(http.StatusBadRequest, operations.CodeRuleMismatch)
	w.ask(w.token, http.MethodPut, "/api/v1/racks/999/operation-rules/power_on/", fields{"rule_id": second}).refused(http.StatusNotFound, operations.CodeRackNotFound)
	elsewhere := w.makeToken(store.Token{Scopes: []string{"rule:write"}, Sites: []string{"annex"}})
	w.ask(elsewhere, http.MethodDelete, bind, nil).refused(http.StatusNotFound, operations.CodeRackNotFound)
	if a := w.ask(w.token, http.MethodDelete, bind, nil); a.Status != http.StatusNoContent {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	w.ask(w.token, http.MethodDelete, bind, nil).refused(http.StatusNotFound, operations.CodeRuleNotBound)
	if a := w.ask(w.token, http.MethodPut, one, fields{"rule": ownRule("power_on", "powershelf")}); a.Status != http.StatusOK || a.json()["revision"] != 2.0 || !strings.Contains(string(a.Body), "powershelf") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := w.ask(w.token, http.MethodDelete, one, nil); a.Status != http.StatusNoContent || len(a.Body) != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	w.ask(w.token, http.MethodGet, one, nil).refused(http.StatusNotFound, operations.CodeRuleNotFound)
	if ids := column(w.get(rules+"?operation=power_on&is_default=true&limit=1"), "id"); len(ids) != 1 || ids[0] != second {
		t.Errorf("the defaults are %v", ids)
	}
	w.ask(w.makeToken(store.Token{Scopes: []string{"rule:read"}}), http.MethodPost, rules, fields{"rule": ownRule("power_on", "compute")}).refused(http.StatusForbidden, "scope_missing")
}

// Rules are of every site: who may see some changes none that acts on others.
func TestATokenOfASiteChangesNoRuleOfOthers(t *testing.T) {
	w := newWorld(t)
	mine, _ := w.rack(w.hall(), "r1")
	rules := "/api/v1/operation-rules/"
	limited := w.makeToken(store.Token{Scopes: []string{"rule:read", "rule:write"}, Sites: []string{"hall"}})
	theirs := w.makeToken(store.Token{Scopes: []string{"rule:read", "rule:write"}, Sites: []string{"elsewhere"}})
	body := fields{"rule": ownRule("power_on", "compute")}
	shared := w.ask(w.token, http.MethodPost, rules, fields{"rule": ownRule("power_on", "compute"), "is_default": true}).Header.Get("Location")
	w.ask(limited, http.MethodPost, rules, fields{"rule": ownRule("power_off", "compute"), "is_default": true}).refused(http.StatusForbidden, operations.CodeSiteLimited)
	w.ask(limited, http.MethodPut, shared, body).refused(http.StatusForbidden, operations.CodeSiteLimited)
	w.ask(limited, http.MethodDelete, shared, nil).refused(http.StatusForbidden, operations.CodeSiteLimited)
	batch := fields{"version": "v1", "rules": []fields{ownRule("power_on", "compute"), ownRule("power_off", "compute")}}
	w.ask(limited, http.MethodPost, rules+"import/", fields{"batch": batch, "overwrite": true}).refused(http.StatusForbidden, operations.CodeSiteLimited)
	if ids := column(w.get(rules+"?operation=power_off"), "id"); len(ids) != 0 {
		t.Errorf("a batch that was refused left %v", ids)
	}

	made := w.ask(limited, http.MethodPost, rules, body)
	own, id := made.Header.Get("Location"), made.json()["id"]
	w.ask(limited, http.MethodPost, own+"set-default/", nil).refused(http.StatusForbidden, operations.CodeSiteLimited)
	bind := fmt.Sprintf("/api/v1/racks/%d/operation-rules/power_on/", mine)
	for _, c := range []struct {
		method, path string
		body         any
		status       int
	}{{http.MethodPut, bind, fields{"rule_id": id}, http.StatusOK}, {http.MethodPut, own, body, http.StatusOK}} {
		if a := w.ask(limited, c.method, c.path, c.body); a.Status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		}
	}
	w.ask(theirs, http.MethodPut, own, body).refused(http.StatusForbidden, operations.CodeSiteLimited) // a rack of the hall goes by it
	for _, path := range []string{bind, own} {
		if a := w.ask(limited, http.MethodDelete, path, nil); a.Status != http.StatusNoContent {
			t.Errorf("DELETE %s: %d %s", path, a.Status, a.Body)
		}
	}
}

func TestABatchIsImportedAndChecked(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack(w.hall(), "r1")
	batch := fields{"version": "v1", "rules": []fields{ownRule("power_on", "compute"), ownRule("power_off", "compute")}}
	a := w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/validate/", batch)
	if a.Status != http.StatusOK || a.json()["valid"] != true || len(a.json()["rules"].([]any)) != 2 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a = w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/validate/", fields{"rules": []fields{ownRule("power_on", "compute")}})
	if problems := a.json()["problems"].([]any); a.Status != http.StatusOK || a.json()["valid"] != false || len(problems) != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, want := range []string{"created", "skipped"} {
		a := w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/import/", fields{"batch": batch})
		if a.Status != http.StatusOK || strings.Count(string(a.Body), `"outcome":"`+want+`"`) != 2 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	a = w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/import/", fields{"batch": batch, "overwrite": true})
	if strings.Count(string(a.Body), `"outcome":"replaced"`) != 2 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, body := range []fields{{"rack_id": rack, "operation": "power_off"}, {"rack_id": rack, "rule": ownRule("power_on", "compute")}} {
		a := w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/plan/", body)
		if a.Status != http.StatusOK || a.json()["components"].(map[string]any)["compute"] != 2.0 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	w.ask(w.token, http.MethodPost, "/api/v1/operation-rules/plan/", fields{"rack_id": 999, "operation": "power_off"}).refused(http.StatusNotFound, operations.CodeRackNotFound)
}

func TestAnOperationIsAskedForFollowedAndCancelled(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	a := w.operate("power", fields{"operation": "power_off", "racks": []any{"R1"}, "components": []any{"compute"}, "exclude": []any{of["c2"]}, "reason": "CHG-1"})
	task := firstTask(a)
	id := int64(task["id"].(float64))
	path := fmt.Sprintf("/api/v1/operations/tasks/%d/", id)
	if a.Status != http.StatusCreated || a.Header.Get("Location") != path || task["status"] != "pending" || task["rule_source"] != "builtin" || task["components"].(map[string]any)["total"] != 1.0 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if a := w.operate("power", fields{"operation": "power_off", "racks": []any{rack}, "components": []any{of["c1"]}}); a.Status != http.StatusOK || firstTask(a)["id"] != task["id"] {
		t.Errorf("the same again: %d %s", a.Status, a.Body)
	}
	w.operate("power", fields{"operation": "power_on", "racks": []any{rack}}).refused(http.StatusConflict, jobs.CodeWorkflowConflict)
	queued := firstTask(w.operate("power", fields{"operation": "power_on", "racks": []any{rack}, "conflict": "queue", "queue_for": "10m"}))
	if queued["status"] != "queued" || queued["queue_until"] == nil {
		t.Errorf("%v", queued)
	}
	_, err := w.racks.Begin(w.ctx(), fleet.TaskHolder(id))
	must(t, err)
	report := w.get(path)
	if stages := report["stages"].([]any); len(stages) == 0 || report["task"].(map[string]any)["status"] != "running" || len(report["components"].([]any)) != 1 {
		t.Errorf("%v", report)
	}
	if got := column(w.get("/api/v1/operations/tasks/?open=true&operation=power_off&rack="+fmt.Sprint(rack)+"&device="+fmt.Sprint(of["c1"])), "id"); len(got) != 1 || got[0] != task["id"] {
		t.Errorf("listed %v", got)
	}
	elsewhere := w.makeToken(store.Token{Scopes: []string{"operation:read", "operation:write"}, Sites: []string{"annex"}})
	w.ask(elsewhere, http.MethodGet, path, nil).refused(http.StatusNotFound, operations.CodeTaskNotFound)
	w.ask(elsewhere, http.MethodPost, path+"cancel/", fields{"reason": "x"}).refused(http.StatusNotFound, operations.CodeTaskNotFound)
	w.ask(elsewhere, http.MethodPost, "/api/v1/operations/power/", fields{"operation": "power_on", "racks": []any{rack}, "reason": "CHG-1"}).refused(http.StatusNotFound, operations.CodeRackNotFound)
	if a := w.ask(w.token, http.MethodPost, path+"cancel/", fields{"reason": "wrong rack"}); a.Status != http.StatusAccepted || a.json()["status"] != "cancelled" && a.json()["status"] != "cancellation_requested" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	must(t, w.racks.Close(w.ctx(), fleet.TaskHolder(id), jobs.Ending{Status: fleet.DeviceCancelled}))
	w.ask(w.token, http.MethodPost, path+"cancel/", fields{"reason": "again"}).refused(http.StatusConflict, operations.CodeTaskTerminal)
	if a := w.ask(w.token, http.MethodGet, path+"events/", nil); a.Status != http.StatusNoContent {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestARefusedOperationTellsEveryReason(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	w.exec("update devices set operational_status = 'in_use' where id = any($1)", []int64{of["c1"], of["c2"]})
	body := fields{"operation": "power_off", "racks": []any{rack}, "components": []any{"compute"}}
	a := w.operate("power", body)
	a.refused(http.StatusConflict, "instance_present")
	refused := 0
	for _, one := range a.json()["eligibility"].(map[string]any)["devices"].([]any) {
		refused += len(one.(map[string]any)["refusals"].([]any))
	}
	if refused != 2 {
		t.Errorf("%d refusals: %s", refused, a.Body)
	}
	body["override"] = fields{"reason": "the hall burns"}
	w.ask(w.makeToken(store.Token{Scopes: []string{"operation:write"}}), http.MethodPost, "/api/v1/operations/power/", body).refused(http.StatusForbidden, "scope_missing")
	if a := w.operate("power", body); a.Status != http.StatusCreated || firstTask(a)["override_reason"] != "the hall burns" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	faults := w.operate("firmware", fields{"operation": "upgrade", "racks": []any{rack}}).refused(http.StatusUnprocessableEntity, jobs.CodeParameterInvalid)
	if faults["/firmware"] == "" {
		t.Errorf("wrong are %v", faults)
	}
	w.operate("power", fields{"operation": "power_on", "racks": []any{rack}, "queue_for": "soon", "conflict": "queue"}).refused(http.StatusBadRequest, "request_invalid")
	w.operate("power", fields{"operation": "power_on", "racks": []any{true}}).refused(http.StatusBadRequest, "request_invalid")
	if a := w.operate("decommission", fields{"racks": []any{rack}, "components": []any{"powershelf"}}); a.Status != http.StatusCreated {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestATaskIsFollowed(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	id := int64(firstTask(w.operate("power", fields{"operation": "power_off", "racks": []any{rack}}))["id"].(float64))
	server := httptest.NewServer(w.handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/operations/tasks/%d/events", server.URL, id), nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	a, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { _ = a.Body.Close() }()
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (name, status string) {
		t.Helper()
		var event struct {
			Task struct{ Status string } `json:"task"`
		}
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				must(t, json.Unmarshal([]byte(text), &event))
				return name, event.Task.Status
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return "", ""
	}
	if name, status := next(); name != "snapshot" || status != "pending" {
		t.Fatalf("first came %s, %s", name, status)
	}
	_, err = w.racks.Begin(w.ctx(), fleet.TaskHolder(id))
	must(t, err)
	if name, status := next(); name != "change" || status != "running" {
		t.Errorf("then came %s, %s", name, status)
	}
	must(t, w.racks.Component(w.ctx(), id, of["c1"], operations.ComponentState{Status: fleet.DeviceRunning, Phase: "main"}))
	if name, _ := next(); name != "change" {
		t.Errorf("then came %s", name)
	}
	must(t, w.racks.Finish(w.ctx(), fleet.TaskHolder(id), jobs.Ending{Status: fleet.DeviceSucceeded}))
	for {
		name, status := next()
		if name == "end" {
			if status != "succeeded" {
				t.Errorf("it ended as %s", status)
			}
			return
		}
	}
}
