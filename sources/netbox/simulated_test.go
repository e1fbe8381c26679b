package netbox

import (
	"net/http"
	"net/http/httptest"
	"testing"

	simulated "github.com/musterhq/muster/simulator/netbox"
	"github.com/musterhq/muster/simulator/world"
)

// The simulator's NetBox bears out what real ones do, in every version.
func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.7", "4.0", "4.2", "4.4", "4.5", "4.6", "4.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w, err := world.Open(world.Options{Shape: world.Shape{Sites: 2, Racks: 1}})
			if err != nil {
				t.Fatal(err)
			}
			const second = "nbt_suite.0123456789012345678901234567890123456789"
			face, err := simulated.New(w, simulated.Options{Version: version, Prefix: "/netbox", Tokens: []simulated.Token{
				{Text: "good"}, {Text: second}, {Text: "reader", ReadOnly: true}, {Text: "limited", Site: "sim1"}, {Text: "nobody", Nothing: true},
			}})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(http.StripPrefix("/netbox", face))
			t.Cleanup(server.Close)
			e := endpoint{
				url: server.URL + "/netbox", token: "good", readOnly: "reader", limited: "limited", none: "nobody",
				site: "sim1", other: "sim2", tag: "pilot", number: "slot",
				choice: field{"stage", []string{"new", "burn_in", "production"}}, choices: field{"features", []string{"ib", "nvme", "lc"}},
			}
			if version >= "4.5" {
				e.v2 = second
			}
			w.Read(func(s *world.State) {
				for _, o := range s.Objects.Of(world.KindDevice) {
					if s.Object(world.KindSite, o.Int("site")).Slug == e.site {
						e.devices++
					} else {
						e.others++
					}
				}
			})
			e.odd = true
			e.makeOdd(t)
			runSuite(t, e)
		})
	}
}
