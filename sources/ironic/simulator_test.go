package ironic

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	simironic "github.com/musterhq/muster/simulator/ironic"
	simkeystone "github.com/musterhq/muster/simulator/keystone"
	"github.com/musterhq/muster/simulator/world"
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
		admin:  admin, can: []string{"auth"}, masks: true,
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
		admin:  ironictest.Of(sc), can: []string{"auth", "keystone"}, masks: true,
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
