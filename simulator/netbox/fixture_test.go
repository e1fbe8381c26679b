package netbox

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// rig is the small data centre of the recordings behind the face: two racks of
// twenty devices, with all that a fleet leaves odd.
type rig struct {
	world *world.World
	face  http.Handler
	now   time.Time
}

func newRig(t *testing.T, version string, tokens ...Token) *rig {
	t.Helper()
	r := &rig{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	r.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	r.do(t, fill)
	r.face, err = New(r.world, Options{Version: version, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) do(t *testing.T, change func(s *world.State)) {
	t.Helper()
	if err := r.world.Do(world.Effect{Face: world.FaceWorld, Op: "test"}, func(s *world.State) error { change(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

// fill takes out what the fleet was seeded with and puts the data centre of the
// recordings in its place, under the same ids.
func fill(s *world.State) {
	var keys []string
	for key := range s.Objects.All() {
		keys = append(keys, key)
	}
	for _, key := range keys {
		s.Objects.Delete(key)
	}
	add := func(kind, name, slug string, fields map[string]any) int {
		if fields == nil {
			fields = map[string]any{}
		}
		return s.AddObject(&world.Object{Kind: kind, Name: name, Slug: slug, Fields: fields}).ID
	}
	for i, letter := range []string{"A", "B"} {
		add(world.KindSite, "Site "+letter, []string{"site-a", "site-b"}[i], map[string]any{"status": []string{"active", "planned"}[i]})
		add(world.KindLocation, fmt.Sprintf("Hall %d", i+1), fmt.Sprintf("hall-%d", i+1), map[string]any{"site": i + 1, "status": "active"})
		add(world.KindRack, fmt.Sprintf("R0%d", i+1), "", map[string]any{"site": i + 1, "location": i + 1, "status": "active", "u_height": 48})
		add(world.KindTenant, []string{"Research", "Infra"}[i], []string{"research", "infra"}[i], nil)
		add(world.KindManufacturer, []string{"Acme", "Contoso"}[i], []string{"acme", "contoso"}[i], nil)
		add(world.KindPlatform, []string{"Ubuntu 24.04", "SONiC"}[i], []string{"ubuntu-2404", "sonic"}[i], nil)
	}
	for i, role := range roles {
		add(world.KindRole, role, role, map[string]any{"color": "2196f3"})
		add(world.KindDeviceType, []string{"COMPUTE-9000", "NVSWITCH-9000", "TOR-9000", "POWERSHELF-9000", "CDU-9000", "PDU-9000"}[i], role+"-9000",
			map[string]any{"manufacturer": 1 + i/2, "u_height": float64([]int{1, 1, 1, 1, 0, 0}[i])})
	}
	s.Objects.Put(edited(s, world.KindDeviceType, 3, "manufacturer", 2))
	for _, tag := range []string{"gpu", "pilot", "do-not-touch"} {
		add(world.KindTag, tag, tag, map[string]any{"color": "ff0000"})
	}
	fillCustom(add)
	for i := range 40 {
		fillDevice(s, i)
	}
}

func edited(s *world.State, kind string, id int, field string, value any) (string, *world.Object) {
	o := s.Objects.Edit(world.ObjectKey(kind, id))
	o.Fields[field] = value
	return o.Key(), o
}

var roles = []string{"compute", "nvswitch", "tor", "powershelf", "cdu", "pdu"}

func fillCustom(add func(kind, name, slug string, fields map[string]any) int) {
	stages := []any{[]any{"new", "New"}, []any{"burn_in", "Burn-in"}, []any{"production", "Production"}, []any{"retired", "Retired"}}
	features := []any{[]any{"ib", "InfiniBand"}, []any{"roce", "RoCE"}, []any{"nvme", "NVMe"}}
	for _, f := range []struct {
		name   string
		fields map[string]any
	}{
		{"owner_team", map[string]any{"type": "text"}},
		{"stage", map[string]any{"type": "select", "choices": stages, "choice_set": "stages"}},
		{"features", map[string]any{"type": "multiselect", "choices": features, "choice_set": "features"}},
		{"spare_site", map[string]any{"type": "object", "related": world.KindSite}},
		{"peers", map[string]any{"type": "multiobject", "related": world.KindDevice}},
		{"gpu_ready", map[string]any{"type": "boolean"}},
		{"warranty_end", map[string]any{"type": "date"}},
		{"last_check", map[string]any{"type": "datetime"}},
		{"slot", map[string]any{"type": "integer"}},
		{"power_kw", map[string]any{"type": "decimal"}},
		{"doc", map[string]any{"type": "url"}},
		{"blob", map[string]any{"type": "json"}},
		{"with_default", map[string]any{"type": "text"}},
	} {
		add(world.KindCustomField, f.name, "", f.fields)
	}
}

// fillDevice makes the ith device, from 0.
func fillDevice(s *world.State, i int) {
	rack, place := i/20, i%20
	role, nth := 0, place+1
	switch {
	case place >= 16:
		role, nth = place-14, 1
	case place >= 12:
		role, nth = 1, place-11
	}
	o := &world.Object{Kind: world.KindDevice, Name: fmt.Sprintf("r%02d-%s-%02d", rack+1, roles[role], nth), Custom: customOf(i, place)}
	o.Fields = map[string]any{
		"device_type": role + 1, "role": role + 1, "site": rack + 1, "location": rack + 1, "rack": rack + 1, "serial": fmt.Sprintf("SN%06d", i),
		"status":      []string{"active", "active", "active", "active", "active", "active", "active", "active", "planned", "staged", "failed", "inventory", "decommissioning", "offline"}[i%14],
		"description": map[bool]string{true: "seeded"}[i%7 == 1],
	}
	if serial, odd := map[int]string{0: "", 5: "Not Specified", 7: "0123456789"}[i%10]; odd {
		o.Fields["serial"] = serial
	}
	for field, given := range map[string]struct {
		yes   bool
		value any
	}{
		"asset_tag": {i%6 != 0, fmt.Sprintf("A%05d", i)}, "tenant": {i%5 != 0, i%2 + 1}, "position": {role < 4, float64(place + 1)}, "face": {role < 4, "front"},
		"platform": {role == 0 || role == 2, 1 + role/2}, "local_context_data": {i%10 == 2, map[string]any{"own": i}},
	} {
		if given.yes {
			o.Fields[field] = given.value
		}
	}
	for id, yes := range []bool{role == 0, i%9 == 0, i%20 == 3} {
		if yes {
			o.Tags = append(o.Tags, id+1)
		}
	}
	s.AddObject(o)
	if i == 1 {
		fillInterfaces(s, o.ID)
	}
	for net, field := range []string{"primary_ip4", "oob_ip"} {
		ip := s.AddObject(&world.Object{Kind: world.KindIP, Name: fmt.Sprintf("10.%d.0.%d/16", net, i+1), Fields: map[string]any{"device": o.ID, "dns_name": o.Name + ".example.invalid"}})
		if place != []int{7, 5}[net] {
			s.Objects.Put(edited(s, world.KindDevice, o.ID, field, ip.ID))
		}
	}
}

func customOf(i, place int) map[string]any {
	if i%4 == 3 {
		return map[string]any{}
	}
	custom := map[string]any{
		"owner_team": fmt.Sprintf("team-%d", i%3), "stage": []string{"new", "burn_in", "production", "retired"}[i%4], "gpu_ready": i%2 == 0,
		"warranty_end": "2029-01-31", "slot": float64(place), "power_kw": 10.5,
	}
	if i%4 == 1 {
		custom["features"], custom["spare_site"], custom["last_check"] = []any{"ib", "nvme"}, 2, "2026-01-02T03:04:05Z"
		custom["doc"], custom["blob"] = "https://example.invalid/x", map[string]any{"a": []any{float64(1), nil}}
	}
	return custom
}

// fillInterfaces makes what the recordings show of interfaces: two of the second
// device, and four that are cabled.
func fillInterfaces(s *world.State, device int) {
	for n := range 4 {
		s.AddObject(&world.Object{Kind: world.KindInterface, Name: fmt.Sprintf("eth%d", n), Fields: map[string]any{
			"device": 1, "type": "400gbase-x-qsfpdd", "mac": fmt.Sprintf("02:E0:00:00:00:%02X", n), "peer_device": 1, "peer_port": "eth0",
		}})
	}
	for _, name := range []string{"BMC", "eth0"} {
		s.AddObject(&world.Object{Kind: world.KindInterface, Name: name, Fields: map[string]any{"device": device, "type": "1000base-t", "mac": "02:BC:00:00:00:01", "mgmt_only": name == "BMC"}})
	}
}
