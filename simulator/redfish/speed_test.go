package redfish

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/simulator/world"
)

// What one resource costs without the network; a poll of a tray reads some
// twenty.
func BenchmarkResource(b *testing.B) {
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 4, Racks: 68}})
	if err != nil {
		b.Fatal(err)
	}
	face := New(w, Options{})
	at := context.WithValue(b.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 1, 1, 9), Port: 443}))
	for name, path := range map[string]string{"system": systemPath, "GPUs expanded": boardPath + "/Processors?$expand=.($levels=1)", "firmware": firmwarePath} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(at, http.MethodGet, path, nil)
			r.SetBasicAuth("admin", "simulator-0")
			b.ReportAllocs()
			for b.Loop() {
				answer := httptest.NewRecorder()
				if face.ServeHTTP(answer, r); answer.Code != http.StatusOK {
					b.Fatal(answer.Code)
				}
			}
		})
	}
}
