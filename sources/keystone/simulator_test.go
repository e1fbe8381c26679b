package keystone

import (
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/simulator/keystone"
	"github.com/musterhq/muster/simulator/world"
)

func TestConformanceOnTheSimulator(t *testing.T) {
	t.Parallel()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	must(t, err)
	server := httptest.NewServer(keystone.New(w, keystone.Options{Prefix: "/keystone", User: "muster", Password: "secret"}))
	t.Cleanup(server.Close)
	conform(t, Config{URL: server.URL + "/keystone/v3", User: "muster", Password: "secret", Project: "admin", Region: "sim1"})
}
