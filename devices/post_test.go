package devices_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// withoutIronic is a site whose openstack conditions somebody posts.
func withoutIronic(s *fleet.SiteSpec) {
	s.Inventory = facts.InventorySourceFile
	s.Sources.Recorded = map[string]string{"file": "x"}
}

func (w *world) bearFromFile(name string) int64 {
	w.t.Helper()
	var f facts.Facts
	f.Netbox = facts.Netbox{
		Name: facts.TextOf(name), Role: facts.TextOf("gpu-node"), Status: facts.TextOf("active"), Rack: facts.TextOf("r1"),
		Position: facts.TextOf("u7"), Serial: facts.TextOf(""), OobIP: facts.TextOf("10.0.0.1/24"), ResourceClass: facts.TextOf("gpu"),
	}
	id := w.apply("file", born(w.say(name, f))).Born[0]
	w.finish("file")
	return id
}

func (w *world) post(p devices.ConditionPost) (fleet.Condition, bool) {
	w.t.Helper()
	c, stored, err := w.svc.PostCondition(w.ctx(), p)
	must(w.t, err)
	return c, stored
}

func TestADurableConditionIsOrderedByItsOwnInstant(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	base := devices.ConditionPost{DeviceID: id, Type: "NvLinkGpusInRepairPartition", Writer: "nvlink-fabric", Status: fleet.True, Reason: "Isolated", ObservedAt: w.clock()}
	c, stored := w.post(base)
	if !stored || c.Status != fleet.True {
		t.Fatalf("%+v %v", c, stored)
	}
	older := base
	older.Status, older.Reason, older.ObservedAt = fleet.False, "Returned", base.ObservedAt.Add(-time.Second)
	if c, stored = w.post(older); stored || c.Status != fleet.True || c.Reason != "Isolated" {
		t.Fatalf("an older post: %+v %v", c, stored)
	}
	newer := base
	newer.ObservedAt = base.ObservedAt.Add(time.Second)
	if c, stored = w.post(newer); !stored || !c.ObservedAt.Equal(newer.ObservedAt) || !c.LastTransitionAt.Equal(w.clock()) {
		t.Fatalf("a newer post of the same: %+v %v", c, stored)
	}
	// A sweep leaves it alone, and it feeds no status.
	w.pass(time.Hour)
	w.apply("ironic", w.say("n1", node(ready, bound)))
	w.wantCondition(id, base.Type, "True Isolated")
	w.wantStatus(id, "in_use", "customer-in-use")
}

func TestRefusedPostsSayWhy(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	good := devices.ConditionPost{DeviceID: id, Type: "CustodyIntent", Writer: "custody", Status: fleet.True, Reason: "PartnerHolds", ObservedAt: w.clock()}
	for name, c := range map[string]struct {
		change func(*devices.ConditionPost)
		code   devices.Code
	}{
		"a type nobody knows":     {func(p *devices.ConditionPost) { p.Type = "X" }, devices.CodeTypeUnknown},
		"a writer nobody knows":   {func(p *devices.ConditionPost) { p.Writer = "x" }, devices.CodeWriterUnknown},
		"another writer's type":   {func(p *devices.ConditionPost) { p.Writer = "nvlink-fabric" }, devices.CodeWriterMismatch},
		"a type that we emit":     {func(p *devices.ConditionPost) { p.Type, p.Writer = "Enrolled", "openstack" }, devices.CodeEmittedHere},
		"from the future":         {func(p *devices.ConditionPost) { p.ObservedAt = w.clock().Add(6 * time.Minute) }, devices.CodeInFuture},
		"a reason with a space":   {func(p *devices.ConditionPost) { p.Reason = "no good" }, devices.CodeInvalid},
		"a status that is none":   {func(p *devices.ConditionPost) { p.Status = "Maybe" }, devices.CodeInvalid},
		"a device nobody knows":   {func(p *devices.ConditionPost) { p.DeviceID = 4711 }, devices.CodeDeviceNotFound},
		"within the tolerance":    {func(p *devices.ConditionPost) { p.ObservedAt = w.clock().Add(4 * time.Minute) }, ""},
		"without any observed_at": {func(p *devices.ConditionPost) { p.ObservedAt = time.Time{} }, ""},
	} {
		p := good
		c.change(&p)
		_, _, err := w.svc.PostCondition(w.ctx(), p)
		var refused *devices.RefusedError
		if errors.As(err, &refused); (c.code == "") != (err == nil) || c.code != "" && (refused == nil || refused.Code != c.code) {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
	}
}

// whole is an openstack snapshot of a node in the customers' pool.
func whole(change map[string]fleet.Tri) []devices.SnapshotCondition {
	var all []devices.SnapshotCondition
	for name, status := range map[string]fleet.Tri{
		"ProvisionFailed": fleet.False, "Maintenance": fleet.False, "Enrolled": fleet.True, "ProvisionAvailable": fleet.True,
		"InstanceAllocated": fleet.False, "ValidationAllocated": fleet.False, "MaintenancePool": fleet.False, "CustomerReady": fleet.True,
	} {
		if s, ok := change[name]; ok {
			status = s
		}
		if status != "" {
			all = append(all, devices.SnapshotCondition{Type: name, Status: status, Reason: "Posted"})
		}
	}
	return all
}

func TestASnapshotDerivesAndRepairs(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	w.wantStatus(id, "unknown", "") // nobody speaks of it yet
	snap := func(change map[string]fleet.Tri) devices.SnapshotResult {
		t.Helper()
		results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "connector"}, []devices.DeviceSnapshot{{DeviceID: id, ObservedAt: w.clock(), Conditions: whole(change)}})
		must(t, err)
		return results[0]
	}
	if r := snap(nil); r.Code != "" || len(r.Written) != 8 || r.Status != facts.OperationalStatusAvailable {
		t.Fatalf("%+v", r)
	}
	w.wantStatus(id, "available", "customer-available")

	if r := snap(map[string]fleet.Tri{"Maintenance": ""}); r.Code != devices.CodeSnapshotIncomplete {
		t.Fatalf("without Maintenance: %+v", r)
	}
	w.pass(time.Second)
	if r := snap(map[string]fleet.Tri{"Maintenance": devices.NotRead}); r.Code != "" || len(r.Written) != 0 {
		t.Fatalf("Maintenance not read: %+v", r)
	}
	w.wantCondition(id, "Maintenance", "False Posted")
	w.wantStatus(id, "available", "customer-available")
	if all, _ := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)}); all[id].StatusFresh || all[id].Reasons["Maintenance"] != "Posted" {
		t.Fatalf("%+v", all[id])
	}
	w.pass(time.Second)
	if r := snap(nil); r.Code != "" {
		t.Fatalf("%+v", r)
	}
	if d := w.device(id); d.Unread != 0 {
		t.Fatalf("unread %x after a whole snapshot", d.Unread)
	}

	w.exec("update devices set operational_status = 'failed', decisive = 0 where id = $1", id)
	w.pass(time.Second)
	if r := snap(nil); !r.Repaired || len(r.Written) != 0 {
		t.Fatalf("a spoilt status: %+v", r)
	}
	w.wantStatus(id, "available", "customer-available")

	// A posted value ages by its own instant.
	w.pass(2 * time.Minute)
	w.project()
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(t, err)
	if all[id].StatusFresh || all[id].Reasons["Enrolled"] != "Stale" {
		t.Fatalf("%+v", all[id])
	}
	w.pass(24 * time.Hour)
	w.project()
	if d := w.device(id); d.Operational != facts.OperationalStatusUnknown {
		t.Fatalf("past its hold limit it is %s", d.Operational)
	}
}

func TestASnapshotOfASiteThatIsReadIsRefusedForItsDevices(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, Conditions: whole(nil)}, {DeviceID: 99, Conditions: whole(nil)}})
	must(t, err)
	if results[0].Code != devices.CodeEmittedHere || results[1].Code != devices.CodeDeviceNotFound {
		t.Fatalf("%+v", results)
	}
}

func TestInventoryAxes(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	d := w.device(id)
	if d.Class != facts.DeviceClassGpuCompute || d.Inventory != facts.InventoryStatusActive || d.BMCAddress != "10.0.0.1" || d.Position != "u7" || d.RackID == 0 {
		t.Fatalf("%+v", d)
	}
	w.pass(time.Minute)
	var f facts.Facts
	f.Netbox = facts.Netbox{Name: facts.TextOf("n1b"), Role: facts.TextOf("coffee-machine"), Status: facts.TextOf("staged"), Rack: facts.TextOf("r2")}
	w.apply("file", fleet.Reading{Ref: "n1", Name: "n1b", At: w.clock(), Facts: f})
	moved := w.device(id)
	if moved.Class != facts.DeviceClassGpuCompute || moved.Inventory != facts.InventoryStatusStaged || moved.Name != "n1b" || moved.RackID == d.RackID || moved.BMCAddress != "10.0.0.1" {
		t.Fatalf("%+v", moved)
	}
	var class, address string
	must(t, w.db.QueryRow(w.ctx(), `select unread -> 'device_class' ->> 'reason', unread -> 'bmc_address' ->> 'reason'
		from device_writers where device_id = $1 and writer = 'inventory'`, id).Scan(&class, &address))
	if class != "RoleUnmapped" || address != "FieldNotServed" {
		t.Fatalf("unread: %s, %s", class, address)
	}
	if got := w.history(id, fleet.KindInventory); !slices.Equal(got, []string{"active", "staged"}) {
		t.Fatalf("history %v", got)
	}
	w.finish("file")
	var kind string
	must(t, w.db.QueryRow(w.ctx(), "select kind from source_findings where device_id = $1", id).Scan(&kind))
	if kind != fleet.FindingUnmapped {
		t.Fatalf("the finding is %s", kind)
	}
}

func TestAPostIsAuditedWithItsEffectOrNotAtAll(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	post := devices.ConditionPost{
		DeviceID: id, Type: "CustodyIntent", Status: fleet.True, Reason: "HandedOver", Writer: "custody",
		By: devices.Caller{Name: "connector", Remote: "192.0.2.7"},
	}
	if _, stored, err := w.svc.PostCondition(w.ctx(), post); err != nil || !stored {
		t.Fatalf("stored %v: %v", stored, err)
	}
	refused := post
	refused.Writer = "openstack"
	if _, _, err := w.svc.PostCondition(w.ctx(), refused); err == nil {
		t.Fatal("another writer's type was taken")
	}
	var rows int
	var who, from string
	if err := w.db.QueryRow(w.ctx(), "select count(*), max(principal), max(remote) from audit where action = 'condition.post'").Scan(&rows, &who, &from); err != nil {
		t.Fatal(err)
	}
	if rows != 1 || who != "connector" || from != "192.0.2.7" {
		t.Errorf("%d rows by %s from %s, want the one that was stored", rows, who, from)
	}
}
