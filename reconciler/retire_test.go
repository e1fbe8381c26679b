package reconciler

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// fileAndIronic is a site whose inventory is a recorded listing.
func fileAndIronic(s *fleet.SiteSpec) {
	s.Inventory = facts.InventorySourceFile
	s.Sources.Recorded = map[string]string{"file": "x", "ironic": "x", "slurm": "x"}
}

func machine(ref, name string, change ...func(*sources.Record)) sources.Record {
	r := sources.Record{Ref: ref, Name: name, Netbox: &facts.Netbox{
		Listed: facts.True, Name: facts.TextOf(name), Role: facts.TextOf("gpu_compute"), Status: facts.TextOf("active"),
	}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func tenant(name string) func(*sources.Record) {
	return func(r *sources.Record) { r.Netbox.Tenant = facts.TextOf(name) }
}

func role(name string) func(*sources.Record) {
	return func(r *sources.Record) { r.Netbox.Role = facts.TextOf(name) }
}

// later projects the site as it will be after d.
func (w *world) later(d time.Duration) {
	w.t.Helper()
	svc := devices.New(w.db, policies{w.bundle()}, func() time.Time { return w.db.Now().Add(d) }, hclog.NewNullLogger())
	_, err := svc.Project(w.t.Context(), w.site.ID, fleet.Cause{Type: "projection"})
	must(w.t, err)
}

func TestAHostNameOfARetiredDeviceIsFreeForItsSuccessor(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", leased, serial("S1")))
	w.slurm().says(slurmNode("n1", facts.SlurmIdle))
	w.sweep("ironic", "slurm")
	old := w.device("n1").ID
	w.ironic().says()
	w.sweep("ironic")
	w.later(25 * time.Hour)
	w.wantCount(1, "select count(*) from devices where id = $1 and retired_at is not null", old)
	w.wantCount(0, "select count(*) from facts where device_id = $1 and not ref_gone", old)
	w.ironic().says(node("u2", "n1", leased, serial("S2")))
	w.sweep("ironic", "slurm")
	w.wantCount(1, "select count(*) from devices where id <> $1 and operational_status = 'validation' and 'IDLE' = any(slurm_states)", old)
	w.wantCount(0, "select count(*) from devices where id = $1 and retired_at is null", old)
	w.wantFindings("slurm")
}

func TestOnlyTheInventoryBringsARetiredDeviceBack(t *testing.T) {
	for name, again := range map[string]struct {
		ref, name, serial string
		device            bool // the old one
	}{
		"under its ref, renamed":               {"1", "n9", "S1", true},
		"under another ref, by its serial":     {"7", "n1", "S1", true},
		"under its name, but another machine":  {"7", "n1", "S2", false},
		"under its name, and nobody knows who": {"7", "n1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fileAndIronic)
			w.source("file").says(machine("1", "n1", serial("S1")))
			w.ironic().says(node("u1", "n1", serial("S1")))
			w.sweep("file", "ironic")
			w.wantStatus("n1", "available")
			old := w.device("n1").ID
			w.source("file").says()
			w.sweep("file")
			d := w.device("n1")
			if d.Inventory != facts.InventoryStatusUnknown || d.AbsentSince.IsZero() || d.CustomerReady || d.Operational != facts.OperationalStatusAvailable || d.InfrastructureRef != "u1" {
				t.Errorf("the absent device is %s since %v, %s, node %q", d.Inventory, d.AbsentSince, d.Operational, d.InfrastructureRef)
			}
			w.later(25 * time.Hour)
			d = w.device("n1")
			if d.RetiredAt.IsZero() || d.InScope != 0 || d.Operational != facts.OperationalStatusUnknown || d.InfrastructureRef != "" {
				t.Errorf("retired at %v, scope %x, %s, node %q", d.RetiredAt, d.InScope, d.Operational, d.InfrastructureRef)
			}
			w.sweep("ironic") // Ironic still has it, and is no inventory
			w.wantCount(1, "select count(*) from devices where retired_at is not null")
			w.wantFindings("ironic", "unjoined u1")

			w.source("file").says(machine(again.ref, again.name, serial(again.serial)))
			w.sweep("file", "ironic")
			if !again.device {
				w.wantCount(2, "select count(*) from devices")
				w.wantCount(1, "select count(*) from devices where id = $1 and retired_at is not null", old)
				return
			}
			d = w.device(again.name)
			if d.ID != old || !d.RetiredAt.IsZero() || !d.AbsentSince.IsZero() || d.Inventory != facts.InventoryStatusActive || d.InfrastructureRef != "u1" {
				t.Errorf("device %d retired at %v, %s, node %q", d.ID, d.RetiredAt, d.Inventory, d.InfrastructureRef)
			}
			w.wantStatus(again.name, "available")
			w.wantCount(1, "select count(*) from devices")
		})
	}
}

func TestARetiredDeviceThatComesBackOffersNothingUntilItIsRead(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	w.source("file").says(machine("1", "n1"))
	w.ironic().says(node("u1", "n1"))
	w.sweep("file", "ironic")
	w.source("file").says()
	w.sweep("file")
	w.later(25 * time.Hour)
	w.source("file").says(machine("1", "n1"))
	w.sweep("file")
	if d := w.device("n1"); !d.RetiredAt.IsZero() || d.Operational != facts.OperationalStatusUnknown {
		t.Errorf("before Ironic was read it is %s by %s", d.Operational, d.Rung)
	}
	w.sweep("ironic")
	w.wantStatus("n1", "available")
}

func TestAPersonsWordRetiresAtOnce(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	var all []sources.Record
	for _, n := range nodes(20) {
		all = append(all, machine(n.Ref, n.Name))
	}
	w.source("file").says(all...)
	w.sweep("file")
	w.source("file").says(all[:8]...)
	w.sweep("file")
	w.wantCount(0, "select count(*) from devices where absent_since is not null")
	confirm(w, "file")
	w.sweep("file")
	w.wantCount(12, "select count(*) from devices where absent_since is not null and retired_at is not null and inventory_status = 'unknown'")
	w.wantCount(8, "select count(*) from devices where retired_at is null")
	// It was wrong: what comes back is what it was.
	w.source("file").says(all...)
	w.sweep("file")
	w.wantCount(20, "select count(*) from devices where absent_since is null and retired_at is null and inventory_status = 'active'")
}

func TestNamesAreUniqueWithinATenantOnly(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	w.source("file").says(machine("1", "n1", tenant("east")))
	w.sweep("file")
	w.source("file").says(machine("1", "n1", tenant("east")), machine("2", "n1", tenant("west")), machine("3", "n1", tenant("east")))
	w.sweep("file")
	w.wantFindings("file", "ambiguous 3")
	w.wantCount(2, "select count(*) from devices where name = 'n1'")

	// One of them is deleted and imported again: the tenant still tells it apart.
	w.source("file").says(machine("2", "n1", tenant("west")))
	w.sweep("file")
	w.wantCount(1, "select count(*) from devices where absent_since is not null")
	w.source("file").says(machine("2", "n1", tenant("west")), machine("4", "n1", tenant("east")))
	w.sweep("file")
	w.wantCount(2, "select count(*) from devices where absent_since is null")
	w.wantFindings("file")
}
