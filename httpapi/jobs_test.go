package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// submit makes a job of devices and gives its id.
func (w *world) submit(workflow string, parameters any, devices ...int64) int64 {
	w.t.Helper()
	a := w.order(w.token, fields{"workflow": workflow, "device_ids": devices, "parameters": parameters})
	if a.Status != http.StatusCreated {
		w.t.Fatalf("submitting %s: %d %s", workflow, a.Status, a.Body)
	}
	job := int64(a.json()["id"].(float64))
	if want := fmt.Sprintf("/api/v1/jobs/%d/", job); a.Header.Get("Location") != want {
		w.t.Errorf("Location %q, want %q", a.Header.Get("Location"), want)
	}
	return job
}

// order submits what a body says.
func (w *world) order(token string, body fields, change ...func(*http.Request)) answer {
	w.t.Helper()
	if body["parameters"] == any(nil) {
		delete(body, "parameters")
	}
	return w.ask(token, http.MethodPost, "/api/v1/jobs/", body, change...)
}

func (w *world) unit(job, device int64) string { return fmt.Sprintf("job/%d/device/%d", job, device) }

// starts does as Temporal does when it starts the work on a device.
func (w *world) starts(job, device int64) {
	w.t.Helper()
	w.exec("update executions set state = 'sent', sent_at = now() where workflow_id = $1", w.unit(job, device))
	_, err := w.jobs.Begin(w.ctx(), w.unit(job, device))
	must(w.t, err)
}

// ends ends one device of a job.
func (w *world) ends(job, device int64, e jobs.Ending) {
	w.t.Helper()
	must(w.t, w.jobs.Finish(w.ctx(), w.unit(job, device), device, e))
}

// ended ends all devices of a job well.
func (w *world) ended(job int64) {
	w.t.Helper()
	rows, err := store.JobDevices(w.ctx(), w.db, job, 0, 100)
	must(w.t, err)
	for _, d := range rows {
		w.starts(job, d.DeviceID)
		w.ends(job, d.DeviceID, jobs.Ending{Status: fleet.DeviceSucceeded})
	}
}

// check asks for an eligibility.
func (w *world) check(body fields) map[string]any {
	w.t.Helper()
	a := w.ask(w.token, http.MethodPost, "/api/v1/eligibility/check/", body)
	if a.Status != http.StatusOK {
		w.t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	return a.json()
}

// codesOf lists the codes of refusals.
func codesOf(refusals any) string {
	var all []string
	for _, one := range refusals.([]any) {
		all = append(all, one.(map[string]any)["code"].(string))
	}
	return strings.Join(all, " ")
}

func TestTheCatalogueShowsEveryWorkflowWithItsForm(t *testing.T) {
	w := newWorld(t)
	items := w.get("/api/v1/workflows/")["items"].([]any)
	if len(items) != 17 {
		t.Errorf("%d workflows", len(items))
	}
	for _, one := range items {
		v := one.(map[string]any)
		form := v["parameters"].(map[string]any)
		if form["type"] != "object" || form["additionalProperties"] != false || len(v["failure_codes"].([]any)) == 0 || !strings.HasPrefix(v["pos"].(string), "policies/workflows/") {
			t.Errorf("%v: form %v at %v", v["slug"], form, v["pos"])
		}
		if v["slug"] == "move_to_test_cluster" {
			force := form["properties"].(map[string]any)["force_reclaim"].(map[string]any)
			if force["default"] != false || v["contention"] != "exclusive" || v["disruptive"] != true {
				t.Errorf("move_to_test_cluster is %v", v)
			}
		}
	}
	if page := w.get("/api/v1/workflows/?limit=5"); len(page["items"].([]any)) != 5 || page["next"] == nil {
		t.Errorf("a page of five is %v", page)
	}
}

func TestEveryRefusalOfEveryDeviceIsTold(t *testing.T) {
	w := newWorld(t)
	good := w.bear(w.lab, "gpu-1", node(ready))
	bad := w.bear(w.lab, "gpu-2", node(ready, func(i *facts.Ironic) {
		i.InstanceBound, i.InstanceUUID = facts.True, facts.TextOf("11111111-0000-4000-8000-000000000001")
	}))
	v := w.check(fields{"workflow": "move_to_test_cluster", "device_ids": []int64{good, bad, 4711}, "device_names": []string{"GPU-2", "nobody"}})
	if v["eligible"] != false || v["available"] != true || v["bundle_version"] != w.policies.Current().Version() {
		t.Errorf("%v", v)
	}
	devices := v["devices"].([]any)
	want := []string{"enrollment_proof_missing", "instance_present enrollment_proof_missing", "device_not_found", "duplicate_device", "device_not_found"}
	for i, one := range devices {
		d := one.(map[string]any)
		got := codesOf(d["refusals"])
		if i >= len(want) || len(strings.Fields(got)) != len(strings.Fields(want[i])) {
			t.Errorf("device %d (%v): %s, want %s", i, d["name"], got, want[min(i, len(want)-1)])
		}
		for _, code := range strings.Fields(want[i]) {
			if !strings.Contains(got, code) {
				t.Errorf("device %d (%v): %s lacks %s", i, d["name"], got, code)
			}
		}
	}
	first := devices[0].(map[string]any)["refusals"].([]any)[0].(map[string]any)
	if first["field"] != "enrollment.proof" || first["actual"] != "missing" || first["expected"] == nil || !strings.HasPrefix(first["pos"].(string), "policies/eligibility/") {
		t.Errorf("%v", first)
	}
}

func TestParametersAreJudgedWithTheirPlaces(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	v := w.check(fields{"workflow": "move_to_test_cluster", "device_ids": []int64{id}, "parameters": fields{"force_reclaim": 1, "cordon_only": "yes"}})
	if device := v["devices"].([]any)[0].(map[string]any); v["parameters"] != nil || codesOf(v["refusals"]) != "parameter_invalid parameter_invalid" || device["eligible"] != false {
		t.Errorf("%v", v)
	}
	faults := w.order(w.token, fields{"workflow": "move_to_test_cluster", "device_ids": []int64{id}, "parameters": fields{"cordon_only": "yes"}}).
		refused(http.StatusUnprocessableEntity, "parameter_invalid")
	if faults["/parameters/cordon_only"] == "" {
		t.Errorf("told of %v", faults)
	}
	if v := w.check(fields{"workflow": "move_to_test_cluster", "device_ids": []int64{id}}); v["parameters"].(map[string]any)["cordon_only"] != false {
		t.Errorf("parameters with defaults are %v", v["parameters"])
	}
	for name, try := range map[string]struct {
		body fields
		code string
	}{
		"no such workflow":   {fields{"workflow": "make_coffee", "device_ids": []int64{id}}, "workflow_not_found"},
		"not run yet":        {fields{"workflow": "node_swap", "device_ids": []int64{id}, "parameters": fields{"replacement_host_name": "x"}}, ""},
		"no device":          {fields{"workflow": "verify_connectivity"}, "too_few_devices"},
		"one of many needed": {fields{"workflow": "multi_node_pairwise", "device_ids": []int64{id}, "parameters": fields{"test_slug": "x"}}, "too_few_devices"},
	} {
		if v := w.check(try.body); try.code != "" && !strings.Contains(codesOf(v["refusals"]), try.code) || try.code == "" && v["available"] != false {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestASubmissionIsAcceptedOnce(t *testing.T) {
	w := newWorld(t)
	id, other := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	key := header("Idempotency-Key", "k1")
	body := func() fields {
		return fields{"workflow": "verify_connectivity", "device_ids": []int64{id}, "reason": "CHG-1"}
	}
	first := w.order(w.token, body(), key)
	again := w.order(w.token, body(), key)
	if first.Status != http.StatusCreated || again.Status != http.StatusOK || first.json()["id"] != again.json()["id"] || w.count("select count(*) from jobs") != 1 {
		t.Fatalf("first %d %s, again %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	w.order(w.token, fields{"workflow": "verify_connectivity", "device_ids": []int64{other}}, key).refused(http.StatusUnprocessableEntity, "idempotency_key_reused")
	stranger := w.makeToken(store.Token{Scopes: []string{"job:write"}})
	if a := w.order(stranger, fields{"workflow": "verify_connectivity", "device_ids": []int64{other}}, key); a.Status != http.StatusCreated {
		t.Errorf("another's key: %d %s", a.Status, a.Body)
	}
	if job := first.json(); job["reason"] != "CHG-1" || job["status"] != "pending" || job["waiting"].(map[string]any)["units"] != 1.0 || job["site"] != "lab" {
		t.Errorf("%v", job)
	}
	if w.count("select count(*) from audit where action = 'job.submit'") != 2 {
		t.Error("the audit log does not name each submission")
	}
}

func TestAnotherJobIsInTheWay(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(leased))
	job := w.submit("verify_connectivity", nil, id)
	a := w.order(w.token, fields{"workflow": "ironic_node_clean", "device_ids": []int64{id}})
	report := a.json()["eligibility"].(map[string]any)["devices"].([]any)
	refused := codesOf(report[0].(map[string]any)["refusals"])
	if a.Status != http.StatusConflict || !strings.Contains(refused, "workflow_conflict") || !strings.Contains(string(a.Body), fmt.Sprintf(`"holder":"job/%d"`, job)) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestAJobIsSeenBySiteAndListedNewestFirst(t *testing.T) {
	w := newWorld(t)
	here, there := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.annex, "gpu-2", node(ready))
	one, two := w.submit("verify_connectivity", nil, here), w.submit("verify_connectivity", nil, there)
	w.ended(one)
	if got := fmt.Sprint(column(w.get("/api/v1/jobs/"), "id")); got != fmt.Sprint([]any{float64(two), float64(one)}) {
		t.Errorf("jobs %v", got)
	}
	for query, want := range map[string]int{"open=true": 1, "open=false": 1, "status=succeeded": 1, "site=annex": 1, "workflow=enrollment": 0, fmt.Sprintf("device=%d", here): 1, "limit=1": 1} {
		if got := len(w.get("/api/v1/jobs/?" + query)["items"].([]any)); got != want {
			t.Errorf("%s gives %d jobs, want %d", query, got, want)
		}
	}
	page := w.get("/api/v1/jobs/?limit=1")
	if next := w.get(page["next"].(string)); next["items"].([]any)[0].(map[string]any)["id"] != float64(one) || next["next"] != nil {
		t.Errorf("the next page is %v", next)
	}
	annex := w.makeToken(store.Token{Scopes: []string{"job:read", "job:write"}, Sites: []string{"annex"}})
	for _, path := range []string{"", "devices/", "events/"} {
		w.ask(annex, http.MethodGet, fmt.Sprintf("/api/v1/jobs/%d/%s", one, path), nil).refused(http.StatusNotFound, "job_not_found")
	}
	w.order(annex, fields{"workflow": "verify_connectivity", "device_ids": []int64{here}}).refused(http.StatusNotFound, "device_not_found")
}

func TestAFailureTellsWhoseItIs(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	job := w.submit("verify_connectivity", nil, id)
	w.starts(job, id)
	must(t, w.jobs.Progress(w.ctx(), job, id, "login", 40))
	path := fmt.Sprintf("/api/v1/jobs/%d/", job)
	if d := w.get(path + "devices/")["items"].([]any)[0].(map[string]any); d["phase"] != "login" || d["progress"] != 40.0 || d["status"] != "running" || d["name"] != "gpu-1" {
		t.Errorf("%v", d)
	}
	code := w.policies.Current().Failures()[0].Code
	w.ends(job, id, jobs.Ending{Status: fleet.DeviceFailed, Code: codes.Failure(code), Message: "no answer"})
	failure := w.get(path + "devices/")["items"].([]any)[0].(map[string]any)["failure"].(map[string]any)
	if failure["code"] != code || failure["message"] != "no answer" || failure["owner"] == nil || failure["meaning"] == nil {
		t.Errorf("%v", failure)
	}
	if v := w.get(path); v["status"] != "failed" || v["ended"] != true || v["finished_at"] == nil {
		t.Errorf("%v", v)
	}
}

func TestAJobIsCancelled(t *testing.T) {
	w := newWorld(t)
	id, other := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	cancel := func(job int64) answer {
		return w.post(w.token, fmt.Sprintf("/jobs/%d/cancel/", job), fields{"reason": "wrong rack"})
	}
	unsent := w.submit("verify_connectivity", nil, id)
	if a := cancel(unsent); a.Status != http.StatusAccepted || a.json()["status"] != "cancelled" || a.json()["cancel_reason"] != "wrong rack" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	cancel(unsent).refused(http.StatusConflict, "job_terminal")
	running := w.submit("verify_connectivity", nil, other)
	w.starts(running, other)
	for range 2 {
		if a := cancel(running); a.Status != http.StatusAccepted || a.json()["status"] != "cancellation_requested" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
}

func TestABreakerIsShownAndReset(t *testing.T) {
	w := newWorld(t)
	w.exec("insert into breakers (name, policy, site_id, tripped_at, reason, failed, runs) values ('b@lab', 'b', $1, now(), '3 of 4 failed', 3, 4), ('b@annex', 'b', $2, now(), '', 1, 1)", w.lab.ID, w.annex.ID)
	lab := w.makeToken(store.Token{Scopes: []string{"operation:read", "operation:write"}, Sites: []string{"lab"}})
	if got := fmt.Sprint(column(w.ask(lab, http.MethodGet, "/api/v1/breakers/?open=true", nil).json(), "name")); got != "[b@lab]" {
		t.Errorf("shown are %v", got)
	}
	w.post(lab, "/breakers/b@annex/reset/", fields{"reason": "x"}).refused(http.StatusNotFound, "breaker_not_found")
	if a := w.post(lab, "/breakers/b@lab/reset/", fields{"reason": "cable replaced"}); a.Status != http.StatusOK || a.json()["open"] != false || a.json()["reset_reason"] != "cable replaced" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestAJobIsFollowed reads events over a real connection: the whole first, then
// what changes, then the end, and then there is nothing more.
func TestAJobIsFollowed(t *testing.T) {
	w := newWorld(t)
	id, other := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	job := w.submit("verify_connectivity", nil, id, other)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(w.ctx(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/jobs/%d/events", server.URL, job), nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	a, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answered %d as %s", a.StatusCode, a.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(a.Body)
	next := func() (name string, event struct {
		Job     map[string]any   `json:"job"`
		Devices []map[string]any `json:"devices"`
	}) {
		t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				must(t, json.Unmarshal([]byte(text), &event))
				return name, event
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return "", event
	}
	if name, e := next(); name != "snapshot" || len(e.Devices) != 2 || e.Job["status"] != "pending" {
		t.Fatalf("first came %s of %v", name, e)
	}
	w.starts(job, id)
	for {
		name, e := next()
		if name != "change" || len(e.Devices) > 1 {
			t.Fatalf("then came %s of %v", name, e)
		}
		if len(e.Devices) == 1 && e.Devices[0]["status"] == "running" && e.Job["status"] == "running" {
			break
		}
	}
	w.ends(job, id, jobs.Ending{Status: fleet.DeviceSucceeded})
	w.starts(job, other)
	w.ends(job, other, jobs.Ending{Status: fleet.DeviceSucceeded})
	for {
		if name, e := next(); name == "end" {
			if e.Job["status"] != "succeeded" {
				t.Errorf("at the end it is %v", e.Job["status"])
			}
			break
		}
	}
	if lines.Scan(); lines.Scan() {
		t.Errorf("after the end came %q", lines.Text())
	}
	if a := w.ask(w.token, http.MethodGet, fmt.Sprintf("/api/v1/jobs/%d/events/", job), nil); a.Status != http.StatusNoContent {
		t.Errorf("who comes late is answered %d", a.Status)
	}
}

func TestForcingNeedsAScopeAndAReason(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	body := func(reason string) fields {
		return fields{"workflow": "move_to_test_cluster", "device_ids": []int64{id}, "parameters": fields{"force_reclaim": true}, "reason": reason}
	}
	w.order(w.makeToken(store.Token{Scopes: []string{"job:write"}}), body("because")).refused(http.StatusForbidden, "scope_missing")
	if a := w.order(w.token, body(" ")); a.Status < 400 || !strings.Contains(string(a.Body), "reason_missing") {
		t.Errorf("without a reason: %d %s", a.Status, a.Body)
	}
}

// follow opens a connection that follows a job and waits for the snapshot.
func (w *world) follow(address string, job int64) *bufio.Scanner {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, fmt.Sprintf("http://%s/api/v1/jobs/%d/events/", address, job), nil)
	must(w.t, err)
	r.Header.Set("Authorization", "Bearer "+w.token)
	a, err := http.DefaultClient.Do(r)
	must(w.t, err)
	w.t.Cleanup(func() { _ = a.Body.Close() })
	lines := bufio.NewScanner(a.Body)
	if lines.Scan(); lines.Text() != "event: snapshot" {
		w.t.Fatalf("first came %q: %v", lines.Text(), lines.Err())
	}
	return lines
}

func TestWhoFollowsIsLetGoWhenTheServerEnds(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.RequestTimeout = 200 * time.Millisecond }) // following is no request that must end
	id := w.bear(w.lab, "gpu-1", node(ready))
	job := w.submit("verify_connectivity", nil, id)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, l) }()
	lines := w.follow(l.Addr().String(), job)
	w.starts(job, id)
	for lines.Scan() && lines.Text() != "event: change" {
		continue
	}
	if lines.Err() != nil || lines.Text() != "event: change" {
		t.Fatalf("it ended with %v", lines.Err())
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("stopped with %v", err)
	}
	for lines.Scan() {
		continue
	}
	if lines.Err() != nil {
		t.Errorf("the events broke off: %v", lines.Err())
	}
}
