package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

func TestAnEnrolmentsEndIsWrittenAsProof(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	path := fmt.Sprintf("/devices/%d/enrollment-proof/", id)
	token := w.makeToken(store.Token{Scopes: []string{httpapi.EnrollmentProofWrite}, Sites: []string{"lab"}})
	for name, body := range map[string]any{
		"no outcome":         fields{"infrastructure_ref": "gpu-1"},
		"another outcome":    fields{"outcome": "cancelled", "infrastructure_ref": "gpu-1"},
		"no node":            fields{"outcome": "failed"},
		"an empty node":      fields{"outcome": "failed", "infrastructure_ref": " "},
		"a job that is none": fields{"outcome": "failed", "infrastructure_ref": "gpu-1", "job": 0},
		"another field":      fields{"outcome": "failed", "infrastructure_ref": "gpu-1", "source": "legacy"},
	} {
		if a := w.post(token, path, body); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	for _, step := range []struct{ outcome, ref, result, validated string }{
		{"failed", "gpu-1", "kept", ""},
		{"succeeded", "gpu-0", "superseded", ""},
		{"succeeded", "gpu-1", "established", "gpu-1"},
		{"failed", "gpu-1", "kept", "gpu-1"},
		{"failed", "gpu-0", "superseded", "gpu-1"},
	} {
		a := w.post(token, path, fields{"outcome": step.outcome, "infrastructure_ref": step.ref, "job": 12})
		v := a.json()
		if a.Status != http.StatusOK || v["result"] != step.result {
			t.Fatalf("%+v: %d %s", step, a.Status, a.Body)
		}
		validated, _ := v["device"].(map[string]any)["enrollment_validated_ref"].(string)
		if validated != step.validated || w.get(fmt.Sprintf("/api/v1/devices/%d/", id))["enrollment_proof_source"] != map[bool]any{true: "none", false: "enrolled"}[validated == ""] {
			t.Errorf("%+v: validated is %q", step, validated)
		}
	}
	if n := w.count("select count(*) from audit where action = 'device.enrollment_proof' and principal like 'token:%' and remote = '192.0.2.1' and target = $1 and detail ->> 'job' = '12'", fmt.Sprintf("device %d", id)); n != 5 {
		t.Errorf("%d audit rows, want one a write", n)
	}
	foreign := w.bear(w.annex, "gpu-2", node(ready))
	w.post(token, fmt.Sprintf("/devices/%d/enrollment-proof/", foreign), fields{"outcome": "succeeded", "infrastructure_ref": "gpu-2"}).refused(http.StatusNotFound, "device_not_found")
	w.exec("update devices set device_class = 'nvswitch' where id = $1", id)
	w.post(token, path, fields{"outcome": "succeeded", "infrastructure_ref": "gpu-1"}).refused(http.StatusConflict, "device_out_of_scope")
}

func TestAPersonRecordsALatch(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	path := fmt.Sprintf("/devices/%d/latches/", id)
	token := w.makeToken(store.Token{Scopes: []string{httpapi.LatchWrite}})
	body := func(change fields) fields {
		f := fields{"type": "BackendPortsInMaintenanceVrf", "status": "True", "reason": "ManualIsolation", "note": "CHG-4711"}
		for name, value := range change {
			f[name] = value
		}
		return f
	}
	a := w.post(token, path, body(nil))
	v := a.json()
	if a.Status != http.StatusOK || v["status"] != "True" || v["reason"] != "ManualIsolation" || v["message"] != "CHG-4711" || v["writer"] != "operator" || v["observed_at"] != w.clock().Format(time.RFC3339) {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	for name, change := range map[string]fields{
		"a durable type that is no latch": {"type": "CustodyIntent"}, "an observed type": {"type": "Maintenance"}, "Unknown": {"status": "Unknown"},
		"another reason": {"reason": "Isolated"}, "a blank note": {"note": "  "}, "an endless note": {"note": strings.Repeat("x", 1025)}, "a time": {"observed_at": w.clock()},
	} {
		if a := w.post(token, path, body(change)); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	w.post(token, path, body(fields{"status": "False"})).refused(http.StatusUnprocessableEntity, "condition_invalid")
	check := fields{"workflow": "release_to_customer_pool", "device_ids": []int64{id}}
	if a := w.post(w.token, "/eligibility/check/", check); !strings.Contains(string(a.Body), "backend_maintenance_vrf") {
		t.Errorf("a release is not kept back: %s", a.Body)
	}
	w.pass(time.Second)
	if a := w.post(token, path, body(fields{"status": "False", "reason": "ManualReturn"})); a.Status != http.StatusOK {
		t.Errorf("the return: %d %s", a.Status, a.Body)
	}
	if a := w.post(w.token, "/eligibility/check/", check); strings.Contains(string(a.Body), "backend_maintenance_vrf") {
		t.Errorf("a release is still kept back: %s", a.Body)
	}
	if n := w.count("select count(*) from audit where action = 'device.latch' and target = $1 and detail ->> 'note' = 'CHG-4711' and remote = '192.0.2.1'", fmt.Sprintf("device %d condition BackendPortsInMaintenanceVrf", id)); n != 2 {
		t.Errorf("%d audit rows, want 2", n)
	}
}

func TestTriageKeepsDevicesFromCustomers(t *testing.T) {
	w := newWorld(t)
	a, b, foreign := w.bear(w.lab, "gpu-1", node()), w.bear(w.lab, "gpu-2", node()), w.bear(w.annex, "gpu-3", node())
	token := w.makeToken(store.Token{Scopes: []string{httpapi.DeviceWrite}, Sites: []string{"lab"}})
	enter := fields{"device_ids": []int64{b, a}, "in_triage": true, "triage_ticket_url": "https://tickets.example/1", "parent_ticket_url": "https://tickets.example/p"}
	answer := w.post(token, "/devices/triage/", enter)
	v := answer.json()
	if answer.Status != http.StatusOK || fmt.Sprint(column(v, "name")) != "[gpu-1 gpu-2]" || fmt.Sprint(column(v, "in_triage")) != "[true true]" || column(v, "triage_ticket_url")[1] != "https://tickets.example/1" {
		t.Fatalf("answered %d %s", answer.Status, answer.Body)
	}
	if a := w.post(w.token, "/eligibility/check/", fields{"workflow": "release_to_customer_pool", "device_ids": []int64{a}}); !strings.Contains(string(a.Body), "device_in_triage") {
		t.Errorf("a release is not kept back: %s", a.Body)
	}
	if got := column(w.get("/api/v1/devices/?in_triage=true"), "name"); fmt.Sprint(got) != "[gpu-1 gpu-2]" {
		t.Errorf("in triage are %v", got)
	}
	both := w.post(w.token, "/devices/triage/", fields{"device_ids": []int64{a, foreign}, "in_triage": false}) // of two sites at once
	if v := both.json(); both.Status != http.StatusOK || fmt.Sprint(column(v, "in_triage")) != "[false false]" || column(v, "parent_ticket_url")[0] != "https://tickets.example/p" || column(v, "triage_ticket_url")[0] != nil {
		t.Errorf("answered %d %s", both.Status, both.Body)
	}
	faults := w.post(token, "/devices/triage/", fields{"device_ids": []int64{b, foreign}, "in_triage": false}).refused(http.StatusNotFound, "device_not_found")
	if _, told := faults["/device_ids/1"]; !told || len(faults) != 1 {
		t.Errorf("what is missing is told as %v", faults)
	}
	w.post(token, "/devices/triage/", fields{"device_ids": []int64{b}, "in_triage": true, "parent_ticket_url": "https://tickets.example/q"}).refused(http.StatusConflict, "parent_ticket_set")
	for name, body := range map[string]fields{
		"nobody": {"device_ids": []int64{}, "in_triage": true}, "neither in nor out": {"device_ids": []int64{b}},
		"a link that runs": {"device_ids": []int64{b}, "in_triage": true, "triage_ticket_url": "javascript:alert(1)"},
	} {
		if a := w.post(token, "/devices/triage/", body); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
}
