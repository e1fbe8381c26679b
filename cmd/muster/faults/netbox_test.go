package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	domain "github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/store"
)

// device is what these tests look at of a device.
type device struct {
	id                                                   int64
	class, inventory, status, ref, infrastructure, proof string
	rack                                                 int64
	ready, absent, retired                               bool
}

// devices reads the devices by their names.
func (r *replica) devices(t *testing.T) map[string]device {
	t.Helper()
	found := map[string]device{}
	result, err := r.db.Query(t.Context(), `select d.name, d.id, d.device_class, d.inventory_status, d.operational_status, coalesce(f.ref, ''), d.infrastructure_ref,
		d.enrollment_validated_ref, coalesce(d.rack_id, 0), d.customer_ready, d.absent_since is not null, d.retired_at is not null
		from devices d left join facts f on f.device_id = d.id and f.source = 'netbox'`)
	must(t, err)
	var d device
	var name string
	_, err = pgx.ForEachRow(result, []any{&name, &d.id, &d.class, &d.inventory, &d.status, &d.ref, &d.infrastructure, &d.proof, &d.rack, &d.ready, &d.absent, &d.retired},
		func() error { found[name] = d; return nil })
	must(t, err)
	return found
}

// prove gives every device that Ironic has a proof of its enrolment.
func (r *replica) prove(t *testing.T) {
	t.Helper()
	_, err := r.db.Exec(t.Context(), `update devices set enrollment_validated_ref = infrastructure_ref, enrollment_proof_source = 'enrolled',
		enrollment_validated_at = now() where infrastructure_ref <> ''`)
	must(t, err)
}

// settles reads the inventory and then all that follows it.
func (r *replica) settles(t *testing.T) {
	t.Helper()
	r.read(t, "netbox")
	r.read(t, others("netbox")...)
	r.read(t, "netbox")
}

// confirms lets a person confirm what the inventory says.
func (r *replica) confirms(t *testing.T, hash string) {
	t.Helper()
	must(t, r.db.Tx(t.Context(), func(tx pgx.Tx) error {
		_, err := store.Confirm(t.Context(), tx, store.Confirmation{SiteID: r.site.ID, Source: "netbox", Hash: hash, Actor: "a person"})
		return err
	}))
	r.settles(t)
}

// found counts the findings of a kind.
func (r *replica) found(t *testing.T, kind string) int {
	t.Helper()
	return r.scalar(t, "select count(*) from source_findings where source = 'netbox' and kind = $1", kind)
}

// asBefore checks that devices are what they were, but for what is given.
func asBefore(t *testing.T, before, now map[string]device, but ...string) {
	t.Helper()
	if len(before) != len(now) {
		t.Errorf("%d devices, before %d", len(now), len(before))
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] && !slices.Contains(but, name) {
			t.Errorf("%s\n  was %+v\n  is  %+v", name, before[name], now[name])
		}
	}
}

func (r *replica) renameRole(t *testing.T, from, to string) {
	t.Helper()
	r.edit(t, func(s *world.State) {
		role := s.Objects.Edit(s.ObjectBySlug(world.KindRole, from).Key())
		role.Slug = to
		s.ChangeObject(role)
	})
}

func TestARenamedRoleWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	stored, unread, before := r.rows(t), r.unread(t), r.devices(t)

	r.renameRole(t, world.ClassCompute, "gizmo")
	r.settles(t)
	r.unchanged(t, stored)
	if n := strings.Count(fmt.Sprint(r.unread(t)), "RoleUnmapped"); n != 18 {
		t.Errorf("a role that policy does not know leaves %d classes unread", n)
	}

	r.renameRole(t, "gizmo", "storage")
	r.settles(t)
	r.unchanged(t, stored)
	if n, alert := r.found(t, domain.FindingClass), r.mark(t, "netbox").Alert; n != 18 || alert == "" {
		t.Errorf("%d classes wait for a person, alert %q", n, alert)
	}
	r.shows(t, "muster_source_withheld", map[string]string{"source": "netbox"})

	r.renameRole(t, "storage", world.ClassCompute)
	r.settles(t)
	r.unchanged(t, stored)
	if lines := unread.differ(r.unread(t)); len(lines) > 0 || r.found(t, domain.FindingClass) > 0 || r.mark(t, "netbox").Alert != "" {
		t.Errorf("the role is called as before, and left are %q, %q", lines, r.findings(t, "netbox"))
	}

	r.renameRole(t, world.ClassCompute, "storage")
	r.read(t, "netbox")
	var hash string
	must(t, r.db.QueryRow(t.Context(), "select min(detail ->> 'confirm') from source_findings where kind = $1", domain.FindingClass).Scan(&hash))
	r.confirms(t, hash)
	for name, d := range r.devices(t) {
		if want := before[name]; d.retired || d.absent || d.id != want.id || (d.class == "other") != strings.Contains(name, "-c") {
			t.Errorf("confirmed, %s is %+v", name, d)
		}
	}
}

// NetBox answers 404 for what a token may not see: it is absent, and not gone.
func TestATokenThatSeesLessTakesNothingAway(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	stored, before := r.rows(t), r.devices(t)
	var few, many []int
	var hidden []string
	r.world.Read(func(s *world.State) {
		for _, d := range devicesOf(s) {
			if strings.Contains(d.Name, "-c") {
				if many = append(many, d.ID); len(few) < 4 {
					few, hidden = append(few, d.ID), append(hidden, d.Name)
				}
			}
		}
	})
	hide := func(ids []int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		clear(r.hidden)
		for _, id := range ids {
			r.hidden[id] = true
		}
	}
	hide(many) // half of the fleet
	r.settles(t)
	r.unchanged(t, stored)
	if m := r.mark(t, "netbox"); m.Alert == "" || r.found(t, domain.FindingMissing) != len(many) {
		t.Errorf("%+v, %q", m, r.findings(t, "netbox"))
	}

	hide(few)
	r.settles(t)
	now := r.devices(t)
	asBefore(t, before, now, hidden...)
	for _, name := range hidden {
		want := before[name]
		want.inventory, want.absent, want.ready = "unknown", true, false
		if now[name] != want {
			t.Errorf("%s\n  was %+v\n  is  %+v", name, before[name], now[name])
		}
	}
	if m := r.mark(t, "netbox"); m.Alert != "" {
		t.Errorf("%+v", m)
	}

	hide(nil)
	r.settles(t)
	asBefore(t, before, r.devices(t))
}

// What NetBox has at a site that is nobody's is counted, and what stood at ours
// stays in the books.
func TestASiteThatIsMappedElsewhereIsCountedAndNothingIsBornOrDeleted(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	r.prove(t)
	stored, before := r.rows(t), r.devices(t)
	rename := func(from, to string) {
		r.edit(t, func(s *world.State) {
			site := s.Objects.Edit(s.ObjectBySlug(world.KindSite, from).Key())
			site.Slug = to
			s.ChangeObject(site)
		})
	}
	rename(siteName, "ams7")
	r.settles(t)
	r.unchanged(t, stored)
	if m := r.mark(t, "netbox"); m.Alert == "" && m.FailingSince.IsZero() {
		t.Errorf("nobody is told: %+v", m)
	}
	rename("ams7", siteName)
	r.settles(t)
	asBefore(t, before, r.devices(t))

	moved := []string{"sim1-r01-c02", "sim1-r01-c03", "sim1-r01-n09"}
	move := func(to string) {
		r.edit(t, func(s *world.State) {
			site := s.ObjectBySlug(world.KindSite, to)
			if site == nil {
				site = s.AddObject(&world.Object{Kind: world.KindSite, Name: strings.ToUpper(to), Slug: to, Fields: map[string]any{"status": "active"}})
			}
			for _, d := range devicesOf(s) {
				if slices.Contains(moved, d.Name) {
					d.Fields["site"] = site.ID
					s.ChangeObject(d)
				}
			}
		})
	}
	move("nowhere")
	r.settles(t)
	now := r.devices(t)
	asBefore(t, before, now, moved...)
	for _, name := range moved {
		if d := now[name]; d.id != before[name].id || d.retired || d.inventory != "unknown" || !d.absent || d.status != before[name].status {
			t.Errorf("%s\n  was %+v\n  is  %+v", name, before[name], d)
		}
	}
	if got := r.findings(t, "netbox"); !strings.Contains(fmt.Sprint(got), "devices:3") {
		t.Errorf("three devices stand at a site that is nobody's, and the findings are %q", got)
	}
	move(siteName)
	r.settles(t)
	asBefore(t, before, r.devices(t))
}
