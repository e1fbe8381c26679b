package devices_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

func (w *world) row(id int64, name string) fleet.Condition {
	w.t.Helper()
	all, err := store.ConditionsOf(w.ctx(), w.db, []int64{id})
	must(w.t, err)
	for _, c := range all {
		if c.Type == name {
			return c
		}
	}
	w.t.Fatalf("device %d has no %s", id, name)
	return fleet.Condition{}
}

// restamped makes the instants at which rows were written visible.
func (w *world) written(id int64, name string) (xmin string) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.ctx(), "select xmin::text from conditions where device_id = $1 and type = $2", id, name).Scan(&xmin))
	return xmin
}

func TestATransitionIsAChangeOfStatusAlone(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready, maintenance))
	began := w.row(id, "Maintenance").LastTransitionAt
	if !began.Equal(w.clock()) {
		t.Fatalf("the first transition is at %v, want %v", began, w.clock())
	}
	w.pass(time.Minute)
	fault := func(i *facts.Ironic) { i.Fault = facts.TextOf("power failure") }
	w.apply("ironic", w.say("n1", node(ready, maintenance, fault)))
	if c := w.row(id, "Maintenance"); c.Reason != "MaintenanceFault" || !c.LastTransitionAt.Equal(began) {
		t.Errorf("another reason: %+v, want the transition of %v", c, began)
	}
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready)))
	if c := w.row(id, "Maintenance"); c.Status != fleet.False || !c.LastTransitionAt.Equal(w.clock()) {
		t.Errorf("another status: %+v, want the transition of %v", c, w.clock())
	}
}

func TestWhatLeavesAScopeIsToldOnce(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)), id))
	w.pass(time.Minute)
	w.apply("slurm", fleet.Reading{Ref: "n1", Device: id, Gone: true, At: w.clock()})
	w.wantCondition(id, "SlurmMember", "False NodeNotListed")
	w.apply("ironic", w.say("n1", node(ready)))
	told, once := w.row(id, "SlurmMember"), w.written(id, "SlurmMember")
	if told.Reason != "NoLongerObserved" || told.Status != fleet.Unknown || w.device(id).SlurmStates != 0 {
		t.Fatalf("%+v, mirror %v", told, w.device(id).SlurmStates.Tokens())
	}
	for range 3 {
		w.pass(time.Minute)
		w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.LastError = facts.TextOf(w.clock().String()) })))
		w.finish("ironic", "slurm")
		w.project()
	}
	if w.written(id, "SlurmMember") != once {
		t.Error("it was told again")
	}
	// Out of scope is never stale.
	w.pass(time.Hour)
	w.finish("ironic")
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(t, err)
	if st := all[id]; !st.StatusFresh || st.Reasons["SlurmMember"] != "" {
		t.Errorf("%+v", st)
	}
}

func TestANodeThatIsGoneIsUnknownInEveryWay(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	id := w.bearFromFile("n1")
	w.apply("ironic", joins(w.say("u1", node(ready, cleanFailed)), id))
	w.finish("ironic", "slurm")
	w.exec("update devices set enrollment_validated_ref = 'u1', enrollment_proof_source = 'enrolled', operational_status = 'drained' where id = $1", id)
	if d := w.device(id); d.FailureReason == "" || d.InfrastructureRef != "u1" {
		t.Fatalf("%+v", d)
	}
	w.pass(time.Minute)
	w.apply("ironic", fleet.Reading{Ref: "u1", Device: id, Gone: true, At: w.clock()})
	d := w.device(id)
	if d.InfrastructureRef != "" || !d.IronicProvisionState.Null() || d.FailureReason != "" || d.Proof.ValidatedRef != "u1" {
		t.Errorf("node %q, mirror %s, failure %q, proof %q", d.InfrastructureRef, d.IronicProvisionState, d.FailureReason, d.Proof.ValidatedRef)
	}
	if d.Operational != facts.OperationalStatusDrained {
		t.Errorf("a frozen status became %s", d.Operational)
	}
	e, err := w.svc.Explain(w.ctx(), id)
	must(t, err)
	if e.Facts.Enrollment.Proof != facts.ProofStateMissing {
		t.Errorf("the proof reads %s", e.Facts.Enrollment.Proof)
	}
	for _, c := range e.Conditions {
		if typ, _ := w.bundle.Type(c.Type); typ.Writers[0] == "openstack" && (c.Row == nil || c.Row.Status != fleet.Unknown || c.Row.Reason != "NodeNotFound") {
			t.Errorf("%s is %+v", c.Type, c.Row)
		}
	}
}

func TestAFrozenDeviceThatLeavesItsLastScopeKeepsItsStatus(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.exec("update devices set operational_status = 'delegated' where id = $1", id)
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.ResourceClass = facts.TextOf("nvswitch") })))
	w.apply("ironic", fleet.Reading{Device: id, Reclassify: true, At: w.clock()})
	if d := w.device(id); d.InScope != 0 || d.Operational != facts.OperationalStatusDelegated {
		t.Errorf("scope %x, %s", d.InScope, d.Operational)
	}
	w.wantCondition(id, "Enrolled", "Unknown NoLongerObserved")
}

func TestAnUnreadTypeIsHeldForItsLimitOnly(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.pass(time.Minute)
	since := w.clock()
	w.apply("ironic", fleet.Reading{Ref: "n1", At: w.clock(), Undecodable: "a list"})
	if next := w.device(id).DueAt; !next.Equal(since.Add(24 * time.Hour)) {
		t.Errorf("due at %v, want %v", next, since.Add(24*time.Hour))
	}
	for w.clock().Before(since.Add(23 * time.Hour)) { // the source is read well all the time
		w.pass(time.Hour)
		w.apply("ironic", fleet.Reading{Ref: "n1", At: w.clock(), Undecodable: "a list"})
		w.finish("ironic", "slurm")
		w.project()
		w.wantStatus(id, "available", "customer-available")
	}
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(t, err)
	if st := all[id]; st.StatusFresh || st.Reasons["Enrolled"] != "DecodeFailed" || st.ObservedAt["Enrolled"].After(since) {
		t.Errorf("fresh %v, reason %q, observed at %v", st.StatusFresh, st.Reasons["Enrolled"], st.ObservedAt["Enrolled"])
	}
	w.pass(time.Hour)
	w.finish("ironic", "slurm")
	w.project()
	if d := w.device(id); d.Operational != facts.OperationalStatusUnknown || d.CustomerReady {
		t.Errorf("past the hold limit it is %s", d.Operational)
	}
}

func TestWhileHeldTheDecisiveConditionsAreThoseThatGaveTheStatus(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)), id))
	w.wantStatus(id, "quarantine", "validation-unschedulable")
	gave := w.device(id)
	// SLURM falls silent with the drain; a new lease says nothing of the drain.
	w.pass(10 * time.Minute)
	w.apply("slurm", w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)))
	w.finish("ironic")
	w.project()
	// What SLURM says is not known any more, and its last word, that it is well, too old.
	w.exec("update conditions set status = 'True' where device_id = $1 and type = 'SlurmSchedulable'", id)
	schedulable, _ := w.bundle.Type("SlurmSchedulable")
	w.exec("update devices set cond_true = cond_true | (1::bigint << $2) where id = $1", id, int(schedulable.Bit))
	w.exec("update facts set seen_at = seen_at - interval '1 hour' where source = 'slurm'")
	w.project()
	d := w.device(id)
	if d.Operational != facts.OperationalStatusQuarantine || d.Decisive != gave.Decisive || d.Rung != gave.Rung {
		t.Errorf("held, it is %s by %s, decisive %x, want %s and %x", d.Operational, d.Rung, d.Decisive, gave.Rung, gave.Decisive)
	}
	e, err := w.svc.Explain(w.ctx(), id)
	must(t, err)
	if !e.Standing.Held || e.Standing.StatusFresh {
		t.Errorf("%+v", e.Standing)
	}
}

func TestASinglePostDerivesOnlyWhenItSaysSomethingNew(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, Conditions: whole(nil)}})
	must(t, err)
	if results[0].Code != "" {
		t.Fatalf("%+v", results)
	}
	post := devices.ConditionPost{DeviceID: id, Type: "Maintenance", Writer: "openstack", Status: fleet.False, Reason: "Posted"}
	spoil := func() { w.exec("update devices set operational_status = 'failed' where id = $1", id) }
	spoil()
	w.pass(time.Second)
	if c, stored := w.post(post); !stored || !c.ObservedAt.Equal(w.clock()) {
		t.Fatalf("%+v %v", c, stored)
	}
	if d := w.device(id); d.Operational != facts.OperationalStatusFailed {
		t.Error("the same again derived the status")
	}
	for name, change := range map[string]func(*devices.ConditionPost){
		"another message": func(p *devices.ConditionPost) { p.Message = "all is well" },
		"another reason":  func(p *devices.ConditionPost) { p.Reason = "SaidOtherwise" },
	} {
		spoil()
		w.pass(time.Second)
		next := post
		change(&next)
		began := w.row(id, "Maintenance").LastTransitionAt
		w.post(next)
		if d := w.device(id); d.Operational != facts.OperationalStatusAvailable {
			t.Errorf("%s derived nothing: %s", name, d.Operational)
		}
		if c := w.row(id, "Maintenance"); !c.LastTransitionAt.Equal(began) {
			t.Errorf("%s is a transition", name)
		}
		w.post(post)
	}
	older := post
	older.Status, older.ObservedAt = fleet.True, w.clock().Add(-time.Hour)
	if c, stored := w.post(older); stored || c.Status != fleet.False {
		t.Errorf("an older post of an observed type: %+v", c)
	}
	w.wantStatus(id, "available", "customer-available")
	must(t, w.db.QueryRow(w.ctx(), "select count(*) from facts where source <> 'file'").Scan(new(int)))
	var read int
	must(t, w.db.QueryRow(w.ctx(), "select count(*) from facts where source <> 'file'").Scan(&read))
	if read != 0 {
		t.Error("a post pretends that a source was read")
	}
}

func TestAPostObservesADeviceOfOlderRulesFirst(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(func(i *facts.Ironic) { i.Traits = []string{"CUSTOM_OTHER"} }))
	w.exec(`update sites set spec = jsonb_set(spec, '{customer_ready_trait}', '"CUSTOM_OTHER"'), revision = revision + 1`)
	w.post(devices.ConditionPost{DeviceID: id, Type: "CustodyIntent", Writer: "custody", Status: fleet.False, Reason: "Returned"})
	w.wantStatus(id, "available", "customer-available")
	w.wantCondition(id, "CustomerReady", "True TraitPresent")
	if p := w.project(); p.Rows != (devices.Rows{}) {
		t.Errorf("the projection found %+v to do", p.Rows)
	}
}
