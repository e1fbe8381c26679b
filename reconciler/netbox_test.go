package reconciler

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// NetBox shows a token less than it did, and says so with 200: what it does not
// show is absent, and everything that is known of it stays until it is retired.
func TestWhatATokenMayNotSeeIsAbsentAndComesBackWhole(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "n1", rack("r1"), serial("S1")), in("a1", "2", "n2", rack("r1"), serial("S2")))
	n.read(&n.site)
	n.ironic().says(node("u1", "n1"), node("u2", "n2"))
	n.read(&n.site, "ironic")
	_, err := n.db.Exec(t.Context(), "update devices set enrollment_validated_ref = 'u2', enrollment_proof_source = 'enrolled' where name = 'n2'")
	must(t, err)
	before := n.device("n2")

	n.takes("2")
	n.read(&n.site)
	d := n.device("n2")
	if d.Inventory != facts.InventoryStatusUnknown || d.AbsentSince.IsZero() || d.CustomerReady || !d.RetiredAt.IsZero() {
		t.Errorf("the absent device is %s since %v, customer-ready %v, retired at %v", d.Inventory, d.AbsentSince, d.CustomerReady, d.RetiredAt)
	}
	if d.Class != before.Class || d.SiteID != before.SiteID || d.RackID != before.RackID || d.Serial != "S2" || d.InfrastructureRef != "u2" || d.Proof.ValidatedRef != "u2" {
		t.Errorf("the absent device lost what is known of it: %+v", d)
	}
	n.later(23 * time.Hour)
	if d := n.device("n2"); !d.RetiredAt.IsZero() {
		t.Error("it is retired before its grace has passed")
	}
	n.later(25 * time.Hour)
	if d := n.device("n2"); d.RetiredAt.IsZero() || d.Proof.ValidatedRef != "" || d.InScope != 0 || d.InfrastructureRef != "" {
		t.Errorf("after its grace it is retired at %v, proof %q, scope %x, node %q", d.RetiredAt, d.Proof.ValidatedRef, d.InScope, d.InfrastructureRef)
	}
	n.puts(in("a1", "2", "n2", rack("r1"), serial("S2")))
	n.read(&n.site)
	n.read(&n.site, "ironic")
	if d := n.device("n2"); d.ID != before.ID || !d.RetiredAt.IsZero() || !d.AbsentSince.IsZero() || d.Inventory != facts.InventoryStatusActive || d.InfrastructureRef != "u2" {
		t.Errorf("back again it is %+v", d)
	}
	n.wantCount(2, "select count(*) from devices")
}

// A rack that is deleted and imported again has new ids all over: its machines
// are known by their serials, however many there are.
func TestARackOfNetBoxIsImportedAgain(t *testing.T) {
	n := newNetBox(t)
	const machines = 18
	put := func(first int, serialOf func(i int) string) {
		for i := range machines {
			n.puts(in("a1", fmt.Sprint(first+i), fmt.Sprintf("r1-c%02d", i), rack("r1"), serial(serialOf(i))))
		}
	}
	serialOf := func(i int) string { return fmt.Sprintf("SN%04d", i) }
	put(100, serialOf)
	n.read(&n.site)
	ids := n.count("select sum(id) from devices")
	for i := range machines {
		n.takes(fmt.Sprint(100 + i))
	}
	put(200, serialOf)
	n.read(&n.site)
	n.wantCount(machines, "select count(*) from devices d join facts f on f.device_id = d.id where f.ref::int >= 200 and not f.ref_gone and d.absent_since is null")
	n.wantCount(ids, "select sum(id) from devices")
	n.wantFindings("netbox")
	if mark := n.watermark("netbox"); mark.Alert != "" {
		t.Errorf("an alert is raised: %s", mark.Alert)
	}

	// Without real serials nobody can say so: nothing is concluded, nobody is born.
	for i := range machines {
		n.takes(fmt.Sprint(200 + i))
	}
	put(300, func(int) string { return "00000000" })
	n.read(&n.site)
	if mark := n.watermark("netbox"); mark.Alert == "" {
		t.Error("no alert is raised")
	}
	n.wantCount(machines, "select count(*) from devices where absent_since is null")
	n.wantCount(machines, "select count(*) from devices")
}

// A new tray under an old name is another machine: it takes nothing over, and
// nobody is born beside the old one until that is gone for good.
func TestATrayThatReusesANameInheritsNothing(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "r1-c01", rack("r1"), serial("OLD")))
	n.read(&n.site)
	n.ironic().says(node("u1", "r1-c01", serial("OLD")))
	n.read(&n.site, "ironic")
	old := n.device("r1-c01").ID
	n.takes("1")
	n.puts(in("a1", "2", "r1-c01", rack("r1"), serial("NEW")))
	n.read(&n.site)
	n.wantFindings("netbox", "ambiguous 2")
	n.wantCount(1, "select count(*) from source_findings where kind = 'ambiguous' and detail ->> 'why' = 'SerialsDiffer' and device_id = $1", old)
	n.wantCount(1, "select count(*) from devices where absent_since is not null and inventory_status = 'unknown' and serial = 'OLD'")
	n.later(25 * time.Hour)
	n.read(&n.site)
	n.wantFindings("netbox")
	n.wantCount(1, "select count(*) from devices where id <> $1 and name = 'r1-c01' and serial = 'NEW' and infrastructure_ref = '' and operational_status = 'unknown' and retired_at is null", old)
	n.ironic().says(node("u1", "r1-c01", serial("OLD")))
	n.read(&n.site, "ironic")
	n.wantFindings("ironic", "ambiguous u1") // the old one's node is not the new one's
}

// Serials that name no machine join nobody; real ones do, however they are
// written.
func TestPlaceholderSerialsJoinNobody(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "a", serial("00000000")), in("a1", "2", "b", serial("00000000")), in("a1", "3", "c", serial("")), in("a1", "4", "d", serial("S4")))
	n.read(&n.site)
	n.wantCount(4, "select count(*) from devices")
	n.ironic().says(node("u1", "x1", serial("00000000")), node("u3", "x3", serial("Not Specified")), node("u4", "x4", serial(" s4 ")))
	n.read(&n.site, "ironic")
	n.wantFindings("ironic", "unjoined u1", "unjoined u3")
	n.wantCount(1, "select count(*) from devices where infrastructure_ref <> '' and name = 'd' and infrastructure_ref = 'u4'")
	n.wantCount(1, "select count(*) from devices where infrastructure_ref <> ''")
}

// What an inventory does not say for sure offers nobody anything.
func TestOnlyAnActiveMachineIsOffered(t *testing.T) {
	n := newNetBox(t)
	status := func(s string) func(*sources.Record) {
		return func(r *sources.Record) {
			r.Netbox.Status, r.Netbox.CustomFields = facts.TextOf(s), map[string]any{"maintenance": nil}
		}
	}
	n.puts(in("a1", "1", "n1", status("active"), at("192.0.2.1")), in("a1", "2", "n2", status("planned"), at("192.0.2.2")), in("a1", "3", "n3", status("on-loan"), at("192.0.2.3")))
	n.read(&n.site)
	n.ironic().says(node("u1", "n1"), node("u2", "n2"), node("u3", "n3"))
	n.source("bmc").says(bmc("192.0.2.1"), bmc("192.0.2.2"), bmc("192.0.2.3"))
	n.read(&n.site, "ironic", "bmc")
	n.wantCount(1, "select count(*) from devices where customer_ready")
	if d := n.device("n1"); !d.CustomerReady {
		t.Errorf("n1 is %s, %s, %s", d.Operational, d.Health, d.Inventory)
	}
	if d := n.device("n3"); d.Inventory != facts.InventoryStatusUnknown {
		t.Errorf("a status that nobody mapped gives %s", d.Inventory)
	}
	n.wantCount(1, "select count(*) from source_findings where kind = $1 and ref = 'n3'", fleet.FindingUnmapped)
}
