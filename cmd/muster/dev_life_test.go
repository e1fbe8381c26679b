package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestADevelopmentServerLivesAndIsAsked runs one `muster dev` through its life.
// Each step goes on where the one before has left it.
func TestADevelopmentServerLivesAndIsAsked(t *testing.T) {
	t.Parallel()
	d := newDevelopment(t)
	t.Cleanup(func() {
		if d.cmd != nil {
			_ = d.cmd.Process.Kill()
			<-d.exited
		}
	})
	welcome := d.start(t, "127.0.0.1:0")
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it says where it is and what to do next", func(t *testing.T) { d.saysWhatNext(t, welcome) }},
		{"every status that facts can give is there", d.everyStatus},
		{"a device is explained", d.explains},
		{"it is asked what may be done", d.eligibility},
		{"a second start tells where the first one runs", d.secondStart},
		{"a taken address is an error that names it", d.takenAddress},
		{"a rung that is saved decides from then on", d.savedRung},
		{"what does not load changes nothing and is told", d.brokenFile},
		{"a condition type that is added makes no device flap", d.addedType},
		{"an edited fact is the world changing", d.editedFact},
		{"a change of the past is replayed", d.replay},
		{"a token is made, used and ended", d.tokens},
		{"a snapshot is judged as the server judges", d.snapshot},
		{"kill -9 loses nothing", d.killed},
		{"Ctrl-C ends everything", d.interrupted},
		{"a fresh start moves the old one aside", d.fresh},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatalf("the steps behind this one rest on it\n%s", d.log)
		}
	}
}

func (d *development) saysWhatNext(t *testing.T, welcome string) {
	for _, want := range []string{"muster is ready at " + d.url, "curl -H 'Authorization: Bearer muster_", "device list --data-dir ", "explain device ", d.policies} {
		if !strings.Contains(welcome, want) {
			t.Errorf("it does not say %q:\n%s", want, welcome)
		}
	}
	info, err := os.Stat(filepath.Join(d.data, "cli.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("cli.json: %v, %v", info.Mode(), err)
	}
	if strings.Contains(d.log.String(), "muster_") {
		t.Error("the token is in the log")
	}
}

func (d *development) everyStatus(t *testing.T) {
	for name, want := range map[string][2]string{
		"hel1-r01-c01":   {"in_use", "customer-in-use"},
		"hel1-r01-c04":   {"available", "customer-available"},
		"hel1-r01-c06":   {"in_use", "customer-occupied"},
		"hel1-r01-c07":   {"failed", "provision-failed"},
		"hel1-r01-c08":   {"quarantine", "maintenance"},
		"hel1-r02-c01":   {"validation", "validation"},
		"hel1-r02-c04":   {"quarantine", "validation-unschedulable"},
		"hel1-r02-c06":   {"quarantine", "validation-not-in-slurm"},
		"hel1-r02-c07":   {"quarantine", "maintenance-pool"},
		"hel1-r02-c08":   {"quarantine", "not-enrolled"},
		"hel1-r03-cpu03": {"unknown", "no-infrastructure"},
		"hel1-r03-hv01":  {"quarantine", "otherwise"},
		"lul1-gpu09":     {"in_use", "customer-occupied"},
		"lul1-gpu10":     {"validation", "validation"},
	} {
		d.until(t, name, want[0], want[1])
	}
	fleet := d.devices(t)
	if len(fleet) != 48 {
		t.Errorf("there are %d devices", len(fleet))
	}
	health := map[string]bool{}
	for _, one := range fleet {
		health[one.HealthStatus] = true
	}
	for _, want := range []string{"healthy", "degraded", "critical", "unknown"} {
		if !health[want] {
			t.Errorf("no device is %s", want)
		}
	}
	if out := d.must(t, "source", "list"); !strings.Contains(out, "unjoined 1") || !strings.Contains(out, "unmapped 1") {
		t.Errorf("the sources say:\n%s", out)
	}
}

func (d *development) explains(t *testing.T) {
	out := d.must(t, "explain", "device", "hel1-r02-c04")
	for _, want := range []string{
		`(?m)^  quarantine by rung validation-unschedulable \(policies/status/operational\.cue:\d+\)$`,
		`(?m)^  – maintenance → quarantine   policies/status/operational\.cue:\d+$`,
		`conditions\.Maintenance is False, the rung wants "True"`,
		`(?m)^  ✓ validation-unschedulable`,
		`(?m)^\* SlurmSchedulable +False +Drain .* drain policies/conditions/slurm\.cue:\d+ +NHC`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if _, errs, code := d.run(t, "explain", "device", "nobody"); code != 1 || !strings.Contains(errs, "no device is called") {
		t.Errorf("of nobody: exit code %d, %s", code, errs)
	}
}

func (d *development) secondStart(t *testing.T) {
	out, errs, code := d.run(t, "dev", "--listen", "127.0.0.1:0")
	if code != 0 || !strings.Contains(out, d.url) {
		t.Errorf("exit code %d, it says %q %q", code, out, errs)
	}
	if out, errs, code := d.run(t, "dev", "--fresh"); code == 0 || !strings.Contains(errs, d.url) {
		t.Errorf("--fresh beside a running one: exit code %d, it says %q %q", code, out, errs)
	}
}

func (d *development) takenAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	_, errs, code := d.run(t, "dev", "--data-dir", d.data+"-other", "--listen", address)
	if code == 0 || !strings.Contains(errs, address+" is taken") {
		t.Errorf("exit code %d, it says %q", code, errs)
	}
}

func (d *development) savedRung(t *testing.T) {
	before := d.settled(t)
	d.edit(t, "policies/status/operational.cue", `then: "failed"`, `then: "quarantine"`)
	d.until(t, "hel1-r01-c07", "quarantine", "provision-failed")
	d.until(t, "lul1-gpu12", "quarantine", "provision-failed")
	d.takes(t, before)
	d.edit(t, "policies/status/operational.cue", `(ProvisionFailed: "True", then: )"quarantine"`, `${1}"failed"`)
	d.until(t, "hel1-r01-c07", "failed", "provision-failed")
}

// policy tells by what the server decides.
func (d *development) policy(t *testing.T) policyStatus {
	t.Helper()
	out, errs, _ := d.run(t, "policy", "status", "-o", "json")
	var s policyStatus
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return s
}

// decides waits until the policies are as wanted.
func (d *development) decides(t *testing.T, what string, ok func(policyStatus) bool) policyStatus {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		s := d.policy(t)
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies never are %s: %s\n%s", what, orEmpty(s.Error), d.log)
		}
	}
}

// settled waits until what is active is loaded, and gives its version.
func (d *development) settled(t *testing.T) string {
	t.Helper()
	return orEmpty(d.decides(t, "settled", func(s policyStatus) bool { return s.Current && s.Error == nil }).Active)
}

// takes waits until another version decides.
func (d *development) takes(t *testing.T, than string) {
	t.Helper()
	d.decides(t, "others", func(s policyStatus) bool { return s.Current && s.Error == nil && orEmpty(s.Active) != than })
}

func (d *development) brokenFile(t *testing.T) {
	before := d.settled(t)
	d.edit(t, "policies/status/operational.cue", `conditions: Maintenance: "True"`, `conditions: Maintenence: "True"`)
	d.decides(t, "rejected", func(s policyStatus) bool { return s.Error != nil })
	out, _, code := d.run(t, "policy", "status")
	place := regexp.MustCompile(`operational\.cue:\d+:\d+: `)
	if code != 1 || !place.MatchString(out) || !place.MatchString(d.log.String()) {
		t.Errorf("exit code %d, the status says\n%s\nthe log\n%s", code, out, d.log)
	}
	if now := orEmpty(d.policy(t).Active); now != before {
		t.Errorf("%s decides, before it was %s", now, before)
	}
	d.until(t, "hel1-r01-c08", "quarantine", "maintenance")
	d.edit(t, "policies/status/operational.cue", `Maintenence`, `Maintenance`)
	d.settled(t)
}

// statuses tells the status of every device and the rung that gave it.
func (d *development) statuses(t *testing.T) map[string]string {
	t.Helper()
	statuses := map[string]string{}
	for name, one := range d.devices(t) {
		statuses[name] = one.OperationalStatus + " " + orEmpty(one.Rung)
	}
	return statuses
}

func (d *development) addedType(t *testing.T) {
	before, version := d.statuses(t), d.settled(t)
	text := `package conditions

conditions: Aged: {
	writer:  "openstack"
	feeds:   "operational"
	meaning: "The node is of an old kind."
	emission: {
		rungs: [
			{name: "unread", #when: ironic: resource_class: null, then: {status: "NotRead", reason: "FieldNotServed"}},
			{name: "old", #when: ironic: resource_class: "k80", then: {status: "True", reason: "Old"}},
		]
		otherwise: {status: "False", reason: "Young"}
	}
}
`
	if err := os.WriteFile(filepath.Join(d.policies, "policies", "conditions", "aged.cue"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d.edit(t, "policies/status/operational.cue", `ProvisionFailed: +"False"`, `Aged: "False", ProvisionFailed: "False"`) // what promotes tests it positively
	d.edit(t, "policies/status/operational.cue", `(\t\t\{name: "no-infrastructure")`, "\t\t{name: \"aged\", #when: conditions: Aged: \"True\", then: \"quarantine\"},\n$1")
	d.takes(t, version)
	d.emitted(t, "Aged")
	if after := d.statuses(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before\n%v\nafter\n%v", before, after)
	}
}

// emitted waits until a device has a row of the type.
func (d *development) emitted(t *testing.T, kind string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		out := d.must(t, "explain", "device", "hel1-r01-c01")
		if regexp.MustCompile(`(?m)^` + kind + ` +False +Young `).MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is never emitted:\n%s", kind, out)
		}
	}
}

func (d *development) editedFact(t *testing.T) {
	replaceIn(t, filepath.Join(d.facts, "hel1", "slurm.json"), `"states": \["IDLE", "DRAIN"\], "reason": "[^"]*"`, `"states": ["IDLE"], "reason": ""`)
	d.until(t, "hel1-r02-c04", "validation", "validation")
	replaceIn(t, filepath.Join(d.facts, "hel1", "ironic.json"), `("name": "hel1-r01-c04".*?)"maintenance": false`, `$1"maintenance": true`)
	d.until(t, "hel1-r01-c04", "quarantine", "maintenance")
}

func (d *development) replay(t *testing.T) {
	id := d.devices(t)["hel1-r02-c04"].ID
	var page struct {
		Items []struct {
			ID    int64
			Value string
		}
	}
	d.get(t, fmt.Sprintf("/api/v1/devices/%d/lifecycle-events/?kind=operational", id), &page)
	for _, event := range page.Items {
		if event.Value != "validation" {
			continue
		}
		out := d.must(t, "explain", "--event", fmt.Sprint(event.ID))
		for _, want := range []string{"operational became validation, before quarantine", "as the policy was", "✓ validation → validation", "conditions.SlurmSchedulable is True, the rung wants \"False\""} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		return
	}
	t.Errorf("none of the events %+v is of the resumed node", page.Items)
}

// get asks the API without the command line.
func (d *development) get(t *testing.T, path string, into any) {
	t.Helper()
	server, err := (&app{getenv: func(string) string { return "" }}).connect(&connection{dataDir: d.data})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Get(t.Context(), strings.TrimPrefix(path, "/api/v1"), nil, into); err != nil {
		t.Fatal(err)
	}
}

func (d *development) tokens(t *testing.T) {
	token := strings.TrimSpace(d.must(t, "token", "create", "lul", "--scope", "device:read", "--site", "lul1"))
	out := d.must(t, "device", "list", "--url", d.url, "--token", token)
	if strings.Contains(out, "hel1") || !strings.Contains(out, "lul1-gpu01") {
		t.Errorf("a token of lul1 sees\n%s", out)
	}
	if _, errs, code := d.run(t, "source", "confirm", "lul1", "ironic", "--hash", "x", "--url", d.url, "--token", token); code != 1 || !strings.Contains(errs, "scope_missing") {
		t.Errorf("a write without the scope: exit code %d, %s", code, errs)
	}
	if _, errs, code := d.run(t, "device", "list", "--url", strings.Replace(d.url, "127.0.0.1", "localhost", 1)); code != 1 || !strings.Contains(errs, "unauthenticated") {
		t.Errorf("the left token is shown to another address: exit code %d, %s", code, errs)
	}
	list := d.must(t, "token", "list")
	id := regexp.MustCompile(`(?m)^(\d+) +lul `).FindStringSubmatch(list)
	if id == nil {
		t.Fatalf("the list lacks it:\n%s", list)
	}
	d.must(t, "token", "revoke", id[1])
	if _, errs, code := d.run(t, "device", "list", "--url", d.url, "--token", token); code != 1 || !strings.Contains(errs, "revoked") {
		t.Errorf("a revoked token: exit code %d, %s", code, errs)
	}
}

func (d *development) snapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshot")
	d.must(t, "snapshot", dir)
	statuses := d.devices(t)
	for _, name := range []string{"hel1-r01-c01", "hel1-r02-c06", "hel1-r03-cpu03", "lul1-gpu10"} {
		var e struct {
			Status string `json:"operational_status"`
			Rung   string `json:"rung"`
		}
		out := d.must(t, "explain", "--facts", dir, "--device", name, "--policies", d.policies, "-o", "json")
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			t.Fatal(err)
		}
		if live := statuses[name]; e.Status != live.OperationalStatus || e.Rung != orEmpty(live.Rung) {
			t.Errorf("%s: the snapshot gives %s by %s, the server %s by %s", name, e.Status, e.Rung, live.OperationalStatus, orEmpty(live.Rung))
		}
	}
}

func (d *development) killed(t *testing.T) {
	before, ids, url := d.statuses(t), d.devices(t), d.url
	if err := d.end(t, syscall.SIGKILL); err == nil {
		t.Fatal("it ended in order")
	}
	d.start(t, strings.TrimPrefix(url, "http://"))
	if after := d.statuses(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("before\n%v\nafter\n%v", before, after)
	}
	for name, one := range d.devices(t) {
		if one.ID != ids[name].ID {
			t.Errorf("%s is device %d, it was %d", name, one.ID, ids[name].ID)
		}
	}
	if n := strings.Count(d.must(t, "token", "list"), " dev "); n != 1 {
		t.Errorf("there are %d tokens called dev: the one of before is good", n)
	}
}

func (d *development) interrupted(t *testing.T) {
	if err := d.end(t, os.Interrupt); err != nil {
		t.Errorf("it ended with %v\n%s", err, d.log)
	}
	if left, err := filepath.Glob(filepath.Join(d.data, "postgres", "*", "postmaster.pid")); err != nil || len(left) > 0 {
		t.Errorf("PostgreSQL left %v, %v", left, err)
	}
	if _, errs, code := d.run(t, "device", "list"); code != 3 || !strings.Contains(errs, "is it running?") {
		t.Errorf("asked afterwards: exit code %d, %s", code, errs)
	}
}

func (d *development) fresh(t *testing.T) {
	welcome := d.start(t, "127.0.0.1:0", "--fresh")
	aside := regexp.MustCompile(`what was here before is in (\S+)`).FindStringSubmatch(welcome)
	if aside == nil {
		t.Fatalf("it does not say where the old one is:\n%s", welcome)
	}
	if _, err := os.Stat(filepath.Join(aside[1], "cli.json")); err != nil {
		t.Error(err)
	}
	d.until(t, "hel1-r01-c01", "in_use", "customer-in-use")
	if out := d.must(t, "token", "list"); strings.Contains(out, "lul") {
		t.Errorf("a token of before is there:\n%s", out)
	}
	if err := d.end(t, os.Interrupt); err != nil {
		t.Error(err)
	}
}
