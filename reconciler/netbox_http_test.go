package reconciler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// serve answers as NetBox would, with what the test's NetBox has.
func (n *inventory) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("API-Version", "4.7")
	w.Header().Set("Content-Type", "application/json")
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/dcim/devices/")
	if id := strings.TrimSuffix(rest, "/"); ok && id != "" {
		n.mu.Lock()
		record, there := n.records[id]
		n.mu.Unlock()
		if !there {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"detail":"No Device matches the given query."}`))
			return
		}
		_ = json.NewEncoder(w).Encode(asNetBox(&record))
		return
	}
	results := []any{}
	if r.URL.Path == "/api/dcim/racks/" {
		results = append(results, map[string]any{"id": 1, "name": "r1", "site": nil, "location": nil})
	}
	if ok {
		for _, record := range n.all() {
			if asked := r.URL.Query()["site"]; len(asked) == 0 || slices.Contains(asked, record.Netbox.Site.Value) {
				results = append(results, asNetBox(&record))
			}
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"count": len(results), "next": nil, "previous": nil, "results": results})
}

func asNetBox(r *sources.Record) map[string]any {
	id, _ := strconv.Atoi(r.Ref)
	n := r.Netbox
	device := map[string]any{
		"id": id, "name": r.Name, "serial": r.Serial, "asset_tag": nil, "tags": []any{}, "custom_fields": map[string]any{}, "last_updated": "2026-03-01T12:00:00Z",
		"role": map[string]any{"id": 1, "slug": n.Role.Value}, "status": map[string]any{"value": n.Status.Value, "label": "x"},
		"site": map[string]any{"id": 1, "slug": n.Site.Value}, "location": nil, "tenant": nil, "rack": nil, "position": nil, "oob_ip": nil,
	}
	if n.Rack.Known {
		device["rack"], device["position"] = map[string]any{"id": 1, "name": n.Rack.Value}, 7.0
	}
	if n.OobIP.Known {
		device["oob_ip"] = map[string]any{"id": 1, "address": n.OobIP.Value + "/24"}
	}
	return device
}

// The shipped client and what a listing's end concludes agree: births, moves,
// devices of nobody's sites, absence.
func TestTheShippedClientOfNetBoxFeedsTheInventory(t *testing.T) {
	n := newNetBox(t)
	server := httptest.NewServer(http.HandlerFunc(n.serve))
	t.Cleanup(server.Close)
	read := func(site *fleet.Site) {
		t.Helper()
		clients := registry.New(registry.Options{Clock: n.db.Now, Build: func(spec *fleet.SiteSpec, _ string) (sources.Source, error) {
			return netbox.New(netbox.Config{URL: server.URL, Token: "0123456789", Sites: spec.NetBox.Sites}, n.db.Now, hclog.NewNullLogger())
		}})
		defer clients.Close()
		n.readWith(t.Context(), site, "netbox", clients)
	}
	n.puts(in("a1", "1", "n1", rack("r1"), serial("S1"), at("192.0.2.1")), in("a2", "2", "n2"), in("b1", "3", "n3"), in("c1", "4", "n4"), in("a1", "5", "n5"))
	read(&n.site)
	read(&n.annex)
	n.wantAt(&n.site, "n1", "n2", "n5")
	n.wantAt(&n.annex, "n3")
	n.wantCount(1, "select count(*) from source_findings where site_id = $1 and kind = $2 and (detail ->> 'devices')::int = 1", n.annex.ID, fleet.FindingUnmappedSite)
	if d := n.device("n1"); d.Serial != "S1" || d.BMCAddress != "192.0.2.1" || d.Position != "7" || d.RackID == 0 || d.Class != facts.DeviceClassGpuCompute || d.Inventory != facts.InventoryStatusActive {
		t.Errorf("n1 is %+v", d)
	}
	n.puts(in("b1", "1", "n1", serial("S1")), in("c1", "2", "n2"))
	n.takes("5")
	read(&n.site) // the client tells where each stands by now
	n.wantCount(1, "select count(*) from facts where source = 'netbox' and ref = '1' and unread_reason = 'SiteMovePending'")
	for _, name := range []string{"n2", "n5"} {
		if d := n.device(name); d.AbsentSince.IsZero() || d.Inventory != facts.InventoryStatusUnknown {
			t.Errorf("%s is %s, absent since %v", name, d.Inventory, d.AbsentSince)
		}
	}
	read(&n.annex)
	n.wantAt(&n.annex, "n1", "n3")
	n.wantAt(&n.site)
	n.wantCount(4, "select count(*) from devices")
	reports, err := store.SourceReports(t.Context(), n.db, n.site.ID)
	must(t, err)
	for _, r := range reports {
		if r.Source == "netbox" && (!r.FailingSince.IsZero() || r.Alert != "") {
			t.Errorf("the source reports %+v", r)
		}
	}
}
