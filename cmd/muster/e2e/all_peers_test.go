package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources/slurm"
)

// machine is the one that walks. SLURM has a node of that name.
const machine = "n0004"

// walk is one machine on its way from its rack to its customers and back. Muster
// reaches the systems over wires, which can be cut.
type walk struct {
	*world
	netbox *realNetBox
	bmcs   *realBMCs
	client string // runs a command of SLURM's own
	token  string // of SLURM, file
	user   string // of SLURM

	toIronic, toNetBox, toSlurm, toBMC *wire
}

// A machine is enrolled, tested, handed to customers, taken back, cleaned and let
// go again, each step failing once on its way: what muster says of it, and what
// the systems themselves say, agree after every step.
func TestAMachineWalksFromItsRackToCustomersAndBack(t *testing.T) {
	t.Parallel()
	needPeers(t)
	binary := buildWorking(t)
	w := &walk{netbox: findNetBox(t), bmcs: findBMCs(t), world: &world{nodes: map[string]string{}}}
	w.findSlurm(t)
	w.ironic = startIronic(t, "IRONIC_POWER_SYNC=3600") // it is not to hold a node whose BMC is cut off
	w.netbox.furnishAs(t, "cpu-node")
	w.toIronic = newWire(t, freeAddress(t), hostOf(t, w.ironic.url))
	bmc := "127.84.0.2"
	w.toNetBox = newWire(t, freeAddress(t), hostOf(t, w.netbox.url))
	w.toBMC = newWire(t, w.bmcs.at(bmc), w.bmcs.at(w.bmcs.addresses[2]))
	w.rack(t, bmc)
	w.muster = newMuster(t, binary, w.siteFile(t))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it stands in the rack", w.racked},
		{"its BMC is looked for", w.verified},
		{"it is enrolled", w.enrolled},
		{"it is moved to the test cluster", w.moved},
		{"it is released to customers", w.released},
		{"it is cordoned, and back", w.cordoned},
		{"its customer's instance is reclaimed", w.reclaimed},
		{"a failed clean is recovered", w.cleaned},
		{"it is let go", w.letGo},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// findSlurm takes a SLURM of the generation that Debian has now.
func (w *walk) findSlurm(t *testing.T) {
	t.Helper()
	for _, file := range strings.Split(os.Getenv("MUSTER_PEER_SLURM"), ",") {
		if file == "" {
			continue
		}
		env := readEnv(t, file)
		if !strings.HasPrefix(env["SLURM_VERSION"], "24.") {
			continue
		}
		w.token = filepath.Join(t.TempDir(), "slurm-token")
		if err := os.WriteFile(w.token, []byte(env["SLURM_REST_TOKEN"]), 0o600); err != nil {
			t.Fatal(err)
		}
		w.client, w.user = env["SLURM_CLI"], env["SLURM_REST_USER"]
		w.toSlurm = newWire(t, freeAddress(t), hostOf(t, env["SLURM_REST_URL"]))
		w.drained(t, env)
		return
	}
	t.Skip("MUSTER_PEER_SLURM names no slurm.env of a SLURM 24 (testdata/peers/slurm-up.sh)")
}

// scontrol speaks to SLURM past muster.
func (w *walk) scontrol(t *testing.T, args ...string) string {
	t.Helper()
	return w.atSlurm(t, "scontrol", args...)
}

// busy puts work on the machine's node, which runs until it is finished.
func (w *walk) busy(t *testing.T) (finish func()) {
	t.Helper()
	out := strings.Fields(w.atSlurm(t, "sbatch", "--parsable", "-p", "live", "-w", machine, "-o", "/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"))
	id := out[len(out)-1]
	w.until(t, "the work to run", func() error {
		if said := w.scontrol(t, "show", "job", id); !strings.Contains(said, "JobState=RUNNING") {
			return errors.New(said)
		}
		return nil
	})
	return func() { w.atSlurm(t, "scancel", id) }
}

// atSlurm runs a command of SLURM's own.
func (w *walk) atSlurm(t *testing.T, command string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, w.client, append([]string{command}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// drained takes the machine's node out of SLURM, as an earlier release left it.
func (w *walk) drained(t *testing.T, env map[string]string) {
	t.Helper()
	c, err := slurm.New(slurm.Config{URL: env["SLURM_REST_URL"], User: env["SLURM_REST_USER"], TokenFile: w.token}, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Drain(t.Context(), machine, job, "removed from service"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(w.scontrol(t, "show", "node", machine), "DRAIN") {
			w.scontrol(t, "update", "nodename="+machine, "state=resume")
		}
	})
}

// ofSlurm checks whether SLURM itself has the node in service.
func (w *walk) ofSlurm(t *testing.T, inService bool) {
	t.Helper()
	said := w.scontrol(t, "show", "node", machine)
	drain := strings.Contains(said, "DRAIN")
	if drain == inService || drain && !strings.Contains(said, "Reason=muster:") {
		t.Errorf("SLURM has it in service: want %v; it says\n%s", inService, said)
	}
}

// rack puts the machine into NetBox, staged, with its BMC and a port.
func (w *walk) rack(t *testing.T, bmc string) {
	t.Helper()
	n := w.netbox
	for _, tag := range []string{"dhcp-configured", "bmc-configured", "ironic-enrolled", "provisioned"} {
		n.tag(t, tag)
	}
	body := n.standing(machine, "WALK0004", 4)
	body["status"], body["custom_fields"] = "staged", map[string]any{"resource_class": "baremetal"}
	n.make(t, machine, "dcim/devices/", body)
	for _, port := range []struct {
		name, mac string
		bmc       bool
	}{{"BMC", "02:aa:00:00:00:04", true}, {"eth0", "02:aa:00:00:01:04", false}} {
		n.make(t, port.name, "dcim/interfaces/", map[string]any{"device": n.ids[machine], "name": port.name, "type": "1000base-t", "mgmt_only": port.bmc})
		n.make(t, port.mac, "dcim/mac-addresses/", map[string]any{"mac_address": port.mac, "assigned_object_type": "dcim.interface", "assigned_object_id": n.ids[port.name]})
		n.send(t, http.MethodPatch, n.at(port.name, "dcim/interfaces/"), map[string]any{"primary_mac_address": n.ids[port.mac]})
	}
	n.make(t, bmc, "ipam/ip-addresses/", map[string]any{"address": bmc + "/8", "assigned_object_type": "dcim.interface", "assigned_object_id": n.ids["BMC"]})
	t.Cleanup(func() { n.send(t, http.MethodDelete, n.at(bmc, "ipam/ip-addresses/"), nil) }) // another run wants the address
	n.send(t, http.MethodPatch, n.at(machine, "dcim/devices/"), map[string]any{"oob_ip": n.ids[bmc]})
}

// inNetBox is what NetBox itself says of the machine.
func (w *walk) inNetBox(t *testing.T, status string, tags ...string) {
	t.Helper()
	var d struct {
		Status struct{ Value string }
		Tags   []struct{ Slug string }
	}
	w.netbox.get(t, w.netbox.at(machine, "dcim/devices/"), &d)
	var have []string
	for _, tag := range d.Tags {
		have = append(have, tag.Slug)
	}
	if d.Status.Value != status || !slices.Equal(have, tags) {
		t.Errorf("NetBox says %s with the tags %v, want %s with %v", d.Status.Value, have, status, tags)
	}
}

func (w *walk) setNetBox(t *testing.T, status string) {
	t.Helper()
	w.netbox.send(t, http.MethodPatch, w.netbox.at(machine, "dcim/devices/"), map[string]any{"status": status})
}

// node is what Ironic itself says of a node.
type node struct {
	UUID        string
	Name        string
	Driver      string
	State       string  `json:"provision_state"`
	Instance    *string `json:"instance_uuid"`
	Lessee      *string
	Maintenance bool
	Traits      []string
	Extra       map[string]any
	Class       string         `json:"resource_class"`
	Deploy      string         `json:"deploy_interface"`
	Info        map[string]any `json:"driver_info"`
}

// inIronic asks Ironic; false: it has no node of the machine.
func (w *walk) inIronic(t *testing.T) (n node, has bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.ironic.url+"/v1/nodes/"+machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return n, false
	}
	if err := json.NewDecoder(response.Body).Decode(&n); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("Ironic says %s, %v", response.Status, err)
	}
	return n, true
}

// isNode checks what Ironic itself says: of whose instance "ours" is one that our
// mark names.
func (w *walk) isNode(t *testing.T, state, lessee, whose string, offered bool) node {
	t.Helper()
	n, has := w.inIronic(t)
	if !has {
		t.Fatal("Ironic has no such node")
	}
	if id := w.nodes[machine]; id != "" && n.UUID != id {
		t.Errorf("Ironic has the node %s, it was %s", n.UUID, id)
	}
	is, mark := "nobody's", fmt.Sprint(n.Extra["muster"])
	if n.Instance != nil {
		is = *n.Instance
		if strings.HasSuffix(mark, is) {
			is = "ours"
		}
	} else if n.Extra["muster"] != nil {
		t.Errorf("no instance is left, and the mark %s is", mark)
	}
	if n.State != state || said(n.Lessee) != lessee || is != whose || slices.Contains(n.Traits, customerTrait) != offered || n.Maintenance {
		t.Errorf("Ironic says %+v, leased to %s, the instance %s, want %s, %s, %s, trait: %v", n, said(n.Lessee), is, state, lessee, whose, offered)
	}
	return n
}

func (w *walk) siteFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	login, token, file := filepath.Join(dir, "login"), filepath.Join(dir, "token"), filepath.Join(dir, "site.cue")
	texts := map[string]string{login: w.bmcs.login, token: w.netbox.worker(t), file: w.describe(t, login, token)}
	for name, text := range texts {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func (w *walk) describe(t *testing.T, login, token string) string {
	t.Helper()
	return fmt.Sprintf(`name: "ams5"
engagement_mode:       "fully_managed"
inventory:             "netbox"
netbox: {instance: "main", sites: [%q]}
trait_based:           true
placement_enabled:     false
force_reclaim_enabled: true
customer_ready_trait:  %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	ironic: {url: "http://%s", interval: "1s", timeout: "15s"}
	netbox: {url: "http://%s", token: %q, interval: "1s", timeout: "30s"}
	slurm: {url: "http://%s", user: %q, token: %q, interval: "1s", timeout: "15s"}
	bmc: {
		port: %d
		networks: ["127.0.0.0/8"]
		interval: "5s"
		timeout:  "20s"
		tls: fingerprints: [%q]
		credentials: [{match: "*", ref: %q}]
	}
}
enrolment: {
	bmc: true // resets
	node: {
		driver: "fake-hardware"
		interfaces: {deploy_interface: "fake", inspect_interface: "fake", power_interface: "redfish"}
		driver_info: {
			redfish_address:   "https://{bmc.address}:%[11]d"
			redfish_username:  "{bmc.user}"
			redfish_password:  "{bmc.password}"
			redfish_system_id: "/redfish/v1/Systems/5ed00000-0000-4000-8000-000000000003"
			redfish_verify_ca: false
		}
		properties: {cpus: 4, cpu_arch: "x86_64", memory_mb: 16384, local_gb: 100}
		ports: "eth*"
	}
}
imaging: direct: {image: "http://127.0.0.1:1/test.img", checksum: "d41d8cd98f00b204e9800998ecf8427e", root_gb: 10}
`, w.netbox.site, customerTrait, enrolProject, slurmProject, w.toIronic.address,
		w.toNetBox.address, "file:"+token, w.toSlurm.address, w.user, "file:"+w.token,
		w.bmcs.port, fingerprint(t, w.bmcs.at(w.bmcs.addresses[2])), "file:"+login)
}
