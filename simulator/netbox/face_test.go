package netbox

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// fleet is a seeded fleet behind a NetBox.
func fleet(t testing.TB, dir, version string, shape world.Shape) *rig {
	t.Helper()
	r := &rig{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	r.world, err = world.Open(world.Options{Dir: dir, Shape: shape, Clock: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.world.Close() })
	if r.face, err = New(r.world, Options{Version: version, Tokens: recordedTokens}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) ask(method, path, body string) *httptest.ResponseRecorder {
	return r.send(&recording{Method: method, Path: "/api/" + path, Request: body})
}

// object asks and gives the object of the answer.
func (r *rig) object(t testing.TB, status int, method, path, body string) map[string]any {
	t.Helper()
	w := r.ask(method, path, body)
	var o map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &o); w.Code != status || err != nil {
		t.Fatalf("%s %s: %d %.400s", method, path, w.Code, w.Body)
	}
	return o
}

func (r *rig) results(t testing.TB, path string) (list []map[string]any) {
	t.Helper()
	for _, one := range r.object(t, 200, "GET", path, "")["results"].([]any) {
		list = append(list, one.(map[string]any))
	}
	return list
}

// Every machine is a device of its site, in the words of the inventory's
// policies, with all that it refers to.
func TestEveryMachineIsADevice(t *testing.T) {
	t.Parallel()
	r := fleet(t, "", "4.7", world.Shape{Sites: 2, Racks: 2})
	list := r.results(t, "dcim/devices/?limit=0&site=sim2")
	machines := 0
	r.world.Read(func(s *world.State) {
		for _, m := range s.Machines.Of("sim2") {
			machines++
			i := slices.IndexFunc(list, func(o map[string]any) bool { return o["name"] == m.Name })
			if i < 0 {
				t.Errorf("%s is not in NetBox", m.Name)
				continue
			}
			o := list[i]
			slug := func(member string) any { v, _ := o[member].(map[string]any); return v["slug"] }
			address := ""
			if ip, ok := o["oob_ip"].(map[string]any); ok {
				address, _, _ = strings.Cut(ip["address"].(string), "/")
			}
			rack, _ := o["rack"].(map[string]any)
			if slug("role") != m.Class || slug("site") != m.Site || o["serial"] != m.Serial || address != m.Address || rack["name"] != m.Rack || o["position"] != float64(m.Position) {
				t.Errorf("%+v is %v", m, o)
			}
		}
	})
	if len(list) != machines {
		t.Errorf("%d devices of %d machines", len(list), machines)
	}
}

// A rack that is deleted with its devices and imported again has the same
// machines under other ids.
func TestARackImportedAgainHasNewIDs(t *testing.T) {
	t.Parallel()
	r := fleet(t, "", "4.7", world.Shape{Sites: 1, Racks: 2})
	rack := r.results(t, "dcim/racks/?name=sim1-r01")[0]
	devices := r.results(t, fmt.Sprintf("dcim/devices/?limit=0&rack_id=%v", rack["id"]))
	one := fmt.Sprintf("dcim/racks/%v/", rack["id"])
	if w := r.ask("DELETE", one, ""); w.Code != 409 {
		t.Fatalf("a rack with devices: %d %s", w.Code, w.Body)
	}
	var ids, imports []string
	for _, d := range devices {
		ids = append(ids, fmt.Sprintf(`{"id":%v}`, d["id"]))
	}
	if w := r.ask("DELETE", "dcim/devices/", "["+strings.Join(ids, ",")+"]"); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := r.ask("DELETE", one, ""); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	again := r.object(t, 201, "POST", "dcim/racks/", `{"name":"sim1-r01","site":{"slug":"sim1"}}`)
	for _, d := range devices {
		imports = append(imports, fmt.Sprintf(`{"name":%q,"serial":%q,"site":{"slug":"sim1"},"rack":%v,"role":%v,"device_type":%v,"position":%v,"face":"front"}`,
			d["name"], d["serial"], again["id"], d["role"].(map[string]any)["id"], d["device_type"].(map[string]any)["id"], d["position"]))
	}
	if w := r.ask("POST", "dcim/devices/", "["+strings.Join(imports, ",")+"]"); w.Code != 201 {
		t.Fatalf("%d %.300s", w.Code, w.Body)
	}
	back := r.results(t, fmt.Sprintf("dcim/devices/?limit=0&rack_id=%v", again["id"]))
	if len(back) != len(devices) || again["id"] == rack["id"] {
		t.Fatalf("%d devices of %d in rack %v, before %v", len(back), len(devices), again["id"], rack["id"])
	}
	for i := range back {
		if back[i]["name"] != devices[i]["name"] || back[i]["serial"] != devices[i]["serial"] || back[i]["id"].(float64) <= devices[len(devices)-1]["id"].(float64) {
			t.Errorf("%v came back as %v", devices[i]["id"], back[i]["id"])
		}
	}
	// A BMC's address is imported for the only interface of its device.
	address := r.object(t, 201, "POST", "ipam/ip-addresses/", fmt.Sprintf(`{"address":"127.1.1.1/8","assigned_object_type":"dcim.interface","assigned_object_id":%v}`, back[0]["id"]))
	patched := r.object(t, 200, "PATCH", fmt.Sprintf("dcim/devices/%v/", back[0]["id"]), fmt.Sprintf(`{"oob_ip":%v}`, address["id"]))
	if patched["oob_ip"].(map[string]any)["address"] != "127.1.1.1/8" {
		t.Errorf("oob_ip is %v", patched["oob_ip"])
	}
	r.world.Read(func(s *world.State) {
		m := s.Machines.Get("sim1/" + back[0]["name"].(string))
		if o := s.Objects.Get(m.NetBox); o == nil || o.Machine != m.Name {
			t.Errorf("the machine is %s, the object %+v", m.NetBox, o)
		}
	})
}

// What was written is there after a start, in the same form.
func TestObjectsSurviveAStart(t *testing.T) {
	t.Parallel()
	dir, shape := t.TempDir(), world.Shape{Sites: 1, Racks: 1}
	r := fleet(t, dir, "4.7", shape)
	id := r.results(t, "dcim/devices/?limit=1&role=gpu-compute")[0]["id"]
	path := fmt.Sprintf("dcim/devices/%v/", id)
	body := `{"status":"failed","custom_fields":{"slot":4,"stage":"retired","features":["lc"],"spare_site":{"slug":"sim1"},"gpu_ready":true},"add_tags":[{"slug":"pilot"}],"position":40}`
	if w := r.ask("PATCH", path, body); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	before := r.ask("GET", path, "").Body.String()
	again := fleet(t, dir, "4.7", shape) // the first one was never closed
	again.now = r.now
	if after := again.ask("GET", path, "").Body.String(); after != before || !strings.Contains(after, `"stage":{"value":"retired","label":"Retired"}`) {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

// A write that is made is told once, one that is refused not at all.
func TestEachWriteIsOneEffect(t *testing.T) {
	t.Parallel()
	r := fleet(t, "", "4.6", world.Shape{Sites: 1, Racks: 1})
	d := r.results(t, "dcim/devices/?limit=1&role=gpu-compute&status=active")[0]
	path := fmt.Sprintf("dcim/devices/%v/", d["id"])
	for body, status := range map[string]int{`{"status":"staged"}`: 200, `{"status":"nosuch"}`: 400, `{"role":999}`: 400} {
		if w := r.ask("PATCH", path, body); w.Code != status {
			t.Errorf("%s: %d", body, w.Code)
		}
	}
	stale := r.send(&recording{Method: "PATCH", Path: "/api/" + path, Request: `{"status":"active"}`, IfMatch: `W/"2020-01-01T00:00:00+00:00"`})
	if stale.Code != 412 {
		t.Errorf("a stale tag: %d", stale.Code)
	}
	effects := slices.DeleteFunc(r.world.Effects(0), func(e world.Effect) bool { return e.Face != "netbox" })
	if len(effects) != 1 || effects[0].Subject != d["name"] || effects[0].Op != "patch devices" {
		t.Errorf("effects are %+v", effects)
	}
}

// BenchmarkListing lists a page of a thousand out of ten thousand devices.
func BenchmarkListing(b *testing.B) {
	r := fleet(b, "", "4.7", world.Shape{Sites: 2, Racks: 135})
	const fields = "id,name,status,role,tenant,site,location,rack,position,serial,asset_tag,oob_ip,tags,custom_fields,last_updated"
	for name, query := range map[string]string{
		"full": "limit=1000", "fields": "limit=1000&ordering=id&exclude=config_context&fields=" + fields, "far": "limit=1000&ordering=id&offset=4000&site=sim2&fields=" + fields,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if w := r.ask("GET", "dcim/devices/?"+query, ""); w.Code != 200 {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
