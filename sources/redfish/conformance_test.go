package redfish

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	face "github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/world"
)

// peer is BMCs that the suite runs against.
type peer struct {
	name   string
	config Config
	login  string
	target Target     // a compute machine that the suite may switch
	more   []Target   // others, left alone
	can    []string   // beyond reading and power: see the items
	sim    *simulated // nil for others
}

// client gives a client of the peer.
func (p *peer) client(t *testing.T, adjust ...func(*Config)) *Client {
	t.Helper()
	c := p.config
	c.Targets = fixed(append([]Target{p.target}, p.more...)...)
	c.Secret = func(string) (string, error) { return p.login, nil }
	c.Credentials = []Credential{{Match: "*", Ref: "env:X"}}
	for _, a := range adjust {
		a(&c)
	}
	client, err := New(c, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (p *peer) need(t *testing.T, capability string) {
	t.Helper()
	if !slices.Contains(p.can, capability) {
		t.Skipf("%s has no %s", p.name, capability)
	}
}

func (p *peer) power(t *testing.T, want string) {
	t.Helper()
	c := p.client(t)
	types := map[string][]string{PowerOn: {"On"}, PowerOff: {"ForceOff"}}[want]
	if r, err := c.Reset(t.Context(), p.target, Reset{Types: types, Want: want, Within: 30 * time.Second, Pause: 100 * time.Millisecond}); err != nil || r.After.State != want {
		t.Fatalf("%+v %v", r, err)
	}
}

// items are what the suite shows of every peer that can.
var items = []struct {
	name string
	run  func(*testing.T, *peer)
}{
	{"a round gives every BMC its facts", roundItem},
	{"power goes on and off and is seen", powerItem},
	{"a restart is seen by its marker", markerItem},
	{"a reset that is not declared is not sent", undeclaredItem},
	{"a wrong login is not tried a fourth time", loginItem},
	{"a login is shown, and opens nothing that stays", showLoginItem},
	{"a password is set, read back, and set again", passwordItem},
	{"what a BMC does not take as a password is refused and not told", refusedPasswordItem},
	{"a BMC goes back to what it came with", factoryItem},
	{"no session stays open", sessionItem},
	{"a boot override is read back", bootItem},
	{"an update is followed to its version", updateItem},
	{"a failed update is told", failedUpdateItem},
	{"an image is pushed", pushItem},
	{"a baseboard that is off costs its own facts", baseboardItem},
	{"broken parts are told", brokenItem},
	{"a switch tray and a power shelf are read", classesItem},
	{"a shelf goes off and on by its chassis", shelfItem},
	{"the dead and the deaf are told from each other", silentItem},
}

func runSuite(t *testing.T, p *peer) {
	for _, item := range items {
		t.Run(item.name, func(t *testing.T) { item.run(t, p) })
	}
}

func TestConformanceOfTheStandIn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	host, port := m.address()
	runSuite(t, &peer{
		name: "the stand-in", login: "admin:secret", target: Target{Address: host, Name: "c01", Class: facts.DeviceClassGpuCompute},
		config: Config{Port: port, Networks: []string{"127.0.0.0/8"}, TLS: TLS{Fingerprints: []string{m.fingerprint()}}},
		can:    []string{"markers", "once", "baseboard"},
	})
}

func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	sim := simulate(t)
	class := map[string]facts.DeviceClass{"c": facts.DeviceClassGpuCompute, "n": facts.DeviceClassNvswitch, "p": facts.DeviceClassPowershelf}
	of := func(name string) Target {
		return Target{Address: sim.machine("sim1/" + name).Address, Name: name, Class: class[name[9:10]]}
	}
	sim.edit(t, "sim1-r01-c01", func(m *world.Machine) { m.Node = "" }) // Ironic would undo what the suite does to its power
	runSuite(t, &peer{
		name: "the simulator", login: "admin:simulator-0", sim: sim, target: of("sim1-r01-c01"),
		more:   []Target{of("sim1-r01-c02"), of("sim1-r01-c03"), of("sim1-r01-n01"), of("sim1-r01-p01")},
		config: Config{Port: sim.port, Networks: []string{"127.0.0.0/8"}, TLS: TLS{CAFile: sim.ca}},
		can:    []string{"markers", "once", "baseboard", "sessions", "tasks", "push", "classes", "faults", "accounts", "defaults"},
	})
}

// Lenient BMCs have no sessions and no ETags, and say of a reset inline what it
// takes.
func TestConformanceOfTheLenientSimulator(t *testing.T) {
	t.Parallel()
	sim := simulate(t, face.Options{Lenient: true})
	sim.edit(t, "sim1-r01-c01", func(m *world.Machine) { m.Node = "" })
	runSuite(t, &peer{
		name: "the lenient simulator", login: "admin:simulator-0", sim: sim,
		target: Target{Address: sim.machine("sim1/sim1-r01-c01").Address, Name: "sim1-r01-c01", Class: facts.DeviceClassGpuCompute},
		config: Config{Port: sim.port, Networks: []string{"127.0.0.0/8"}, TLS: TLS{CAFile: sim.ca}},
		can:    []string{"markers", "once", "baseboard", "accounts", "defaults"}, // its updates have no tasks
	})
}

func TestConformanceOfTheRealEmulator(t *testing.T) {
	t.Parallel()
	file := os.Getenv("MUSTER_PEER_REDFISH")
	if file == "" {
		t.Skip("MUSTER_PEER_REDFISH is not set: it names the redfish.env that testdata/peers/redfish-up.sh writes")
	}
	env := readEnv(t, file)
	port, err := strconv.Atoi(env["REDFISH_PORT"])
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{
		name: "sushy-tools", login: env["REDFISH_LOGIN"], can: []string{"instant updates"},
		config: Config{Port: port, Networks: []string{"127.0.0.0/8"}, TLS: TLS{CAFile: env["REDFISH_CA"]}},
	}
	for i, address := range strings.Split(env["REDFISH_ADDRESSES"], ",") {
		p.more = append(p.more, Target{Address: address, Name: fmt.Sprintf("node-%04d", i+1), Class: facts.DeviceClassCpuBaremetal})
	}
	p.target, p.more = p.more[0], p.more[1:]
	runSuite(t, p)
}

func readEnv(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	env := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		env[name] = value
	}
	return env
}

// simulated is a world with its BMCs on one port of 127/8.
type simulated struct {
	world *world.World
	port  int
	ca    string
}

func simulate(t *testing.T, how ...face.Options) *simulated {
	t.Helper()
	began := time.Now()
	fast := func() time.Time { return began.Add(20 * time.Since(began)) } // what takes seconds there takes a moment here
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: fast})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	authority, err := face.OpenAuthority(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		return errors.Join(c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") }), inner)
	}}
	listener, err := config.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: face.New(w, append(how, face.Options{})[0]), TLSConfig: authority.TLS(), ErrorLog: hclog.NewNullLogger().StandardLogger(nil)}
	var running sync.WaitGroup
	running.Add(1)
	go func() { defer running.Done(); _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close(); running.Wait(); _ = w.Close() })
	return &simulated{world: w, port: int(netip.MustParseAddrPort(listener.Addr().String()).Port()), ca: filepath.Clean(authority.Path())}
}

func (s *simulated) machine(key string) (m world.Machine) {
	s.world.Read(func(state *world.State) { m = *state.Machines.Get(key) })
	return m
}

func (s *simulated) edit(t *testing.T, name string, change func(m *world.Machine)) {
	t.Helper()
	key := "sim1/" + name
	if err := s.world.Do(world.Effect{Face: "test", Subject: name}, func(state *world.State) error {
		m := state.Machines.Edit(key)
		change(m)
		state.Machines.Put(key, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
