package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
)

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

func TestASubmissionsRefusalHasItsStatus(t *testing.T) {
	t.Parallel()
	refused := func(codes ...string) error {
		report := jobs.Report{Workflow: "w", Parameters: map[string]any{}, Devices: make([]jobs.Verdict, 1)}
		for _, code := range codes {
			report.Devices[0].Refusals = append(report.Devices[0].Refusals, jobs.Refusal{Code: code})
		}
		return fmt.Errorf("submit: %w", &jobs.RefusedError{Report: report})
	}
	for name, try := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"other work":            {refused(jobs.CodeWorkflowConflict), 409, "workflow_conflict"},
		"a gate":                {refused("instance_present"), 409, "instance_present"},
		"several gates":         {refused("instance_present", "facts_stale"), 409, "not_eligible"},
		"no such device":        {refused(jobs.CodeDeviceNotFound), 404, "device_not_found"},
		"a parameter":           {refused(jobs.CodeParameterInvalid), 422, "parameter_invalid"},
		"a parameter and gates": {refused(jobs.CodeParameterInvalid, "facts_stale"), 422, "not_eligible"},
		"a key of another":      {&jobs.Error{Code: jobs.CodeIdempotencyKeyReused}, 422, "idempotency_key_reused"},
		"busy":                  {&jobs.Error{Code: jobs.CodeBusy}, 503, "busy"},
	} {
		status, code, after := httpapi.ProblemOf(try.err)
		if status != try.status || code != try.code || (status == 503) != (after != "") {
			t.Errorf("%s: %d %s, again after %q", name, status, code, after)
		}
	}
}
