package ironic

import (
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/simulator/ironic"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources/ironic/ironictest"
)

func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	w, err := world.Open(world.Options{Dir: t.TempDir(), Shape: world.Shape{Sites: 1, Racks: 1}})
	must(t, err)
	server := httptest.NewServer(ironic.New(w, "sim1", ironic.Options{Auth: ironic.AuthHTTPBasic, User: "muster", Password: "secret"}))
	t.Cleanup(func() { server.Close(); must(t, w.Close()) })
	admin, err := ironictest.New(server.URL, "muster", "secret")
	must(t, err)
	conform(t, &peer{
		config: Config{URL: server.URL, Auth: AuthHTTPBasic, User: "muster", Password: "secret"},
		admin:  admin, can: []string{"auth"},
	})
}
