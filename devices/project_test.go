package devices_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

func TestAProjectionRepairsWhatDoesNotFollow(t *testing.T) {
	for name, spoil := range map[string]string{
		"status":         "operational_status = 'quarantine'",
		"rung":           "rung = 'x'",
		"decisive":       "decisive = 0",
		"customer_ready": "customer_ready = true",
		"health":         "health_status = 'healthy'",
		"service":        "entered_service_at = null",
		"failure":        "failed_at = now()",
		"an old status":  "operational_status = 'retired_status_of_old'",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.bear("n1", node(ready))
			want := w.device(id)
			w.exec("update devices set "+spoil+" where id = $1", id)
			if p := w.project(); p.Changed != 1 {
				t.Fatalf("%+v", p)
			}
			got := w.device(id)
			if got.Operational != want.Operational || got.Rung != want.Rung || got.Decisive != want.Decisive || got.CustomerReady != want.CustomerReady ||
				got.Health != want.Health || got.FailedAt != want.FailedAt || got.EnteredServiceAt.IsZero() {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			if p := w.project(); p.Rows != (devices.Rows{}) {
				t.Fatalf("the second projection wrote %+v", p.Rows)
			}
		})
	}
}

func TestSilenceHoldsAndPastTheLimitIsUnknown(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	next := w.project().Next
	if want := w.clock().Add(90 * time.Second); !next.Equal(want) {
		t.Fatalf("the next projection is due at %v, want %v when ironic turns stale", next, want)
	}
	must(t, w.svc.FailSweep(w.ctx(), w.site.ID, "ironic", owner, w.epoch, "Stale"))
	for _, c := range []struct {
		after  time.Duration
		status string
		rung   string
	}{{2 * time.Minute, "available", "customer-available"}, {23 * time.Hour, "available", "customer-available"}, {time.Hour, "unknown", "customer-available"}} {
		w.pass(c.after)
		w.project()
		w.wantStatus(id, c.status, c.rung)
	}
	if d := w.device(id); d.CustomerReady {
		t.Fatal("an unknown device is customer-ready")
	}
	// The source answers again: every value is young, and the same.
	w.apply("ironic", w.say("n1", node(ready)))
	w.finish("ironic", "slurm")
	w.project()
	w.wantStatus(id, "available", "customer-available")
}

func TestNothingStalePromotesAndNothingFreshIsHidden(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)), id))
	w.wantStatus(id, "quarantine", "validation-unschedulable")

	w.pass(10 * time.Minute) // slurmrestd is dead, Ironic goes on
	must(t, w.svc.FailSweep(w.ctx(), w.site.ID, "slurm", owner, w.epoch, "SchedulerUnreachable"))
	w.finish("ironic")
	w.project()
	w.wantStatus(id, "quarantine", "validation-unschedulable")
	w.apply("ironic", w.say("n1", node(leased, maintenance)))
	w.wantStatus(id, "quarantine", "maintenance")
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(leased)))
	if d := w.device(id); d.Operational != facts.OperationalStatusQuarantine {
		t.Fatalf("a stale drain was forgotten: %s", d.Operational)
	}
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(ready)))
	w.wantStatus(id, "available", "customer-available")
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(leased)))
	if d := w.device(id); d.Operational == facts.OperationalStatusAvailable || d.Operational == facts.OperationalStatusValidation {
		t.Fatalf("leased to SLURM, which is dead, it is %s", d.Operational)
	}
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(t, err)
	if st := all[id]; st.Reasons["SlurmSchedulable"] != "SchedulerUnreachable" || st.Reasons["Enrolled"] != "" {
		t.Fatalf("%+v", st)
	}
}

func TestADeviceReadOnItsOwnIsFreshInAnOutage(t *testing.T) {
	w := newWorld(t)
	one, other := w.bear("n1", node(ready)), w.bear("n2", node(ready))
	w.pass(10 * time.Minute)
	alone := w.batch("ironic", w.say("n1", node(ready)))
	alone.Epoch = 0
	if _, err := w.svc.Apply(w.ctx(), alone); err != nil {
		t.Fatal(err)
	}
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(one), w.device(other)})
	must(t, err)
	if !all[one].StatusFresh || all[other].StatusFresh {
		t.Fatalf("fresh: %v and %v", all[one].StatusFresh, all[other].StatusFresh)
	}
	if got := all[one].ObservedAt["Enrolled"]; !got.Equal(w.clock()) {
		t.Fatalf("observed at %v", got)
	}
}

func TestAFrozenStatusStaysAndItsConditionsDoNot(t *testing.T) {
	for name, freeze := range map[string]string{
		"in a partner's custody":      "operational_status = 'delegated'",
		"under an impairment hold":    `annotations = '{"impairment-event-id": "e1"}'`,
		"in custody, seen by a sweep": "operational_status = 'drained'",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.bear("n1", node(ready))
			w.exec("update devices set "+freeze+" where id = $1", id)
			before := w.device(id)
			w.pass(time.Minute)
			w.apply("ironic", w.say("n1", node(ready, maintenance)))
			w.wantCondition(id, "Maintenance", "True MaintenanceSet")
			after := w.device(id)
			maintenance, _ := w.bundle.Type("Maintenance")
			if after.Operational != before.Operational || after.Rung != before.Rung || after.Decisive>>maintenance.Bit&1 == 0 {
				t.Fatalf("%s by %s, decisive %x", after.Operational, after.Rung, after.Decisive)
			}
			if p := w.project(); p.Changed != 0 {
				t.Fatalf("the projection wrote %+v", p.Rows)
			}
			w.exec("update devices set operational_status = 'unknown', annotations = '{}' where id = $1", id)
			w.project()
			w.wantStatus(id, "quarantine", "maintenance")
		})
	}
}

func TestASiteWideChangeObservesAgainWhatIsStored(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(func(i *facts.Ironic) { i.Traits = []string{"CUSTOM_OTHER"} }))
	w.wantStatus(id, "quarantine", "otherwise")
	w.pass(time.Minute)
	w.exec(`update sites set spec = jsonb_set(spec, '{customer_ready_trait}', '"CUSTOM_OTHER"'), revision = revision + 1`)
	if p := w.project(); p.Changed != 1 || p.Rows.Facts != 0 {
		t.Fatalf("%+v", p)
	}
	w.wantStatus(id, "available", "customer-available")
	w.wantCondition(id, "CustomerReady", "True TraitPresent")
	if p := w.project(); p.Rows != (devices.Rows{}) {
		t.Fatalf("again: %+v", p)
	}
	var cause string
	must(t, w.db.QueryRow(w.ctx(), "select cause ->> 'type' from lifecycle_events where device_id = $1 order by id desc limit 1", id).Scan(&cause))
	if cause != "projection" {
		t.Fatalf("the cause is %s", cause)
	}
}

func TestAnUnchangedRecordIsObservedByNewRules(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(func(i *facts.Ironic) { i.Traits = []string{"CUSTOM_OTHER"} }))
	w.pass(time.Minute)
	w.exec(`update sites set spec = jsonb_set(spec, '{customer_ready_trait}', '"CUSTOM_OTHER"'), revision = revision + 1`)
	w.apply("ironic", w.say("n1", node(func(i *facts.Ironic) { i.Traits = []string{"CUSTOM_OTHER"} })))
	w.wantStatus(id, "available", "customer-available")
}

func TestABodyOfAnotherBuildReadsAsUnread(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.exec(`update facts set body = jsonb_set(body, '{provision_state}', '"state of tomorrow"') where device_id = $1`, id)
	w.exec("update devices set observation_version = 'old', ironic_provision_state = 'state of yesterday' where id = $1", id)
	w.project()
	w.wantStatus(id, "available", "customer-available")
	if d := w.device(id); d.Unread == 0 {
		t.Fatal("a state that this build does not know is not unread")
	}
}

func TestAFactOfTimeIsLookedAtWhenItIsDue(t *testing.T) {
	w := newWorld(t)
	since := w.clock()
	id := w.bear("n1", node(ready, func(i *facts.Ironic) {
		i.ProvisionState, i.ProvisionUpdatedAt = facts.ProvisionStateAdopting, since
	}))
	due := w.device(id).DueAt
	if want := since.Add(15 * time.Minute); !due.Equal(want) {
		t.Fatalf("due at %v, want %v when adopting is overdue", due, want)
	}
	w.now.Store(due.UnixNano())
	w.finish("ironic", "slurm")
	w.project()
	if d := w.device(id); !d.DueAt.IsZero() {
		t.Fatalf("due again at %v", d.DueAt)
	}
}

func TestAFailedSweepChangesNoDevice(t *testing.T) {
	w := newWorld(t)
	w.bear("n1", node(ready))
	before := w.rowVersions()
	first := w.pass(time.Minute)
	must(t, w.svc.FailSweep(w.ctx(), w.site.ID, "ironic", owner, w.epoch, "Stale"))
	w.pass(time.Minute)
	must(t, w.svc.FailSweep(w.ctx(), w.site.ID, "ironic", owner, w.epoch, "Stale"))
	marks, err := store.Watermarks(w.ctx(), w.db, w.site.ID)
	must(t, err)
	if !marks["ironic"].FailingSince.Equal(first) {
		t.Fatalf("failing since %v, want %v", marks["ironic"].FailingSince, first)
	}
	if w.rowVersions() != before {
		t.Fatal("a device was written")
	}
	at := w.clock()
	must(t, w.svc.FinishSweep(w.ctx(), devices.Finish{SiteID: w.site.ID, Source: "ironic", Owner: owner, Epoch: w.epoch, At: at, Alert: "half are missing", Withhold: true}))
	marks, err = store.Watermarks(w.ctx(), w.db, w.site.ID)
	must(t, err)
	if m := marks["ironic"]; m.At.Equal(at) || m.Alert == "" || !m.FailingSince.IsZero() {
		t.Fatalf("withheld: %+v", m)
	}
}

func TestAWatermarkNeverMovesBack(t *testing.T) {
	w := newWorld(t)
	at := w.clock()
	w.finish("ironic")
	w.pass(-time.Hour)
	w.finish("ironic")
	marks, err := store.Watermarks(w.ctx(), w.db, w.site.ID)
	must(t, err)
	if !marks["ironic"].At.Equal(at) {
		t.Fatalf("it is at %v", marks["ironic"].At)
	}
}

func TestInventoryOnlyDevicesAreNeverDerived(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.InventoryOnly = true })
	id := w.bear("n1", node(ready))
	d := w.device(id)
	if d.Operational != facts.OperationalStatusUnknown || d.Health != facts.HealthStatusUnknown || d.InScope != 0 || d.CustomerReady || !d.InventoryOnly {
		t.Fatalf("%+v", d)
	}
	if got := w.history(id, fleet.KindOperational); !slices.Equal(got, []string{"unknown"}) {
		t.Fatalf("history %v", got)
	}
}

func TestADeviceThatLeavesItsLastScopeIsDerivedOnceMore(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.ResourceClass = facts.TextOf("nvswitch") })))
	w.wantStatus(id, "available", "customer-available") // the end of the sweep decides whether so many may leave
	w.apply("ironic", fleet.Reading{Device: id, Reclassify: true, At: w.clock()})
	w.wantStatus(id, "unknown", "no-infrastructure")
	w.wantCondition(id, "Enrolled", "Unknown NoLongerObserved")
	// From then on the status stays as it is written.
	w.exec("update devices set operational_status = 'quarantine' where id = $1", id)
	w.finish("ironic", "slurm")
	if p := w.project(); p.Changed != 0 {
		t.Fatalf("%+v", p)
	}
}
