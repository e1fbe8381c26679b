package faults

import (
	"slices"
	"strings"
	"testing"

	domain "github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator/world"
)

// wipe deletes devices from NetBox and gives what they were.
func (r *replica) wipe(t *testing.T, which func(d *world.Object) bool) (gone []*world.Object) {
	t.Helper()
	r.edit(t, func(s *world.State) {
		for _, d := range devicesOf(s) {
			if which(d) {
				gone = append(gone, d)
				s.Objects.Delete(d.Key()) // its addresses stay, for the backup
			}
		}
	})
	return gone
}

func all(*world.Object) bool { return true }

func TestAnEmptiedNetBoxAndOneFromAnOldBackupLoseNoDevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	stored, before := r.rows(t), r.devices(t)
	backup := r.wipe(t, all)
	r.settles(t)
	r.unchanged(t, stored)
	if m := r.mark(t, "netbox"); !strings.Contains(m.Alert, "empty") {
		t.Errorf("%+v", m)
	}

	// The backup is older than the last three devices.
	young := backup[len(backup)-3:]
	var names []string
	r.edit(t, func(s *world.State) {
		for _, d := range backup[:len(backup)-3] {
			s.Objects.Put(d.Key(), d)
		}
	})
	for _, d := range young {
		names = append(names, d.Name)
	}
	r.settles(t)
	now := r.devices(t)
	asBefore(t, before, now, names...)
	for _, name := range names {
		if d := now[name]; d.id != before[name].id || d.retired || !d.absent || d.inventory != "unknown" {
			t.Errorf("%s\n  was %+v\n  is  %+v", name, before[name], d)
		}
	}

	// They are entered again, under other ids: they are the same machines.
	r.edit(t, func(s *world.State) {
		for _, d := range young {
			s.AddObject(&world.Object{Kind: world.KindDevice, Name: d.Name, Fields: d.Fields, Custom: d.Custom, Tags: d.Tags})
		}
	})
	r.settles(t)
	now = r.devices(t)
	for _, name := range names {
		want := before[name]
		if want.ref = now[name].ref; want.ref == before[name].ref {
			t.Errorf("%s is still known by the id %s", name, want.ref)
		}
		before[name] = want
	}
	asBefore(t, before, now)
}

// An id of NetBox that names another machine after a restore is told as a swap,
// and what was proven of the machine before is not taken for the other's.
func TestAnIdThatNamesAnotherMachineIsToldAndProvesNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	before := r.devices(t)
	pair := []string{"sim1-r01-c02", "sim1-r01-c03"}
	r.edit(t, func(s *world.State) {
		var two []*world.Object
		for _, d := range devicesOf(s) {
			if slices.Contains(pair, d.Name) {
				two = append(two, d)
			}
		}
		two[0].ID, two[1].ID = two[1].ID, two[0].ID
		for _, d := range two {
			s.ChangeObject(d)
		}
	})
	r.settles(t)
	now := r.devices(t)
	asBefore(t, before, now, pair...)
	for _, name := range pair {
		if d := now[name]; d.retired || d.absent || d.proof != "" {
			t.Errorf("%s is %+v", name, d)
		}
	}
	if n := r.found(t, domain.FindingSwap); n != 2 {
		t.Errorf("%d swaps are told: %q", n, r.findings(t, "netbox"))
	}
}

func TestARackThatIsImportedAgainKeepsItsDevices(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	before, events := r.devices(t), r.scalar(t, "select count(*) from lifecycle_events")
	again := r.wipe(t, all)
	r.edit(t, func(s *world.State) {
		old := s.ObjectBySlug(world.KindRack, siteName+"-r01")
		s.Objects.Delete(old.Key())
		rack := s.AddObject(&world.Object{Kind: world.KindRack, Name: old.Name, Fields: old.Fields})
		for _, d := range again {
			d.Fields["rack"] = rack.ID
			s.AddObject(&world.Object{Kind: world.KindDevice, Name: d.Name, Fields: d.Fields, Custom: d.Custom, Tags: d.Tags})
		}
	})
	r.settles(t)
	now := r.devices(t)
	for name, want := range before {
		if want.ref = now[name].ref; want.ref == before[name].ref {
			t.Errorf("%s is still known by the id %s", name, want.ref)
		}
		before[name] = want
	}
	asBefore(t, before, now)
	if n := r.scalar(t, "select count(*) from lifecycle_events"); n != events {
		t.Errorf("the history has %d rows, before %d", n, events)
	}
}

func TestATrayThatReusesANameInheritsNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	before := r.devices(t)
	const name = "sim1-r01-c02"
	old := r.wipe(t, func(d *world.Object) bool { return d.Name == name })[0]
	r.edit(t, func(s *world.State) {
		old.Fields["serial"], old.Fields["oob_ip"] = "1399999999999", nil
		s.AddObject(&world.Object{Kind: world.KindDevice, Name: name, Fields: old.Fields, Custom: old.Custom, Tags: old.Tags})
	})
	r.settles(t)
	now := r.devices(t)
	asBefore(t, before, now, name)
	if d := now[name]; d.id != before[name].id || !d.absent || d.ref != before[name].ref || d.inventory != "unknown" || d.ready {
		t.Errorf("the old tray\n  was %+v\n  is  %+v", before[name], d)
	}
	if n := r.found(t, domain.FindingAmbiguous); n != 1 {
		t.Errorf("%d records are nobody's: %q", n, r.findings(t, "netbox"))
	}

	// Once the old tray is retired the new one is a device of its own.
	_, err := r.db.Exec(t.Context(), "update devices set absent_since = absent_since - interval '30 days', due_at = now() where name = $1", name)
	must(t, err)
	r.settles(t)
	r.settles(t)
	if n := r.scalar(t, "select count(*) from devices where id = $1 and retired_at is not null and enrollment_validated_ref = ''", before[name].id); n != 1 {
		t.Errorf("the old tray is not retired")
	}
	if n := r.scalar(t, `select count(*) from devices where name = $1 and id <> $2 and serial = '1399999999999' and retired_at is null
		and enrollment_validated_ref = '' and infrastructure_ref = '' and entered_service_at is null`, name, before[name].id); n != 1 {
		t.Errorf("there is no new tray that has inherited nothing: %q", r.query(t, "select id::text, to_jsonb(d)::text from devices d where name = '"+name+"'"))
	}
	if n := r.scalar(t, "select count(*) from lifecycle_events e join devices d on d.id = e.device_id where d.name = $1 and d.id <> $2 and status_before <> '' and kind = 'operational' and value not in ('unknown', 'quarantine')", name, before[name].id); n != 0 {
		t.Errorf("the new tray's history begins with %d rows of another's", n)
	}
}
