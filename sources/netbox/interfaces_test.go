package netbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/sources"
)

// interfaces serves two interfaces of each device, in the form of the generation.
func (f *fake) interfaces(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.URL.Query().Get("device_id"))
	if err != nil || f.devices[id] == nil {
		reply(w, 400, map[string]any{"device_id": []string{"Select a valid choice."}})
		return
	}
	f.list(w, &http.Request{URL: r.URL, Host: r.Host}, func(yield func(map[string]any)) {
		for n, name := range []string{"BMC", "eth0"} {
			mac := fmt.Sprintf("02:BC:00:00:%02X:%02X", n, id)
			o := map[string]any{
				"id": 2*id + n, "device": named(id, "n"), "site": map[string]any{"slug": ""}, "name": name, "type": choice("1000base-t"), "enabled": true, "mac_address": mac, "speed": nil,
				"mgmt_only": n == 0, "link_peers": []any{}, "link_peers_type": nil, "connected_endpoints": nil, "connected_endpoints_type": nil,
			}
			if f.generation >= 42 {
				o["primary_mac_address"] = map[string]any{"id": 1, "mac_address": mac}
			}
			if n == 1 {
				peers := []any{map[string]any{"id": 9, "name": fmt.Sprintf("swp%d", id), "device": named(1, "tor")}}
				o["link_peers"], o["link_peers_type"], o["connected_endpoints"], o["connected_endpoints_type"] = peers, "dcim.interface", peers, "dcim.interface"
			}
			yield(o)
		}
	})
}

func readsInterfaces(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.PageSize = 2 })
	l := listAll(t, c)
	cabled := 0
	for _, ref := range l.order {
		r := l.records[ref]
		if !strings.Contains(r.Netbox.Role.Value, "compute") || r.Netbox.OobIP.Value == "" || cabled == 3 {
			continue
		}
		list, err := c.Interfaces(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		own := 0
		macs := map[string]bool{}
		for _, i := range list {
			if i.MgmtOnly {
				own++
			}
			if i.MAC != "" && (len(i.MAC) != 17 || i.MAC != strings.ToLower(i.MAC) || macs[i.MAC]) {
				t.Errorf("%s: the MAC of %s is %q", ref, i.Name, i.MAC)
			}
			macs[i.MAC] = true
			if i.Name == "BMC" && (!i.MgmtOnly || !i.Enabled || i.MAC == "" || i.Type != "1000base-t") || i.Name == "eth0" && (i.MgmtOnly || i.MAC == "") {
				t.Errorf("%s: %+v", ref, i)
			}
		}
		if own != 1 || !slices.ContainsFunc(list, func(i Interface) bool { return i.Name == "eth0" }) {
			t.Errorf("%s: %+v", ref, list)
		}
		if slices.ContainsFunc(list, func(i Interface) bool {
			return i.Name == "eth0" && i.Peer != nil && i.Peer.Device != "" && strings.HasPrefix(i.Peer.Port, "swp")
		}) {
			cabled++
		}
	}
	if cabled == 0 {
		t.Error("no device is cabled")
	}
	for _, id := range []string{"999999", "", "0", "-1", "007", "1/../2"} {
		if list, err := c.Interfaces(t.Context(), id); sources.KindOf(err) != sources.KindRefused || list != nil {
			t.Errorf("%q: %v %v", id, list, err)
		}
	}
	if _, err := e.as(t, e.none).Interfaces(t.Context(), l.order[0]); e.none != "" && sources.KindOf(err) != sources.KindForbidden {
		t.Errorf("without permissions: %v", err)
	}
}

func TestEveryGenerationSaysTheSameOfInterfaces(t *testing.T) {
	t.Parallel()
	for version, answers := range recordings(t) {
		for name, want := range map[string][]Interface{
			"interfaces": {
				{Name: "BMC", Type: "1000base-t", MAC: "02:bc:00:00:00:01", MgmtOnly: true, Enabled: true},
				{Name: "eth0", Type: "400gbase-x-qsfpdd", MAC: "02:e0:00:00:00:01", Enabled: true},
			},
			"interfaces-cabled": {{Name: "eth0", Type: "400gbase-x-qsfpdd", MAC: "02:e0:00:00:00:00", Enabled: true, Peer: &Peer{Device: "r01-tor-01", Port: "eth0"}}},
		} {
			p, err := decodePage(answers[name].bytes())
			if err != nil || len(p.results) != len(want) {
				t.Fatalf("%s %s: %d, %v", version, name, len(p.results), err)
			}
			for i, element := range p.results {
				device := int64(2)
				if name == "interfaces-cabled" {
					device = 1
				}
				got, err := decodeInterface(element, device)
				peer := got.Peer
				if got.Peer = want[i].Peer; err != nil || got != want[i] || (peer == nil) != (want[i].Peer == nil) || peer != nil && *peer != *want[i].Peer {
					t.Errorf("%s %s: %+v %+v %v", version, name, got, peer, err)
				}
			}
		}
	}
}

func TestAnInterfaceThatCannotBeReadFails(t *testing.T) {
	t.Parallel()
	whole := map[string]any{
		"id": 1, "device": map[string]any{"id": 7}, "name": "eth0", "type": "other", "enabled": true, "mac_address": "02:E0:00:00:00:01", "speed": 25000000, "mgmt_only": false,
	}
	for name, c := range map[string]struct {
		field string
		value any
		fails bool
	}{
		"whole":                   {"name", "eth0", false},
		"without a name":          {"name", nil, true},
		"of another device":       {"device", map[string]any{"id": 8}, true},
		"of no device":            {"device", nil, true},
		"of unknown kind":         {"mgmt_only", nil, true},
		"of an odd kind":          {"mgmt_only", "no", true},
		"perhaps enabled":         {"enabled", nil, true},
		"with an odd MAC":         {"mac_address", "02:E0", true},
		"with a MAC of a number":  {"mac_address", 7, true},
		"with an odd object":      {"primary_mac_address", "02:E0:00:00:00:01", true},
		"without a MAC":           {"mac_address", nil, false},
		"with an odd type":        {"type", []any{1}, false},
		"with an odd speed":       {"speed", "fast", false},
		"with peers of odd form":  {"link_peers", "x", false},
		"with a MAC as an object": {"primary_mac_address", map[string]any{"mac_address": "02:E0:00:00:00:01"}, false},
	} {
		one := map[string]any{}
		for field, value := range whole {
			one[field] = value
		}
		one[c.field] = c.value
		raw, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeInterface(raw, 7); (err != nil) != c.fails {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

func TestPeersOfAnInterface(t *testing.T) {
	t.Parallel()
	one := `[{"name": "swp1", "device": {"name": "tor"}}]`
	for name, c := range map[string]struct {
		endpoints, endpointsType, peers, peersType string
		want                                       *Peer
	}{
		"traced":                    {one, `"dcim.interface"`, `[]`, `null`, &Peer{"tor", "swp1"}},
		"not traced":                {`null`, `null`, one, `"dcim.interface"`, &Peer{"tor", "swp1"}},
		"through a panel":           {one, `"dcim.interface"`, `[{"name": "front1", "device": {"name": "panel"}}]`, `"dcim.frontport"`, &Peer{"tor", "swp1"}},
		"at a panel that is no end": {`null`, `null`, `[{"name": "front1", "device": {"name": "panel"}}]`, `"dcim.frontport"`, nil},
		"broken out":                {`[{"name": "a", "device": {"name": "x"}}, {"name": "b", "device": {"name": "x"}}]`, `"dcim.interface"`, `[]`, `null`, nil},
		"nameless":                  {`[{"name": "a", "device": {"name": null}}]`, `"dcim.interface"`, `[]`, `null`, nil},
		"none":                      {`null`, `null`, `[]`, `null`, nil},
	} {
		r := rawInterface{ConnectedEndpoints: json.RawMessage(c.endpoints), ConnectedType: json.RawMessage(c.endpointsType), LinkPeers: json.RawMessage(c.peers), LinkPeersType: json.RawMessage(c.peersType)}
		got := peerOf(r)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
