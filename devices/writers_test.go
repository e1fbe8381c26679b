package devices_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// A site that somebody posted for gets an Ironic of its own.
func TestWhatIsReadTakesOverFromWhatWasPosted(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	_, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, Conditions: whole(nil)}})
	must(t, err)
	w.wantStatus(id, "available", "customer-available")

	w.pass(time.Second)
	w.exec(`update sites set revision = revision + 1, spec = jsonb_set(spec, '{sources,recorded,ironic}', '"x"')`)
	w.exec("insert into sweeps (site_id, source, owner, epoch) values ($1, 'ironic', $2, 1)", w.site.ID, owner)
	w.project()
	w.wantCondition(id, "Enrolled", "True Posted") // nothing was read yet: what was said stands
	w.wantStatus(id, "available", "customer-available")
	_, _, err = w.svc.PostCondition(w.ctx(), devices.ConditionPost{DeviceID: id, Type: "Maintenance", Writer: "openstack", Status: fleet.False, Reason: "Posted"})
	if err == nil {
		t.Error("a type that is read from now on can still be posted")
	}
	unread := node(ready, func(i *facts.Ironic) { i.Maintenance = facts.Null })
	w.apply("ironic", joins(w.say("u1", unread), id))
	w.finish("ironic")
	w.wantCondition(id, "Enrolled", "True Enrolled")
	w.wantCondition(id, "Maintenance", "False Posted")
	maintenance, _ := w.bundle.Type("Maintenance")
	if d := w.device(id); d.Posted != 1<<maintenance.Bit || d.Unread>>maintenance.Bit&1 == 0 {
		t.Errorf("posted %x, unread %x", d.Posted, d.Unread)
	}
	for range 5 { // what is read ages with its source, whatever the post's instant was
		w.pass(time.Minute)
		w.finish("ironic")
	}
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(t, err)
	if st := all[id]; st.Reasons["Enrolled"] != "" || st.Reasons["Maintenance"] != "FieldNotServed" || !st.ObservedAt["Enrolled"].Equal(w.clock()) {
		t.Errorf("%+v", st)
	}
}

// A chassis that is read every hour is held for less than its reading is fresh.
func TestASiteIsDueWhenItsHealthIsNoLongerHeld(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) {
		s.Sources.Recorded["bmc"] = "x"
		s.Sources.BMC = &fleet.BMCSource{Interval: fleet.Duration(time.Hour)}
	})
	id := w.bear("n1", node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf("10.0.0.1") }))
	var f facts.Facts
	f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK}
	w.apply("bmc", joins(w.say("10.0.0.1", f), id))
	w.finish("bmc")
	read := w.clock()
	w.pass(10 * time.Minute) // Ironic and SLURM are stale by now: nothing else is due for hours
	if next := w.project().Next; !next.Equal(read.Add(15 * time.Minute)) {
		t.Fatalf("due at %v, want %v", next, read.Add(15*time.Minute))
	}
	w.pass(5 * time.Minute)
	w.project()
	if d := w.device(id); d.Health != facts.HealthStatusUnknown {
		t.Errorf("the chassis that was read 15 minutes ago is %s", d.Health)
	}
}
