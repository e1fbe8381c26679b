package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/fleet"
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
