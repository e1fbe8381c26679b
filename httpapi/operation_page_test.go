package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

var operates = []string{httpapi.DeviceRead, httpapi.OperationRead, httpapi.OperationWrite, httpapi.RuleRead}

// powerOff is the title of the shipped rule that pages speak of here.
const powerOff = "Power off"

func TestARackIsOperatedFromItsPage(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack(w.hall(), "r1")
	page := fmt.Sprintf("/ui/racks/%d/", rack)
	v := w.visit(operates...)
	v.open("/ui/racks/").says(http.StatusOK, "r1", "hall")
	v.open(page).says(http.StatusOK, "Rack r1", "2 compute", "1 powershelf", "Which rule applies", "r1-c1", powerOff)
	form := v.open(page).forms()["operations"]
	if names := strings.Join(form.names, " "); !strings.Contains(names, "reason") || strings.Contains(names, "override") {
		t.Fatalf("who may not force is offered %s", names)
	}
	v.send(form, "operation", "make_coffee", "reason", "x").says(http.StatusUnprocessableEntity, "parameter_invalid", "make_coffee")
	kept := v.send(form, "operation", "power_off", "reason", " ", "exclude", "r1-c1, r1-c2", "conflict", "queue", "queue_for", "30m")
	kept.says(http.StatusUnprocessableEntity, "reason_missing", "r1-c1, r1-c2")
	if again := kept.forms()["operations"]; again.fields.Get("queue_for") != "30m" || !strings.Contains(string(kept.Body), "<details open>") {
		t.Errorf("a refused form is not shown as it was filled: %v", again.fields)
	}
	v.send(form, "operation", "power_off", "reason", "CHG-1", "token", "guessed").says(http.StatusForbidden, "form_token_invalid")
	v.send(form, "operation", "power_off", "reason", "CHG-1", "conflict", "queue", "queue_for", "soon").says(http.StatusUnprocessableEntity, "soon", "30m")

	for range 2 { // a double click
		if a := v.send(form, "operation", "power_off", "reason", "a <b>change</b>"); a.Status != http.StatusSeeOther || a.Header.Get("Location") != "/ui/operations/tasks/1/" {
			t.Fatalf("answered %d to %q: %s", a.Status, a.Header.Get("Location"), a.text())
		}
	}
	if n := w.count("select count(*) from tasks"); n != 1 {
		t.Errorf("%d tasks were made", n)
	}
	v.open("/ui/operations/tasks/1/").says(http.StatusOK, "Task 1: power_off of rack r1 pending", "a <b>change</b>", "Stage 1", powerOff, "not started yet")
	v.open("/ui/operations/").says(http.StatusOK, "power_off", "pending")
	v.open("/ui/operations/?status=failed").says(http.StatusOK, "Operations")
	v.open(page).says(http.StatusOK, "pending")
	v.send(v.open(page).forms()["operations"], "operation", "power_on", "reason", "x").says(http.StatusConflict, "workflow_conflict", "task/1")

	reader := w.visit(httpapi.DeviceRead, httpapi.OperationRead)
	if forms := reader.open(page).forms(); len(forms) != 0 {
		t.Errorf("who may not operate is offered %v", forms)
	}
	reader.send(form, "operation", "power_off", "reason", "x").says(http.StatusForbidden, "scope_missing", "operation:write")
	if forms := reader.open("/ui/operations/tasks/1/").forms(); len(forms) != 0 {
		t.Errorf("who may not cancel is offered %v", forms)
	}
	cancel := v.open("/ui/operations/tasks/1/").forms()["cancel"]
	if a := v.send(cancel, "reason", "the wrong rack"); a.Status != http.StatusSeeOther {
		t.Errorf("answered %d %s", a.Status, a.text())
	}
	v.open("/ui/operations/tasks/1/").says(http.StatusOK, "cancelled", "the wrong rack")
}

func TestCustomersAreToldOfBeforeARackIsOperated(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c1"])
	page := fmt.Sprintf("/ui/racks/%d/", rack)
	v := w.visit(append([]string{httpapi.OperationForce}, operates...)...)
	form := v.open(page).forms()["operations"]
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"])
	v.send(form, "operation", "power_off", "reason", "CHG-1").says(http.StatusConflict, "instance_present", "r1-c1 , r1-c2", "policies/eligibility/operations.cue:")
	if a := v.send(form, "operation", "power_off", "reason", "CHG-1", "override", "they know"); a.Status != http.StatusSeeOther {
		t.Fatalf("answered %d %s", a.Status, a.text())
	}
	v.open("/ui/operations/tasks/1/").says(http.StatusOK, "they know")
}

// watches opens the page of a task in a browser.
func (w *world) watches(b *browser, task int64) {
	w.t.Helper()
	server := httptest.NewServer(w.handler)
	w.t.Cleanup(server.Close)
	b.open(fmt.Sprintf("%s/ui/login/?token=%s", server.URL, w.token))
	b.shows("document.querySelector('h1').innerText", "Fleet")
	b.visit(fmt.Sprintf("%s/ui/operations/tasks/%d/", server.URL, task))
}

// fails begins a task and lets one tray fail.
func (w *world) fails(task, good, bad int64) {
	w.t.Helper()
	_, err := w.racks.Begin(w.ctx(), fleet.TaskHolder(task))
	must(w.t, err)
	for device, status := range map[int64]fleet.EntryStatus{good: fleet.EntrySucceeded, bad: fleet.EntryFailed} {
		e := operations.Entry{Stage: 1, ComponentType: "compute", Phase: "main", Action: "PowerControl", Device: device, Status: fleet.EntryRunning}
		must(w.t, w.racks.Note(w.ctx(), task, e))
		e.Status, e.Attempts = status, 3
		if status == fleet.EntryFailed {
			e.Code, e.Message = codes.PowerNoEffect, "it <b>stays</b> on"
			must(w.t, w.racks.Component(w.ctx(), task, device, operations.ComponentState{Status: fleet.DeviceFailed, Phase: "stage 1: PowerControl", Code: e.Code, Message: e.Message, LastState: "On"}))
		}
		must(w.t, w.racks.Note(w.ctx(), task, e))
	}
}

func TestATasksPageTellsWhatFailedAndWhatNeverStarted(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	task := int64(firstTask(w.operate("power", fields{"operation": "power_off", "racks": []any{rack}}))["id"].(float64))
	w.fails(task, of["c1"], of["c2"])
	v := w.visit(operates...)
	page := fmt.Sprintf("/ui/operations/tasks/%d/", task)
	v.open(page).says(http.StatusOK, "1 failed", "running", "it <b>stays</b> on", "Cancel the task")
	must(t, w.racks.Finish(w.ctx(), fleet.TaskHolder(task), jobs.Ending{Status: fleet.DeviceFailed, Code: codes.PowerNoEffect, Message: "stage 1, compute: r1-c2 stays on"}))
	a := v.open(page)
	a.says(http.StatusOK, "failed", "POWER_NO_EFFECT", "stage 1, compute: r1-c2 stays on", "never started")
	if len(a.forms()) != 0 {
		t.Errorf("of a task that has ended it offers %v", a.forms())
	}
}

// A rack may hold thousands, and a rule as many actions: the page stays one that a
// browser shows.
func TestATasksPageIsBounded(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack(w.hall(), "r1")
	w.exec(`insert into devices (site_id, rack_id, name, name_key, device_class, inventory_status, operational_status, bmc_address)
		select site_id, $1, 'r1-n' || n, 'r1-n' || n, 'nvswitch', 'active', 'quarantine', '10.0.0.1' from racks, generate_series(1, 2000) n where id = $1`, rack)
	row := firstTask(w.operate("power", fields{"operation": "power_on", "racks": []any{rack}}))
	v := w.visit(operates...)
	a := v.open(fmt.Sprintf("/ui/operations/tasks/%v/", row["id"]))
	a.says(http.StatusOK, "more")
	if len(a.Body) > 1<<20 {
		t.Errorf("the page of 2,003 components has %d bytes", len(a.Body))
	}
	t.Logf("%d bytes", len(a.Body))
}

func TestRulesAreShownAsStagesAndWhereTheyApply(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack(w.hall(), "r1")
	rules := "/api/v1/operation-rules/"
	own := w.ask(w.token, http.MethodPost, rules, fields{"rule": ownRule("power_off", "compute")}).json()["id"]
	ask := w.ask(w.token, http.MethodPut, fmt.Sprintf("/api/v1/racks/%d/operation-rules/power_off/", rack), fields{"rule_id": own})
	if ask.Status != http.StatusOK {
		t.Fatal(string(ask.Body))
	}
	v := w.visit(operates...)
	v.open("/ui/operation-rules/").says(http.StatusOK, "own", "power_off", "r1", powerOff)
	v.open(fmt.Sprintf("/ui/operation-rules/%v/", own)).says(http.StatusOK, "Stage 1", "compute", "PowerControl", "verif") // nothing verifies it
	v.open("/ui/operation-rules/built-in/power_off/").says(http.StatusOK, "Stage 3", "powershelf", "Sleep", "policies/operations/power.cue:", "at most 2h30m")
	v.open("/ui/operation-rules/built-in/make_coffee/").says(http.StatusNotFound, "rule_not_found")
	v.open(fmt.Sprintf("/ui/racks/%d/", rack)).says(http.StatusOK, "applies: the rack is bound to it", "applies: nothing else was said")
	w.exec("update operation_rules set rule = '{\"steps\": [{\"stage\": 0}]}' where id = $1", own)
	v.open(fmt.Sprintf("/ui/racks/%d/", rack)).says(http.StatusOK, "refused:", "not valid any more")

	theirs := w.makeToken(store.Token{Scopes: operates, Sites: []string{"annex"}})
	_, cookie := w.login(theirs, "/ui/")
	elsewhere := visitor{w, cookie}
	elsewhere.open(fmt.Sprintf("/ui/racks/%d/", rack)).says(http.StatusNotFound, "rack_not_found")
	if text := elsewhere.open("/ui/operation-rules/").text(); strings.Contains(text, "r1") {
		t.Errorf("it tells of a rack of another site: %s", text)
	}
}

// A whole rack is watched to its end in a real browser, by somebody whose focus
// stays where it is.
func TestAWholeRackIsWatchedInABrowser(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.Clock = time.Now })
	b := startBrowser(t)
	rack, of := w.whole(w.hall(), "r1")
	task := int64(firstTask(w.operate("power", fields{"operation": "power_off", "racks": []any{rack}}))["id"].(float64))
	w.watches(b, task)
	b.shows("String(document.querySelectorAll('.chart tr.component').length)", "35")
	b.shows("document.querySelector('#chart-scale').innerText", "nothing has started")
	b.run("window.loaded = 'once'; document.querySelector('.chart tr.component a').focus()")
	_, err := w.racks.Begin(w.ctx(), fleet.TaskHolder(task))
	must(t, err)
	for stage, kind := range []string{"compute", "nvswitch", "powershelf"} {
		e := operations.Entry{Stage: stage + 1, ComponentType: kind, Phase: "main", Action: "PowerControl", Status: fleet.EntryRunning}
		for _, e.Device = range of[kind] {
			must(t, w.racks.Note(w.ctx(), task, e))
		}
		row := fmt.Sprintf("document.querySelector('#chart-%d-%s').innerText", stage+1, kind)
		b.shows(row, fmt.Sprintf("%d running", len(of[kind])))
		e.Status, e.Attempts = fleet.EntrySucceeded, 2
		for _, e.Device = range of[kind] {
			must(t, w.racks.Note(w.ctx(), task, e))
			must(t, w.racks.Component(w.ctx(), task, e.Device, operations.ComponentState{Status: fleet.DeviceRunning, Phase: "stage", LastState: "off"}))
		}
		b.shows(row, fmt.Sprintf("%d succeeded", len(of[kind])))
		b.shows("String(document.querySelectorAll('.chart tr.component rect.succeeded').length > 0)", "true")
	}
	b.shows("document.activeElement.innerText", "r1-c01")
	must(t, w.racks.Finish(w.ctx(), fleet.TaskHolder(task), jobs.Ending{Status: fleet.DeviceSucceeded}))
	b.shows("document.querySelector('h1').innerText", "succeeded")
	b.shows("String(document.querySelectorAll('form').length)", "0")
	b.shows("String(document.querySelectorAll('.chart tr.component rect.succeeded').length)", "35")
	b.shows("document.activeElement.innerText + window.loaded", "r1-c01once")
	if len(b.errors) > 0 {
		t.Errorf("the browser says %v", b.errors)
	}
	if n := len(w.visit(operates...).open(fmt.Sprintf("/ui/operations/tasks/%d/", task)).Body); n > 100<<10 {
		t.Errorf("the page of 35 components has %d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
}

// What waits for others says so, with its whole plan; of one that took long the
// scale is in hours.
func TestATasksPageTellsOfWaitingAndOfALongWay(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack(w.hall(), "r1")
	long := int64(firstTask(w.operate("power", fields{"operation": "power_off", "racks": []any{rack}, "exclude": []any{of["c2"]}}))["id"].(float64))
	queued := int64(firstTask(w.operate("power", fields{"operation": "power_on", "racks": []any{rack}, "conflict": "queue"}))["id"].(float64))
	v := w.visit(operates...)
	v.open(fmt.Sprintf("/ui/operations/tasks/%d/", queued)).says(http.StatusOK, "queued", "Others hold devices of the rack", "the next in the queue", "expires at", "nothing has started", "r1-c1 not started yet", "Cancel the task")
	v.open("/ui/operations/?status=queued").says(http.StatusOK, "next in the queue")
	w.fails(long, of["c1"], of["p1"])
	w.exec("update tasks set started_at = started_at - interval '5 hours' where id = $1", long)
	must(t, w.racks.OverBudget(w.ctx(), long))
	v.open(fmt.Sprintf("/ui/operations/tasks/%d/", long)).says(http.StatusOK, "0s 1h 2h 3h 4h", "Over its budget since", "it goes on", "Left out: r1-c2", "by the rule")
}

// A task is followed to its end in a real browser, and nothing is loaded again.
func TestATaskIsFollowedInABrowser(t *testing.T) {
	w := newWorld(t)
	b := startBrowser(t)
	rack, of := w.rack(w.hall(), "r1")
	task := int64(firstTask(w.operate("power", fields{"operation": "power_off", "racks": []any{rack}}))["id"].(float64))
	w.watches(b, task)
	b.shows("document.querySelector('h1').innerText", "pending")
	b.run("window.loaded = 'once'")
	w.fails(task, of["c1"], of["c2"])
	b.shows("document.querySelector('h1').innerText", "running")
	row := fmt.Sprintf("document.querySelector('#component-%d').innerText", of["c2"])
	b.shows(row, "POWER_NO_EFFECT")
	b.shows("String(document.querySelectorAll('.chart rect.failed').length > 0)", "true")
	b.shows("document.querySelector('.stages').innerText", "1 failed")
	must(t, w.racks.Finish(w.ctx(), fleet.TaskHolder(task), jobs.Ending{Status: fleet.DeviceFailed, Code: codes.PowerNoEffect, Message: "r1-c2 stays on"}))
	b.shows("document.querySelector('h1').innerText", "failed")
	b.shows("document.querySelector('#task-facts').innerText", "r1-c2 stays on")
	b.shows("String(document.querySelectorAll('form').length)", "0")
	b.shows("String(window.loaded)", "once")
	if len(b.errors) > 0 {
		t.Errorf("the browser says %v", b.errors)
	}
}

// whole makes a rack of 18 compute trays, 9 NVLink switch trays and 8 shelves, and
// gives their ids by type.
func (w *world) whole(site fleet.Site, name string) (int64, map[string][]int64) {
	w.t.Helper()
	rack, of := w.rack(site, name+"-x")
	w.exec("delete from devices where id = any($1)", []int64{of["c1"], of["c2"], of["p1"]})
	w.exec("update racks set name = $2 where id = $1", rack, name)
	ids := map[string][]int64{}
	for _, part := range []struct {
		kind, class, letter string
		n                   int
	}{{"compute", "gpu_compute", "c", 18}, {"nvswitch", "nvswitch", "n", 9}, {"powershelf", "powershelf", "p", 8}} {
		for i := range part.n {
			var id int64
			one := fmt.Sprintf("%s-%s%02d", name, part.letter, i+1)
			must(w.t, w.db.QueryRow(w.ctx(), `insert into devices (site_id, rack_id, name, name_key, device_class, inventory_status, operational_status, bmc_address)
				values ($1, $2, $3, $4, $5, 'active', 'quarantine', '10.0.0.1') returning id`, site.ID, rack, one, fleet.NameKey(one), part.class).Scan(&id))
			ids[part.kind] = append(ids[part.kind], id)
		}
		// Enough of the class elsewhere that caps which count shares let a whole rack go.
		w.exec(`insert into devices (site_id, name, name_key, device_class, inventory_status, operational_status)
			select $1, $2 || '-s' || n, $2 || '-s' || n, $3, 'active', 'quarantine' from generate_series(1, 100) n`, site.ID, name+part.letter, part.class)
	}
	return rack, ids
}
