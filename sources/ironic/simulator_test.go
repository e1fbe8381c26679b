package ironic

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	simironic "github.com/musterhq/muster/simulator/ironic"
	simkeystone "github.com/musterhq/muster/simulator/keystone"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// simulated opens a world with one site.
func simulated(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Open(world.Options{Dir: t.TempDir(), Shape: world.Shape{Sites: 1, Racks: 1}})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(simironic.New(simulated(t), "sim1", simironic.Options{Auth: simironic.AuthHTTPBasic, User: "muster", Password: "secret"}))
	t.Cleanup(server.Close)
	admin, err := ironictest.New(server.URL, "muster", "secret")
	must(t, err)
	conform(t, &peer{
		config: Config{URL: server.URL, Auth: AuthHTTPBasic, User: "muster", Password: "secret"},
		admin:  admin, can: []string{"auth", "direct"}, masks: true,
	})
}

func TestConformanceOnTheSimulatorWithKeystone(t *testing.T) {
	t.Parallel()
	w, mux := simulated(t), http.NewServeMux()
	tokens := simkeystone.New(w, simkeystone.Options{Prefix: "/keystone", User: "muster", Password: "secret"})
	mux.Handle("/keystone/", tokens)
	mux.Handle("/sim1/ironic/", simironic.New(w, "sim1", simironic.Options{Prefix: "/sim1/ironic", Auth: simironic.AuthKeystone, Tokens: tokens}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	identity := server.URL + "/keystone/v3"
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: identity, Username: "muster", Password: "secret", DomainID: "default", TenantName: "admin", AllowReauth: true,
	})
	must(t, err)
	sc, err := openstack.NewBareMetalV1(provider, gophercloud.EndpointOpts{Region: "sim1"})
	must(t, err)
	conform(t, &peer{
		config: Config{Auth: AuthKeystone, User: "muster", Password: "secret", Keystone: Keystone{URL: identity, Project: "admin", Region: "sim1"}},
		admin:  ironictest.Of(sc), can: []string{"auth", "keystone", "direct"}, masks: true,
	})
}

// Everything that the simulated fleet's nodes say can be read, and is what the
// machines are.
func TestTheSimulatedFleetIsReadWhole(t *testing.T) {
	t.Parallel()
	w := simulated(t)
	server := httptest.NewServer(simironic.New(w, "sim1", simironic.Options{}))
	t.Cleanup(server.Close)
	records, end := list(t, (&peer{config: Config{URL: server.URL}}).client(t, func(c *Config) { c.PageSize = 5 }))
	w.Read(func(s *world.State) {
		if len(records) != s.Nodes.Len() || end.Dropped != 0 || len(end.Lost) != 0 {
			t.Errorf("%d of %d nodes, the end is %+v", len(records), s.Nodes.Len(), end)
		}
		for ref, r := range records {
			n := s.Nodes.Get(world.Key("sim1", ref))
			m, f := s.MachineOf(n), r.Ironic
			if len(f.Unreadable) > 0 || f.Unmodelled || f.BMCAddress.Value != m.Address || r.Serial != m.Serial || r.Name != m.Name ||
				f.ProvisionState.String() != n.ProvisionState || f.Lessee.Value != n.Lessee || f.InstanceUUID.Value != n.InstanceUUID {
				t.Errorf("%s is read as %+v", n.Name, f)
			}
		}
	})
}

// hand is a clock that is moved on by looking at it.
type hand struct {
	mu sync.Mutex
	at time.Time
}

func (h *hand) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(500 * time.Millisecond)
	return h.at
}

// newMachine gives a simulated site's machine that Ironic does not know yet,
// and a client of that Ironic.
func newMachine(t *testing.T) (*world.World, *world.Machine, *Client) {
	t.Helper()
	clock := &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 2}, Clock: clock.now})
	must(t, err)
	server := httptest.NewServer(simironic.New(w, "sim1", simironic.Options{}))
	t.Cleanup(server.Close)
	var m *world.Machine
	w.Read(func(s *world.State) {
		for _, one := range s.Machines.Of("sim1") {
			if one.Class == world.ClassCompute && one.Node == "" && len(one.Health) == 0 {
				m = one
			}
		}
	})
	if m == nil {
		t.Fatal("the seed has no new machine")
	}
	return w, m, (&peer{config: Config{URL: server.URL}}).client(t, func(c *Config) { c.Poll = time.Millisecond })
}

// A machine is made a node, and the ramdisk tells what it has: its cables as the
// world has laid them.
func TestASimulatedMachineIsInspectedInBand(t *testing.T) {
	t.Parallel()
	_, m, c := newMachine(t)
	n := NewNode{
		UUID: "0badcafe-0000-4000-8000-000000000001", Name: m.Name, Driver: "redfish", ResourceClass: "gb200",
		Interfaces: map[string]string{"inspect_interface": "inspector"}, DriverInfo: map[string]any{"redfish_address": "https://" + m.Address},
	}
	must(t, errOf(c.Create(t.Context(), n)))
	for _, verb := range []nodes.TargetProvisionState{nodes.TargetManage, nodes.TargetInspect} {
		must(t, errOf(c.Provision(t.Context(), n.UUID, nodes.ProvisionStateOpts{Target: verb}, time.Minute)))
	}
	in, err := c.Inventory(t.Context(), n.UUID)
	must(t, err)
	if in.CPUs != world.TrayCPUs || in.MemoryMB != world.TrayMemoryMB || in.CPUArch != "aarch64" || len(in.GPUs) != world.TrayGPUs || len(in.Disks) != 1 {
		t.Errorf("%+v", in)
	}
	var want []NIC
	for _, nic := range m.NICs() {
		one := NIC{Name: nic.Name, MAC: nic.MAC, SpeedMbps: &nic.Mbps, Carrier: pointer(true)}
		if nic.Switch != "" {
			one.LLDP = &Neighbour{nic.Switch, nic.Port}
		}
		if !nic.Management {
			want = append(want, one)
		}
	}
	equal(t, in.NICs, want)
	ports, err := c.Ports(t.Context(), n.UUID)
	must(t, err)
	if len(ports) != 1 || ports[0].MAC != want[0].MAC {
		t.Errorf("%+v", ports)
	}
	must(t, c.AddPort(t.Context(), n.UUID, NewPort{MAC: want[0].MAC}))
}

// Our image is put on a machine and taken off again, by Ironic alone.
func TestASimulatedMachineIsDeployedDirectly(t *testing.T) {
	t.Parallel()
	w, m, c := newMachine(t)
	n := NewNode{UUID: "0badcafe-0000-4000-8000-000000000002", Name: m.Name, Driver: "redfish", DriverInfo: map[string]any{"redfish_address": "https://" + m.Address}}
	must(t, errOf(c.Create(t.Context(), n)))
	walk := func(verb nodes.TargetProvisionState) {
		t.Helper()
		must(t, errOf(c.Provision(t.Context(), n.UUID, nodes.ProvisionStateOpts{Target: verb}, 2*time.Minute)))
	}
	walk(nodes.TargetManage)
	walk(nodes.TargetProvide)
	must(t, errOf(c.Bind(t.Context(), n.UUID, ours)))
	must(t, errOf(c.Deploy(t.Context(), n.UUID, ours)))
	r, err := c.Settle(t.Context(), n.UUID, 2*time.Minute)
	must(t, err)
	deployed := func() (on bool) {
		w.Read(func(s *world.State) { on = s.Machines.Get(m.Key()).Deployed })
		return on
	}
	if r.Ironic.ProvisionState.String() != world.Active || !deployed() {
		t.Fatalf("%+v", r.Ironic)
	}
	wantKind(t, c.Delete(t.Context(), n.UUID, "muster:7"), sources.KindConflict)
	walk(nodes.TargetDeleted)
	if deployed() {
		t.Error("the image is still on the disk")
	}
	must(t, errOf(c.Unbind(t.Context(), n.UUID, instanceID)))
	must(t, c.Delete(t.Context(), n.UUID, "muster:7"))
	w.Read(func(s *world.State) {
		if s.Machines.Get(m.Key()).Node != "" || s.FindNode("sim1", m.Name) != nil {
			t.Error("Ironic still knows it")
		}
	})
}
