package reconciler

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// machines gives n machines of one role, with their nodes.
func machines(n int, roleName string) (listed, nodesOf []sources.Record) {
	nodesOf = nodes(n)
	for _, node := range nodesOf {
		listed = append(listed, machine("m"+node.Ref, node.Name, role(roleName)))
	}
	return listed, nodesOf
}

// confirmClasses confirms the classes that are held back, by the hash that is
// shown.
func confirmClasses(w *world, source string) {
	w.t.Helper()
	var hash string
	must(w.t, w.db.QueryRow(w.t.Context(), "select min(detail ->> 'confirm') from source_findings where kind = 'class'").Scan(&hash))
	must(w.t, w.db.Tx(w.t.Context(), func(tx pgx.Tx) error {
		_, err := store.Confirm(w.t.Context(), tx, store.Confirmation{SiteID: w.site.ID, Source: source, Hash: hash, Actor: "ada"})
		return err
	}))
}

func TestARenamedRoleTakesNoFleetOutOfItsScope(t *testing.T) {
	for name, c := range map[string]struct {
		renamed int
		held    bool
	}{
		"a fifth is believed":       {4, false},
		"more waits for a person":   {5, true},
		"all of them wait as well":  {20, true},
		"one of many needs no word": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fileAndIronic)
			listed, of := machines(20, "gpu_compute")
			w.source("file").says(listed...)
			w.ironic().says(of...)
			w.sweep("file", "ironic")
			w.wantCount(20, "select count(*) from devices where operational_status = 'available'")
			before := w.watermark("file")

			for i := range c.renamed {
				role("pdu")(&listed[i])
			}
			w.sweep("file")
			w.sweep("ironic") // nobody else takes the class meanwhile
			w.later(0)
			mark := w.watermark("file")
			if !mark.At.After(before.At) || (mark.Alert != "") != c.held {
				t.Errorf("the watermark is %+v", mark)
			}
			if !c.held {
				w.wantCount(c.renamed, "select count(*) from devices where device_class = 'other' and operational_status = 'unknown' and in_scope = 0")
				return
			}
			w.wantCount(20, "select count(*) from devices where device_class = 'gpu_compute' and operational_status = 'available'")
			w.wantCount(c.renamed, "select count(*) from device_writers where unread -> 'device_class' ->> 'reason' = 'ClassUnconfirmed'")
			w.wantCount(c.renamed, "select count(*) from source_findings where kind = 'class' and detail ->> 'role' = 'pdu'")

			confirmClasses(w, "file")
			w.sweep("file")
			w.wantCount(c.renamed, "select count(*) from devices where device_class = 'other' and operational_status = 'unknown'")
			w.wantCount(0, "select count(*) from source_findings where kind = 'class'")
			if mark := w.watermark("file"); mark.Alert != "" {
				t.Errorf("the alert stands: %s", mark.Alert)
			}
		})
	}
}

func TestARoleThatIsNamedAsBeforeNeedsNoWord(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	listed, of := machines(5, "gpu_compute")
	w.source("file").says(listed...)
	w.ironic().says(of...)
	w.sweep("file", "ironic")
	wrong, _ := machines(5, "pdu")
	w.source("file").says(wrong...)
	w.sweep("file")
	w.wantFindings("file", "class mu000", "class mu001", "class mu002", "class mu003", "class mu004")
	// The confirmation of one set is not that of another.
	wrong[0].Netbox.Role = facts.TextOf("router")
	confirmClasses(w, "file")
	w.sweep("file")
	w.wantCount(5, "select count(*) from devices where device_class = 'gpu_compute'")
	w.source("file").says(listed...)
	w.sweep("file")
	w.wantFindings("file")
	w.wantCount(0, "select count(*) from device_writers where unread ? 'device_class'")
	w.wantCount(5, "select count(*) from devices where operational_status = 'available'")
}

func TestAClassThatLeavesNoScopeIsTakenAtOnce(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	listed, of := machines(3, "gpu_compute")
	w.source("file").says(listed...)
	w.ironic().says(of...)
	w.sweep("file", "ironic")
	again, _ := machines(3, "cpu_baremetal")
	w.source("file").says(again...)
	w.sweep("file")
	w.wantCount(3, "select count(*) from devices where device_class = 'cpu_baremetal' and operational_status = 'available'")
	w.wantFindings("file")
}

func TestADeviceThatAnAmbiguousRecordMayBeIsUnread(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	w.source("file").says(machine("1", "n1", serial("S1")), machine("2", "n2", serial("S2")))
	w.ironic().says(node("u1", "n1", serial("S9")), node("u2", "n2", serial("S2")))
	w.sweep("file", "ironic")
	w.wantFindings("ironic", "ambiguous u1")
	w.wantStatus("n2", "available")
	reason := `select count(*) from device_writers w join devices d on d.id = w.device_id where d.name = 'n1' and w.writer = 'openstack'
		and w.unread -> 'Enrolled' ->> 'reason' = 'JoinAmbiguous' and w.unread -> 'Maintenance' ->> 'reason' = 'JoinAmbiguous'`
	w.wantCount(1, reason)
	w.wantCondition("n1", "Enrolled", "") // nothing is said either way
	if d := w.device("n1"); !d.AbsentSince.IsZero() || d.InfrastructureRef != "" {
		t.Errorf("absent since %v, node %q", d.AbsentSince, d.InfrastructureRef)
	}
	before := w.device("n1")
	w.sweep("ironic")
	if again := w.device("n1"); !again.UpdatedAt.Equal(before.UpdatedAt) {
		t.Error("the same doubt again is written again")
	}

	// The doubt ends: by a record that is plainly another's, or plainly its own.
	w.ironic().says(node("u3", "n3", serial("S9")), node("u2", "n2", serial("S2")))
	w.sweep("ironic")
	w.wantCount(0, reason)
	w.wantCondition("n1", "Enrolled", "Unknown NodeNotFound")
	w.ironic().says(node("u1", "n1", serial("S9")), node("u2", "n2", serial("S2")))
	w.sweep("ironic")
	w.wantCount(1, reason)
	w.wantCondition("n1", "Enrolled", "Unknown NodeNotFound") // the last value, under the doubt
	w.ironic().says(node("u1", "n1", serial("S1")), node("u2", "n2", serial("S2")))
	w.sweep("ironic")
	w.wantCount(0, reason)
	w.wantStatus("n1", "available")
	if w.watermark("ironic").Alert != "" {
		t.Error("an alert is raised")
	}
}

func TestOneAddressOfTwoBMCsIsReported(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) {
		fileAndIronic(s)
		s.Sources.Recorded["bmc"] = "x"
	})
	address := func(a string) func(*sources.Record) {
		return func(r *sources.Record) { r.Netbox.OobIP = facts.TextOf(a) }
	}
	w.source("file").says(machine("1", "n1", address("2001:DB8::1")), machine("2", "n2", address("2001:db8::1")), machine("3", "n3", address("192.0.2.3")))
	w.sweep("file")
	w.wantCount(1, "select count(*) from source_findings where source = 'file' and kind = 'shared_bmc' and ref = '2001:db8::1' and jsonb_array_length(detail -> 'devices') = 2")
	bmc := func(ref string) sources.Record {
		return sources.Record{Ref: ref, Name: ref, BMC: &facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK}}
	}
	w.source("bmc").says(bmc("2001:db8::1"), bmc("192.0.2.3"))
	w.sweep("bmc")
	w.wantCount(1, "select count(*) from devices where health_status = 'healthy'")
	// The addresses are corrected; each is read at its own, and what another
	// machine said at the old one counts no more.
	w.source("file").says(machine("1", "n1", address("192.0.2.3")), machine("2", "n2", address("2001:db8::1")), machine("3", "n3", address("192.0.2.9")))
	w.sweep("file")
	w.wantCount(0, "select count(*) from source_findings where kind = 'shared_bmc'")
	w.wantCount(0, "select count(*) from devices where health_status = 'healthy'")
	w.source("bmc").says(bmc("2001:DB8::1"), bmc("192.0.2.3"))
	w.sweep("bmc")
	w.wantCount(1, "select count(*) from devices where name = 'n1' and health_status = 'healthy'")
	w.wantCount(1, "select count(*) from devices where name = 'n2' and health_status = 'healthy'")
	w.source("bmc").says(bmc("2001:DB8::1"), bmc("192.0.2.3"), bmc("192.0.2.9"))
	w.sweep("bmc")
	w.wantCount(3, "select count(*) from devices where health_status = 'healthy'")
	w.wantCount(2, "select count(*) from facts f join devices d on d.id = f.device_id where f.source = 'bmc' and f.ref = d.bmc_address and not f.ref_gone")
	w.wantFindings("bmc")
}
