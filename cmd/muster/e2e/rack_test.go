package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/migrations"
)

const (
	rackNet  = "127.86.0" // of the BMCs
	deadWay  = "127.86.1.6"
	deadName = "x1-c06" // whose BMC is behind a wire
	scopes   = "operation:read,operation:write,rule:read,rule:write"
)

// kinds are the component types of the rack in the order in which its power is taken.
var kinds = []string{"compute", "nvswitch", "powershelf"}

// The machines of the rack, as their BMCs are numbered.
var racked = []string{
	"x1-c01", "x1-c02", "x1-c03", "x1-c04", "x1-c05", deadName, "x1-n01", "x1-n02", "x1-n03", "x1-p01", "x1-p02",
}

func kindOf(name string) string {
	return map[byte]string{'c': "compute", 'n': "nvswitch", 'p': "powershelf"}[name[3]]
}

// of gives the machines of a type.
func of(kind string) []string {
	return slices.DeleteFunc(slices.Clone(racked), func(name string) bool { return kindOf(name) != kind })
}

// The worked example of a graceful power-on and power-off, with short waits, and
// narrower than the rack is. PowerControl is tried as the example says.
const rackRules = `version: v1
rules:
  - name: Up from the shelves
    operation_type: power_control
    operation: power_on
    steps:
      - component_type: powershelf
        stage: 1
        max_parallel: 1
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0, max_interval: 1m}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "on"}}
          - {name: VerifyReachability, timeout: 1m, poll_interval: 1s, parameters: {component_types: [compute, nvswitch]}}
          - {name: Sleep, parameters: {duration: 1500ms}}
      - component_type: nvswitch
        stage: 2
        max_parallel: 1
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0, max_interval: 1m}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "on"}}
      - component_type: compute
        stage: 3
        max_parallel: 2
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0, max_interval: 1m}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "on"}}
  - name: Down from the trays
    operation_type: power_control
    operation: power_off
    steps:
      - component_type: compute
        stage: 1
        max_parallel: 2
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "off"}}
      - component_type: nvswitch
        stage: 2
        max_parallel: 1
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "off"}}
      - component_type: powershelf
        stage: 3
        max_parallel: 1
        timeout: 2m
        retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 2.0}
        pre_operation:
          - {name: Sleep, parameters: {duration: 1500ms}}
        main_operation: {name: PowerControl}
        post_operation:
          - {name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "off"}}
`

// rules' figures that the tests measure.
var (
	atOnce = map[string]int{"compute": 2, "nvswitch": 1, "powershelf": 1}
	pause  = 1500 * time.Millisecond // the Sleep beside the shelves
)

// rackSite is a rack whose BMCs are an emulator of our own, and what runs beside
// muster's processes, each of which can be killed alone.
type rackSite struct {
	*muster
	ironic   string // URL, "" none
	bmcs     *realBMCs
	journal  *journal
	wire     *wire // to the BMC of deadName
	database string
	rows     *pgx.Conn
	temporal string // host:port
	worker   *exec.Cmd

	processes []*exec.Cmd // of muster
}

// newRackSite starts everything; with the URL of an Ironic that is the site's.
func newRackSite(t *testing.T, binary, ironic string) *rackSite {
	t.Helper()
	r := &rackSite{ironic: ironic, muster: &muster{binary: binary, log: &lockedBuffer{}}, temporal: freeAddress(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("muster said:\n%s", r.log.tail(200))
		}
	})
	r.database = pgtest.Template(t, "migrated", func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	})
	var err error
	if r.rows, err = pgx.Connect(t.Context(), r.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.rows.Close(context.Background()) })
	r.emulate(t)
	r.wire = newWire(t, r.bmcs.at(deadWay), r.bmcs.at(rackNet+".6"))
	r.startTemporal(t)
	t.Cleanup(func() { // also of those that a step started
		for _, cmd := range r.processes {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	r.site = r.siteFile(t)
	r.serve(t, "api,reconciler")
	r.url = r.says(t, `"@message":"serving".*?(http://[0-9.:]+)`)
	r.worker = r.serve(t, "worker")
	r.token = r.mint(t)
	r.until(t, "the rack to be known", func() error {
		var n int
		err := r.rows.QueryRow(t.Context(), "select count(*) from devices where name = any($1) and bmc_address <> '' and device_class is not null", racked).Scan(&n)
		if err == nil && n != len(racked) {
			err = fmt.Errorf("%d devices are", n)
		}
		return err
	})
	return r
}

// emulate starts the rack's BMCs: the last two are power shelves, all is on. Of
// one of each type the answer to every reset is lost, of none that Ironic has: it
// gives up.
func (r *rackSite) emulate(t *testing.T) {
	t.Helper()
	dir := peerDir(t, "rack")
	t.Cleanup(func() { script(t, operatePeer, nil, "redfish-down.sh", dir) })
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	out := strings.Fields(script(t, startPeer, []string{
		fmt.Sprintf("REDFISH_BMCS=%d", len(racked)), "REDFISH_NET=" + rackNet, "REDFISH_SHELVES=2", "REDFISH_POWER=On", "REDFISH_LOSING=5,8,11", "REDFISH_DELAY=0.5,1.5",
	}, "redfish-up.sh", dir, port))
	env := readEnv(t, out[len(out)-1])
	r.bmcs = readBMCs(t, env)
	r.journal = &journal{file: env["REDFISH_JOURNAL"]}
}

func (r *rackSite) startTemporal(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(r.temporal)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(temporalProgram(), "--dir", peerDir(t, "temporal"), "--port", port, "--namespace", embedded.TemporalNamespace, "--schema", embedded.TemporalSchema)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// serve starts one process of muster.
func (r *rackSite) serve(t *testing.T, roles string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(r.binary, "serve", "--site", r.site, "--roles", roles, "--listen", "127.0.0.1:0", "--temporal-address", r.temporal)
	cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+r.database)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.processes = append(r.processes, cmd)
	return cmd
}

// killWorker ends the only worker without a word, and starts another.
func (r *rackSite) killWorker(t *testing.T) {
	t.Helper()
	if err := r.worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.worker.Wait() // tells that it was killed
	r.worker = r.serve(t, "worker")
}

// says waits until muster logs a pattern, and gives its first group.
func (r *rackSite) says(t *testing.T, pattern string) (group string) {
	t.Helper()
	r.until(t, "muster to say "+pattern, func() error {
		found := regexp.MustCompile(pattern).FindStringSubmatch(r.log.tail(1 << 20))
		if found == nil {
			return errors.New(r.log.tail(20))
		}
		group = found[1]
		return nil
	})
	return group
}

func (r *rackSite) mint(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.binary, "token", "create", "racks", "--scope", scopes)
	cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+r.database)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("token create: %v\n%s", err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// siteFile describes the rack by an inventory of one's own, in which more machines
// stand elsewhere: the shipped caps let no site lose all that it has.
func (r *rackSite) siteFile(t *testing.T) string {
	t.Helper()
	roles := map[string]string{"compute": "gpu-node", "nvswitch": "nvswitch", "powershelf": "powershelf"}
	var records []any
	stand := func(name, rack, kind, bmc string) {
		facts := map[string]any{
			"name": name, "status": "active", "role": roles[kind], "tenant": "", "site": "ams6", "location": "", "rack": rack,
			"position": fmt.Sprint(len(records)%40 + 1), "serial": "S-" + name, "asset_tag": "", "resource_class": "gb200", "tags": []string{},
		}
		if bmc != "" {
			facts["oob_ip"] = bmc + "/8"
		}
		records = append(records, map[string]any{"ref": fmt.Sprint(len(records) + 1), "name": name, "serial": "S-" + name, "facts": facts})
	}
	for i, name := range racked {
		bmc := r.bmcs.addresses[i]
		if name == deadName {
			bmc = deadWay
		}
		stand(name, "x1", kindOf(name), bmc)
	}
	for rack := 2; rack <= 4; rack++ {
		for _, name := range racked {
			stand(strings.Replace(name, "x1", fmt.Sprintf("x%d", rack), 1), fmt.Sprintf("x%d", rack), kindOf(name), "")
		}
	}
	inventory, err := json.Marshal(map[string]any{"source": "file", "at": time.Now().UTC(), "records": records})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, login := filepath.Join(dir, "site.cue"), filepath.Join(dir, "login")
	withIronic := ""
	if r.ironic != "" {
		withIronic = fmt.Sprintf(`ironic: {url: %q, interval: "1s", timeout: "15s"}`, r.ironic)
	}
	for name, text := range map[string]string{
		filepath.Join(dir, "file.json"): string(inventory), login: r.bmcs.login,
		file: fmt.Sprintf(`name: "ams6"
engagement_mode:      "fully_managed"
inventory:            "file"
trait_based:          true
placement_enabled:    false
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	recorded: file: "file.json"
	%s
	bmc: {
		port: %d
		networks: ["127.0.0.0/8"]
		interval: "1h" // what the BMCs are asked is the tasks' doing
		timeout:  "20s"
		tls: fingerprints: [%q]
		credentials: [{match: "*", ref: %q}]
	}
}
`, customerTrait, enrolProject, slurmProject, withIronic, r.bmcs.port, fingerprint(t, r.bmcs.at(r.bmcs.addresses[0])), "file:"+login),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}
