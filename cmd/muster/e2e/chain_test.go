package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/ironic/ironictest"
	"github.com/musterhq/muster/sources/redfish"
)

// realBMCs are those of sushy-tools' emulator.
type realBMCs struct {
	addresses []string
	port      int
	ca        string
	login     string // user:password
}

func findBMCs(t *testing.T) *realBMCs {
	t.Helper()
	file := os.Getenv("MUSTER_PEER_REDFISH")
	if file == "" {
		t.Skip("MUSTER_PEER_REDFISH is not set: it names the redfish.env that testdata/peers/redfish-up.sh writes")
	}
	b := readBMCs(t, readEnv(t, file))
	if len(b.addresses) < 3 {
		t.Fatalf("%d BMCs: the chain needs 3, a round of which fewer than half answer tells nothing", len(b.addresses))
	}
	return b
}

// readBMCs takes what redfish-up.sh says of its BMCs.
func readBMCs(t *testing.T, env map[string]string) *realBMCs {
	t.Helper()
	b := &realBMCs{addresses: strings.Split(env["REDFISH_ADDRESSES"], ","), ca: env["REDFISH_CA"], login: env["REDFISH_LOGIN"]}
	var err error
	if b.port, err = strconv.Atoi(env["REDFISH_PORT"]); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *realBMCs) at(address string) string { return net.JoinHostPort(address, strconv.Itoa(b.port)) }

// wire is the way to one BMC, which can be cut. It has an address of its own:
// what is behind it stays as it is.
type wire struct {
	address, to string // host:port
	running     sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]struct{}
}

func newWire(t *testing.T, address, to string) *wire {
	w := &wire{address: address, to: to, open: map[net.Conn]struct{}{}}
	w.mend(t)
	t.Cleanup(w.cut)
	return w
}

func (w *wire) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.listener = l
	w.mu.Unlock()
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			w.carry(near)
		}
	}()
}

// carry joins a connection to one of its own to the far end.
func (w *wire) carry(near net.Conn) {
	far, err := net.DialTimeout("tcp", w.to, 5*time.Second)
	if err != nil {
		_ = near.Close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil { // cut meanwhile
		_, _ = near.Close(), far.Close()
		return
	}
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		w.open[pair[0]] = struct{}{}
		w.running.Add(1)
		go func() {
			defer w.running.Done()
			_, _ = io.Copy(pair[1], pair[0])
			_, _ = near.Close(), far.Close()
			w.mu.Lock()
			delete(w.open, pair[0])
			w.mu.Unlock()
		}()
	}
}

// cut ends every connection and takes no more.
func (w *wire) cut() {
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
	for c := range w.open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// chain is three machines: Ironic drives their power through their BMCs, and
// muster reads both. The first one's BMC is behind a wire.
type chain struct {
	*world
	wire   *wire
	target redfish.Target  // the first, past the wire
	direct *redfish.Client // a hand on the BMC
	client *ironic.Client
}

// Power that is changed from either end shows in both, and a BMC that is cut
// off takes its machine, and no other, out of the offer until it is back.
func TestMachinesAreReadThroughIronicAndTheirBMCs(t *testing.T) {
	t.Parallel()
	needPeers(t)
	bmcs := findBMCs(t)
	c := &chain{world: &world{ironic: startIronic(t, "IRONIC_POWER_SYNC=8"), nodes: map[string]string{}}}
	c.wire = newWire(t, bmcs.at("127.84.0.1"), bmcs.at(bmcs.addresses[0]))
	c.connect(t, bmcs)
	for i, name := range []string{"m1", "m2", "m3"} {
		address := bmcs.addresses[i]
		if i == 0 {
			address = "127.84.0.1"
		}
		c.enrol(t, bmcs, name, address, i+1)
	}
	c.muster = newMuster(t, build(t), c.siteFile(t, bmcs))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"each machine is read from both ends", c.known},
		{"Ironic switches one on and off", c.throughIronic},
		{"a hand at the BMC switches it on, and Ironic off again", c.behindItsBack},
		{"its BMC is cut off", c.cutOff},
		{"its BMC is back", c.healed},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (c *chain) connect(t *testing.T, bmcs *realBMCs) {
	t.Helper()
	var err error
	if c.client, err = ironic.New(ironic.Config{URL: c.ironic.url}, time.Now, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	c.target = redfish.Target{Address: bmcs.addresses[0], Name: "m1", Class: facts.DeviceClassCpuBaremetal}
	c.direct, err = redfish.New(redfish.Config{
		Targets:     func(context.Context) ([]redfish.Target, error) { return []redfish.Target{c.target}, nil },
		Secret:      func(string) (string, error) { return bmcs.login, nil },
		Credentials: []redfish.Credential{{Match: "*", Ref: "env:LOGIN"}},
		Port:        bmcs.port, Networks: []string{"127.0.0.0/8"}, TLS: redfish.TLS{CAFile: bmcs.ca},
	}, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.direct.Close)
}

// enrol makes a node that is deployed by nobody really and powered by its BMC.
func (c *chain) enrol(t *testing.T, bmcs *realBMCs, name, address string, number int) {
	t.Helper()
	ctx := t.Context()
	user, password, _ := strings.Cut(bmcs.login, ":")
	id, err := c.ironic.CreateNode(ctx, ironictest.Node{
		Name: name, Lessee: enrolProject, ResourceClass: "baremetal.cpu", Traits: []string{customerTrait},
		DriverInfo: map[string]any{
			"redfish_address": "https://" + bmcs.at(address), "redfish_verify_ca": false,
			"redfish_system_id": fmt.Sprintf("/redfish/v1/Systems/5ed00000-0000-4000-8000-%012d", number),
			"redfish_username":  user, "redfish_password": password,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[name] = id
	if err := c.ironic.Set(ctx, id, "/power_interface", "redfish"); err != nil {
		t.Fatal(err)
	}
	if err := c.ironic.Enroll(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.SetPower(ctx, id, nodes.PowerOff, settle, nil); err != nil {
		t.Fatal(err)
	}
}

func (c *chain) siteFile(t *testing.T, bmcs *realBMCs) string {
	t.Helper()
	dir := t.TempDir()
	login, file := filepath.Join(dir, "login"), filepath.Join(dir, "site.cue")
	text := fmt.Sprintf(`name: "ams3"
engagement_mode:      "fully_managed"
inventory:            "ironic"
trait_based:          true
placement_enabled:    false
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	ironic: {url: %q, interval: "1s", timeout: "15s"}
	bmc: {
		port: %d
		networks: ["127.0.0.0/8"]
		interval: "1s"
		timeout:  "20s"
		tls: fingerprints: [%q]
		credentials: [{match: "*", ref: %q}]
	}
}
`, customerTrait, enrolProject, slurmProject, c.ironic.url, bmcs.port, fingerprint(t, bmcs.at(bmcs.addresses[0])), "file:"+login)
	for name, text := range map[string]string{login: bmcs.login, file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// power is what a device is known to be: by Ironic, and by its BMC.
func (c *chain) power(t *testing.T, name, ofIronic, ofBMC string) {
	t.Helper()
	c.until(t, fmt.Sprintf("%s to be %q and %q", name, ofIronic, ofBMC), func() error {
		e, err := c.explain(name)
		if err == nil && (e.Facts.Ironic.PowerState.Value != ofIronic || e.Facts.BMC.PowerState.Value != ofBMC) {
			err = fmt.Errorf("it is %q and %q", e.Facts.Ironic.PowerState.Value, e.Facts.BMC.PowerState.Value)
		}
		return err
	})
}

func (c *chain) known(t *testing.T) {
	for name := range c.nodes {
		c.expect(t, name, available)
		c.power(t, name, "power off", "Off")
		c.condition(t, name, "BmcReachable", "True", "RedfishAnswered")
	}
	if d := c.device(t, "m1"); d.BMCAddress == nil || *d.BMCAddress != "127.84.0.1" {
		t.Errorf("the BMC's address is %v", d.BMCAddress)
	}
}

func (c *chain) throughIronic(t *testing.T) {
	id := c.nodes["m1"]
	if _, err := c.client.SetPower(t.Context(), id, nodes.PowerOn, settle, nil); err != nil {
		t.Fatal(err)
	}
	c.power(t, "m1", "power on", "On")
	c.expect(t, "m1", available)
	if _, err := c.client.SetPower(t.Context(), id, nodes.PowerOff, settle, nil); err != nil {
		t.Fatal(err)
	}
	c.power(t, "m1", "power off", "Off")
}

// behindItsBack switches on at the BMC until muster sees it: Ironic's next sync,
// which undoes it, may come sooner than the next round.
func (c *chain) behindItsBack(t *testing.T) {
	seen := false
	for range 5 {
		if _, err := c.direct.Reset(t.Context(), c.target, redfish.Reset{Types: []string{"On"}, Want: redfish.PowerOn, Within: settle, Pause: 100 * time.Millisecond}); err != nil {
			t.Logf("switched on and lost at once: %v", err)
			continue
		}
		for end := time.Now().Add(20 * time.Second); !seen && time.Now().Before(end); <-time.After(100 * time.Millisecond) {
			e, err := c.explain("m1")
			if err != nil {
				t.Fatal(err)
			}
			seen = e.Facts.BMC.PowerState.Value == "On" && e.Facts.Ironic.PowerState.Value == "power off"
		}
		if seen {
			break
		}
	}
	if !seen {
		t.Fatal("muster never saw the machine on while Ironic held it to be off")
	}
	t.Logf("while it is on\n%s", c.cli(t, "explain", "device", "m1"))
	c.power(t, "m1", "power off", "Off")
	c.expect(t, "m1", available)
}

func (c *chain) cutOff(t *testing.T) {
	before := c.device(t, "m1")
	c.wire.cut()
	c.expect(t, "m1", maintained)
	c.expectHistory(t, "m1", maintained)
	c.condition(t, "m1", "BmcReachable", "False", "RedfishUnreachable")
	e := c.condition(t, "m1", "Maintenance", "True", "MaintenanceFault")
	if message := said(e.Message); !strings.HasPrefix(message, "power failure: ") {
		t.Errorf("the maintenance says %q", message)
	}
	x, err := c.explain("m1")
	if err != nil {
		t.Fatal(err)
	}
	if x.Facts.Ironic.Fault.Value != "power failure" || x.Facts.BMC.Failures != facts.BMCFailures3 {
		t.Errorf("the fault is %q, the BMC was silent %v times", x.Facts.Ironic.Fault.Value, x.Facts.BMC.Failures)
	}
	if d := c.device(t, "m1"); d.HealthStatus != before.HealthStatus {
		t.Errorf("silence made health %q of %q", d.HealthStatus, before.HealthStatus)
	}
	for _, name := range []string{"m2", "m3"} {
		c.expect(t, name, available)
		c.condition(t, name, "BmcReachable", "True", "RedfishAnswered")
	}
	t.Logf("while it is cut off\n%s", c.cli(t, "explain", "device", "m1"))
}

func (c *chain) healed(t *testing.T) {
	c.wire.mend(t)
	c.expect(t, "m1", available)
	c.condition(t, "m1", "BmcReachable", "True", "RedfishAnswered")
	c.condition(t, "m1", "Maintenance", "False", "MaintenanceClear")
	c.power(t, "m1", "power off", "Off")
}
