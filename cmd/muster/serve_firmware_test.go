package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator"
)

// Rules that look often: what a simulated machine does takes seconds.
const (
	quickFirmware = `{"steps": [{"component_type": "nvswitch", "stage": 1, "timeout": "1m", "retry": {"max_attempts": 2, "initial_interval": "1s", "backoff_coefficient": 1},
		"main_operation": {"name": "FirmwareControl", "parameters": {"poll_interval": "1s", "poll_timeout": "10s"}},
		"post_operation": [{"name": "VerifyPowerStatus", "timeout": "30s", "poll_interval": "1s", "parameters": {"expected_status": "on"}}]}]}`
	quickDecommission = `{"steps": [{"component_type": "nvswitch", "stage": 1, "main_operation": {"name": "DecommissionControl"},
		"post_operation": [{"name": "WaitDecommissioned", "timeout": "1m", "poll_interval": "1s"}]}]}`
)

// defaultRule makes a rule the default of its operation.
func (p *plant) defaultRule(t *testing.T, kind, operation, rule string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rule.json")
	if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(t, "rule", "create", "--name", "quick "+operation, "--operation-type", kind, "--operation", operation, "--rule-file", file, "--is-default")
}

// fleetImages serves firmware by its name, and gives the file of a request's
// images for the NVLink switches.
type fleetImages struct{ url string }

func newImages(t *testing.T) *fleetImages {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, path.Base(r.URL.Path)) }))
	t.Cleanup(server.Close)
	return &fleetImages{server.URL}
}

const switchBMC = "MGX_FW_BMC_0"

func (i *fleetImages) request(t *testing.T, version string) string {
	t.Helper()
	name := switchBMC + "@" + version + ".bin"
	sum := sha256.Sum256([]byte(name))
	return i.requestOf(t, name, hex.EncodeToString(sum[:]), version)
}

func (i *fleetImages) requestOf(t *testing.T, name, sum, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.yaml")
	text := fmt.Sprintf("- component_type: nvswitch\n  uri: %s/%s\n  sha256: %s\n  versions: {%s: %q}\n", i.url, name, sum, switchBMC, version)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// updates counts the updates that were started at each switch of the rack, n01
// and on.
func (p *plant) updates(t *testing.T) map[string]int {
	t.Helper()
	all, err := p.control.Effects(t.Context(), 0, "redfish")
	if err != nil {
		t.Fatal(err)
	}
	did := map[string]int{}
	for _, e := range all.Effects {
		if strings.HasPrefix(e.Op, "update ") {
			did[strings.TrimPrefix(e.Subject, "sim1-r01-")]++
		}
	}
	return did
}

// left tells how a task left its components: by the end of the name, what became
// of it and what it is said to be of.
func (p *plant) left(t *testing.T, task int64) map[string]string {
	t.Helper()
	rows, err := p.rows.Query(t.Context(), `select right(d.name, 3), concat_ws(' ', nullif(c.status, ''), nullif(c.failure_code, ''), c.last_state) from task_components c
		join devices d on d.id = c.device_id where task_id = $1`, task)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	is := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		is[name] = text
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return is
}

// said gives what the entries of a task say of a component.
func (p *plant) said(t *testing.T, task int64, name string) string {
	t.Helper()
	return strings.Join(p.texts(t, `select e.message from task_entries e join devices d on d.id = e.device_id where task_id = $1 and right(d.name, 3) = $2`, task, name), "; ")
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d components, want %d: %v", what, len(got), len(want), got)
	}
}

// TestFirmwareOfARackMoves updates the switches of a simulated rack, each with a
// trouble of its own, and then lets them go.
func TestFirmwareOfARackMoves(t *testing.T) {
	t.Parallel()
	var netbox, netboxToken string
	p, worker := rackPlant(t, func(_ object, e *simulator.Endpoints, site *simulator.Site) {
		netbox, netboxToken = site.NetBox, e.Secrets.NetBox
	})
	for _, operation := range []string{"upgrade", "rollback"} {
		p.defaultRule(t, "firmware_control", operation, quickFirmware)
	}
	p.defaultRule(t, "decommission", "decommission", quickDecommission)
	images := newImages(t)
	all := func(text string) map[string]string {
		is := map[string]string{}
		for n := range 9 {
			is[fmt.Sprintf("n%02d", n+1)] = text
		}
		return is
	}

	// What is not what it should be is not sent.
	wrong := p.operate(t, "upgrade", "sim1-r01", "--reason", "test", "--components", "sim1-r01-n01", "--firmware", images.requestOf(t, switchBMC+"@2.0.bin", strings.Repeat("a", 64), "2.0"))
	p.taskEnds(t, wrong, "failed FIRMWARE_IMAGE_INVALID")
	if did := p.updates(t); len(did) != 0 {
		t.Errorf("a wrong image was sent: %v", did)
	}
	same(t, "after a wrong image", p.left(t, wrong), map[string]string{"n01": "failed FIRMWARE_IMAGE_INVALID On"})

	// One has to be sent its image, of one the answer is lost, one keeps its version,
	// one is being updated by somebody. The worker dies while they work.
	p.fault(t, "bmc-push-only", "sim1-r01-n02")
	p.fault(t, "bmc-loses", "sim1-r01-n03")
	p.fault(t, "bmc-keeps", "sim1-r01-n04")
	p.fault(t, "bmc-updating", "sim1-r01-n06")
	up := p.operate(t, "upgrade", "sim1-r01", "--reason", "test", "--firmware", images.request(t, "88.0002.0999"))
	for deadline := time.Now().Add(patience); len(p.updates(t)) < 8; <-time.After(20 * time.Millisecond) { // n06 waits
		if time.Now().After(deadline) {
			t.Fatalf("updates began at %v", p.updates(t))
		}
	}
	worker.kill(t)
	p.serve(t, "worker")
	p.passes(t, up)
	p.taskEnds(t, up, "partially_failed FIRMWARE_VERSION_MISMATCH")
	want := all("succeeded On")
	want["n04"] = "failed FIRMWARE_VERSION_MISMATCH On"
	same(t, "after the upgrade", p.left(t, up), want)
	for name, n := range p.updates(t) {
		if n != 1 {
			t.Errorf("%d updates were started at %s", n, name)
		}
	}
	if did := p.updates(t); len(did) != 9 {
		t.Errorf("updates: %v", did)
	}

	// What is there is left alone; what fails says so.
	p.fault(t, "bmc-well", "sim1-r01-n04")
	p.fault(t, "bmc-bad-image", "sim1-r01-n04")
	again := p.operate(t, "upgrade", "sim1-r01", "--reason", "test", "--firmware", images.request(t, "88.0002.0999"))
	p.passes(t, again)
	p.taskEnds(t, again, "failed FIRMWARE_UPDATE_FAILED")
	if text := p.said(t, again, "n01"); text != "the versions are there" {
		t.Errorf("of one that has the version it says %q", text)
	}
	if text := p.said(t, again, "n04"); !strings.Contains(text, "did not verify") {
		t.Errorf("of one that failed it says %q", text)
	}
	if did := p.updates(t); did["n01"] != 1 || did["n04"] != 2 {
		t.Errorf("updates: %v", did)
	}
	back := p.operate(t, "rollback", "sim1-r01", "--reason", "test", "--components", "sim1-r01-n01", "--firmware", images.request(t, "88.0002.0951"))
	p.passes(t, back)
	p.taskEnds(t, back, "succeeded")
	if did := p.updates(t); did["n01"] != 2 || did["n02"] != 1 {
		t.Errorf("updates: %v", did)
	}

	// A decommissioning ends when the inventory says so.
	away := p.operate(t, "decommission", "sim1-r01", "--reason", "test", "--components", "sim1-r01-n08", "--components", "sim1-r01-n09")
	p.until(t, "it to be asked for", "select count(*) = 2 from task_entries where task_id = $1 and action = 'DecommissionControl' and status = 'succeeded'", away)
	for _, name := range []string{"sim1-r01-n08", "sim1-r01-n09"} {
		p.inNetBox(t, netbox, netboxToken, name, "decommissioned")
	}
	p.taskEnds(t, away, "succeeded")
	if report := p.run(t, "operation", "show", fmt.Sprint(away)); !strings.Contains(report, "WaitDecommissioned") || strings.Contains(report, "failed") {
		t.Errorf("its report is\n%s", report)
	}
}

// passes lets time pass in the fleet, fast, until a task ends.
func (p *plant) passes(t *testing.T, task int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(500 * time.Millisecond) {
		if _, err := p.control.Advance(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		var ended bool
		if err := p.rows.QueryRow(t.Context(), "select job_ended(status) from tasks where id = $1", task).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		if ended {
			return
		}
	}
	t.Fatalf("task %d does not end", task)
}

// inNetBox gives a device a status there, as the people who take it away do.
func (p *plant) inNetBox(t *testing.T, url, token, device, status string) {
	t.Helper()
	var id string
	if err := p.rows.QueryRow(t.Context(), "select f.ref from facts f join devices d on d.id = f.device_id where d.name = $1 and f.source = 'netbox'", device).Scan(&id); err != nil {
		t.Fatal(err)
	}
	p.asks(t, http.MethodPatch, url+"/api/dcim/devices/"+id+"/", "Token ", token, `{"status": "`+status+`"}`)
}
