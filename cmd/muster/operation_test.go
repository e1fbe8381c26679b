package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	taskText = `{"id": 4, "site": "lab", "rack_id": 7, "rack": "r1", "operation": "power_off", "rule_source": "builtin", "rule_id": null, "rule_name": "Power off", "status": %q, "ended": %t,
		"queue_until": null, "ahead": 0, "worst_seconds": 9000, "requested_by": "token:me", "created_at": "2026-03-01T12:00:00Z", "failure": %s,
		"components": {"total": 2, "by_status": {"waiting": 2}}, "waiting": null}`
	reportText = `{"task": %s, "rule": {}, "components": [
			{"device_id": 1, "name": "r1-c1", "component_type": "compute", "status": %q, "phase": "main", "last_state": "Off", "failure": null},
			{"device_id": 2, "name": "r1-c2", "component_type": "compute", "status": %q, "phase": "main", "last_state": "On", "failure": %s}],
		"stages": [{"stage": 1, "steps": [{"component_type": "compute", "actions": [
			{"phase": "main", "index": 0, "action": "PowerControl", "entries": [
				{"name": "r1-c1", "status": %[2]q, "attempts": 1, "started_at": "2026-03-01T12:00:00Z", "finished_at": "2026-03-01T12:00:20Z"},
				{"name": "r1-c2", "status": %[3]q, "attempts": 3, "started_at": "2026-03-01T12:00:00Z", "finished_at": null}]},
			{"phase": "post", "index": 0, "action": "VerifyPowerStatus", "entries": [{"name": null, "status": "planned", "attempts": 0, "started_at": null, "finished_at": null}]}]}]}]}`
)

func reportOf(status string, ended bool, one, other, failure string) string {
	task := fmt.Sprintf(taskText, status, ended, failure)
	return strings.Join(strings.Fields(fmt.Sprintf(reportText, task, one, other, failure)), " ")
}

func TestAnOperationIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	failure := `{"code": "POWER_STATE_MISMATCH", "message": "still on", "owner": "dc", "hint": "look at the cable"}`
	c := converse(t, map[string]func(http.ResponseWriter){
		"POST /operations/power/": says(201, `{"tasks": [`+taskText+`]}`, "pending", false, "null"),
		"GET /operations/tasks/4/events/": func(w http.ResponseWriter) {
			fmt.Fprint(w, "event: snapshot\ndata: ", reportOf("running", false, "running", "running", "null"), "\n\n",
				"event: end\ndata: ", reportOf("failed", true, "succeeded", "failed", failure), "\n\n")
		},
	})
	code, out, errs := c.types(t, "operation", "submit", "power_off", "r1", "7", "--components", "compute", "--exclude", "r1-c3,9", "--conflict", "queue", "--queue-for", "90m",
		"--override", "fire", "--key", "k", "--watch")
	want := `12:00:30  task 4 power_off of rack r1 is running
12:00:30  stage 1 compute main PowerControl: running
12:00:30  task 4 power_off of rack r1 is failed: POWER_STATE_MISMATCH still on
12:00:30  stage 1 compute main PowerControl: 1 failed, 1 succeeded
12:00:30  r1-c2 failed, last seen On: POWER_STATE_MISMATCH still on (look at the cable)
`
	if code != exitNo || out != want || errs != "" {
		t.Errorf("code %d\n%s\n%s", code, out, errs)
	}
	sent := `{"components":["compute"],"conflict":"queue","exclude":["r1-c3",9],"operation":"power_off","override":{"reason":"fire"},"queue_for":"1h30m0s","racks":["r1",7],"reason":"fire"}`
	if c.sent[0] != sent || c.keys[0] != "k" {
		t.Errorf("sent %s with the key %q", c.sent[0], c.keys[0])
	}
}

func TestAReportIsReadable(t *testing.T) {
	t.Parallel()
	c := converse(t, map[string]func(http.ResponseWriter){
		"GET /operations/tasks/4/":         says(200, "%s", reportOf("running", false, "succeeded", "running", "null")),
		"GET /operations/tasks/4/events/":  says(204, ""),
		"GET /operations/tasks/5/":         says(200, "%s", reportOf("cancelled", true, "cancelled", "waiting", "null")),
		"GET /operations/tasks/":           says(200, `{"next": null, "items": [`+taskText+`]}`, "queued", false, "null"),
		"POST /operations/tasks/4/cancel/": says(202, taskText, "cancelled", true, "null"),
		"POST /operations/firmware/":       says(409, `{"status": 409, "code": "not_eligible", "detail": "d", "eligibility": %s}`, verdictText),
	})
	code, out, _ := c.types(t, "operation", "show", "task/4")
	for _, want := range []string{"4, power_off of rack r1 (7) at site lab", "Power off (builtin)", "2h30m0s", "compute    main PowerControl", "30s  1 running, 1 succeeded", "planned", "r1-c2"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("code %d, no %q in\n%s", code, want, out)
		}
	}
	if code, out, _ := c.types(t, "operation", "show", "5"); code != exitOK || !strings.Contains(out, "components  2 never begun\n") || !strings.Contains(out, "r1-c2      compute  never begun") {
		t.Errorf("code %d\n%s", code, out)
	}
	if code, out, _ := c.types(t, "operation", "list", "--open", "--rack", "7"); code != exitOK || !strings.Contains(out, "power_off  lab   r1    queued  2 waiting") || !strings.Contains(out, "who holds its devices") {
		t.Errorf("code %d\n%s", code, out)
	}
	if code, out, _ := c.types(t, "operation", "cancel", "4", "--reason", "wrong rack"); code != exitOK || out != "task 4 power_off of rack r1 is cancelled\n" {
		t.Errorf("code %d, %s", code, out)
	}
	if code, _, errs := c.types(t, "operation", "cancel", "4"); code != exitUsage || !strings.Contains(errs, "--reason") {
		t.Errorf("code %d, %s", code, errs)
	}
	images := filepath.Join(t.TempDir(), "images.yaml")
	if err := os.WriteFile(images, []byte("- component_type: compute\n  uri: https://x/y\n  sha256: ab\n  versions: {BMC: \"2\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := c.types(t, "operation", "submit", "upgrade", "r1", "--reason", "CHG-7", "--firmware", images); code != exitNo || !strings.Contains(out, "✗ breaker_open: breaker b is open") {
		t.Errorf("code %d, %s", code, out)
	}
	if last := c.sent[len(c.sent)-1]; !strings.Contains(last, `"firmware":[{"component_type":"compute","sha256":"ab","uri":"https://x/y","versions":{"BMC":"2"}}]`) {
		t.Errorf("sent %s", last)
	}
}

func TestRulesAreKeptByTheServer(t *testing.T) {
	t.Parallel()
	const item = `{"id": 3, "name": "own", "operation_type": "power_control", "operation": "power_on", "is_default": true, "racks": [7], "revision": 2, "rule": {"version": "v1", "steps": []},
		"updated_at": "2026-03-01T12:00:00Z", "updated_by": "token:me"}`
	c := converse(t, map[string]func(http.ResponseWriter){
		"POST /operation-rules/":                    says(201, item),
		"POST /operation-rules/import/":             says(200, `{"rules": [{"outcome": "skipped", "rule": `+item+`}], "warnings": []}`),
		"GET /operation-rules/":                     says(200, `{"next": null, "items": [`+item+`]}`),
		"GET /operation-rules/3/":                   says(200, item),
		"DELETE /operation-rules/3/":                says(409, `{"status": 409, "code": "rule_in_use", "detail": "rule 3 is the default of power_on"}`),
		"POST /operation-rules/3/set-default/":      says(200, item),
		"GET /racks/7/operation-rules/":             says(200, `{"next": null, "items": [`+item+`]}`),
		"PUT /racks/7/operation-rules/power_on/":    says(200, item),
		"DELETE /racks/7/operation-rules/power_on/": says(204, ""),
		"POST /operation-rules/plan/":               says(200, `{"operation": "power_on", "name": "own", "source": "default", "rule_id": 3, "components": {"compute": 2}, "plan": {"stages": [], "worst": "1h"}, "missing": [], "warnings": []}`),
	})
	dir := t.TempDir()
	steps := filepath.Join(dir, "steps.json")
	batch := filepath.Join(dir, "batch.yaml")
	for name, text := range map[string]string{
		steps: `{"steps": [{"component_type": "Compute", "stage": 1, "main_operation": {"name": "PowerControl"}}]}`,
		batch: "rules:\n" + strings.Repeat("  - {name: x, operation_type: power_control, operation: power_OP, steps: []}\n", 2),
	} {
		text = strings.Replace(strings.Replace(text, "power_OP", "power_on", 1), "power_OP", "power_off", 1)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"rule", "create", "--name", "own", "--operation-type", "power_control", "--operation", "power_on", "--rule-file", steps, "--is-default"}, exitOK, "rule 3 for power_on is stored and the default\n"},
		{[]string{"rule", "create", "--from-yaml", batch, "--overwrite"}, exitOK, "3   power_on   skipped: there is a rule, --overwrite replaces it  own"},
		{[]string{"rule", "list", "--operation", "power_on"}, exitOK, "3   power_control  power_on   yes      1      2"},
		{[]string{"rule", "list", "--rack-id", "7"}, exitOK, "3   power_control  power_on   yes      1      2"},
		{[]string{"rule", "list", "--rack-id", "0"}, exitUsage, ""},
		{[]string{"rule", "list", "--rack-id", "7", "--operation", "power_on"}, exitUsage, ""},
		{[]string{"rule", "get", "3"}, exitOK, `"operation": "power_on"`},
		{[]string{"rule", "delete", "--id", "3"}, exitNo, ""},
		{[]string{"rule", "set-default", "--id", "3"}, exitOK, "rule 3 is the default of power_on\n"},
		{[]string{"rule", "associate", "--rack-id", "7", "--rule-id", "3"}, exitOK, "rack 7 does power_on by rule 3\n"},
		{[]string{"rule", "disassociate", "--rack-id", "7", "--operation", "power_on"}, exitOK, "rack 7 does power_on by the default again\n"},
		{[]string{"rule", "plan", "--rack", "7", "--operation", "power_on"}, exitOK, "at most 1h in all"},
		{[]string{"rule", "get"}, exitUsage, ""},
	} {
		if code, out, errs := c.types(t, one.args...); code != one.code || !strings.Contains(out, one.want) {
			t.Errorf("%v: code %d, %s %s", one.args, code, out, errs)
		}
	}
	if !strings.HasPrefix(c.sent[0], `{"is_default":true,"rule":{"name":"own","version":"v1"`) || !strings.Contains(c.sent[1], `"overwrite":true`) {
		t.Errorf("sent %s and %s", c.sent[0], c.sent[1])
	}
}
