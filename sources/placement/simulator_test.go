package placement

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	simkeystone "github.com/musterhq/muster/simulator/keystone"
	simplacement "github.com/musterhq/muster/simulator/placement"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources/keystone"
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
	server := httptest.NewServer(simplacement.New(simulated(t), "sim1", simplacement.Options{}))
	t.Cleanup(server.Close)
	conform(t, &peer{config: Config{URL: server.URL}, admin: administrator(server.URL)})
}

func TestConformanceOnTheSimulatorWithKeystone(t *testing.T) {
	t.Parallel()
	w, mux := simulated(t), http.NewServeMux()
	tokens := simkeystone.New(w, simkeystone.Options{Prefix: "/keystone", User: "muster", Password: "secret"})
	mux.Handle("/keystone/", tokens)
	mux.Handle("/sim1/placement/", simplacement.New(w, "sim1", simplacement.Options{Prefix: "/sim1/placement", Tokens: tokens}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	identity := server.URL + "/keystone/v3"
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: identity, Username: "muster", Password: "secret", DomainID: "default", TenantName: "admin", AllowReauth: true,
	})
	must(t, err)
	admin, err := openstack.NewPlacementV1(provider, gophercloud.EndpointOpts{Region: "sim1"})
	must(t, err)
	admin.Microversion = version
	conform(t, &peer{
		config: Config{Auth: keystone.AuthKeystone, User: "muster", Password: "secret", Keystone: keystone.Config{URL: identity, Project: "admin", Region: "sim1"}},
		admin:  admin, can: []string{"keystone"},
	})
}
