package devices_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

func TestReadingsBecomeAStatus(t *testing.T) {
	for name, c := range map[string]struct {
		node   facts.Facts
		status string
		rung   string
	}{
		"a fresh node":            {node(func(i *facts.Ironic) { i.ProvisionState = facts.ProvisionStateEnroll }), "quarantine", "not-enrolled"},
		"a customer's free node":  {node(ready), "available", "customer-available"},
		"a customer's instance":   {node(ready, bound), "in_use", "customer-in-use"},
		"between two customers":   {node(ready, func(i *facts.Ironic) { i.ProvisionState = facts.ProvisionStateCleaning }), "in_use", "customer-occupied"},
		"a failed clean":          {node(ready, maintenance, cleanFailed), "failed", "provision-failed"},
		"in maintenance":          {node(ready, maintenance), "quarantine", "maintenance"},
		"nobody's":                {node(), "quarantine", "otherwise"},
		"a state nobody modelled": {node(ready, func(i *facts.Ironic) { i.ProvisionState, i.Unmodelled = 0, true }), "unknown", "no-infrastructure"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.bear("n1", c.node)
			w.wantStatus(id, c.status, c.rung)
			var judged int
			must(t, w.db.QueryRow(w.ctx(), "select count(judged) from lifecycle_events where device_id = $1", id).Scan(&judged))
			if judged != 1 {
				t.Fatalf("%d rows of history have masks, want the operational one alone", judged)
			}
			if got := w.history(id, fleet.KindOperational); !slices.Equal(got, []string{c.status}) {
				t.Fatalf("history is %v, want one birth", got)
			}
			if p := w.project(); p.Changed != 0 {
				t.Fatalf("the projection wrote %+v after the birth", p.Rows)
			}
		})
	}
}

func TestALeaseToSlurmBringsTheDeviceIntoSlurmsScopeAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.wantStatus(id, "available", "customer-available")

	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(leased)))
	// SLURM has not spoken of it: a gain is not given on trust, and the lease ends the availability.
	w.wantStatus(id, "quarantine", "otherwise")
	slurmMember, _ := w.bundle.Type("SlurmMember")
	if d := w.device(id); d.InScope>>slurmMember.Bit&1 == 0 {
		t.Fatal("SLURM does not speak of the device after the lease")
	}
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle)), id))
	w.wantStatus(id, "validation", "validation")
	w.wantCondition(id, "SlurmSchedulable", "True Schedulable")

	w.pass(time.Second)
	w.apply("slurm", w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)))
	w.wantStatus(id, "quarantine", "validation-unschedulable")
	if d := w.device(id); !d.SlurmStates.Has(facts.SlurmDrain) {
		t.Fatalf("the mirror says %v", d.SlurmStates.Tokens())
	}
	w.pass(time.Second)
	w.apply("slurm", fleet.Reading{Ref: "n1", At: w.clock(), Device: id, Gone: true})
	w.wantStatus(id, "quarantine", "validation-not-in-slurm")
	w.wantCondition(id, "SlurmMember", "False NodeNotListed")

	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(ready)))
	w.wantStatus(id, "available", "customer-available")
	w.wantCondition(id, "SlurmMember", "Unknown NoLongerObserved")
	if d := w.device(id); d.SlurmStates != 0 || d.InScope>>slurmMember.Bit&1 == 1 {
		t.Fatalf("out of SLURM's scope the device has the mirror %v", d.SlurmStates.Tokens())
	}
}

func TestOlderReadingsAreIgnoredWhole(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	old := w.clock()
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, maintenance)))
	before := w.device(id)

	late := w.say("n1", node(leased))
	late.At = old.Add(30 * time.Second) // after the watermark, before what is stored
	if a := w.apply("ironic", late); a.Ignored != 1 || a.Rows != (devices.Rows{}) {
		t.Fatalf("a late reading: %+v", a)
	}
	gone := fleet.Reading{Ref: "n1", Device: id, Gone: true, At: old.Add(time.Second)}
	if a := w.apply("ironic", gone); a.Ignored != 1 {
		t.Fatalf("a late absence: %+v", a)
	}
	w.finish("ironic")
	late.At = w.clock().Add(-time.Second) // before the watermark
	if a := w.apply("ironic", late); a.Ignored != 1 {
		t.Fatalf("a reading from before the watermark: %+v", a)
	}
	after := w.device(id)
	if before.IronicProvisionState != after.IronicProvisionState || before.Operational != after.Operational || !before.UpdatedAt.Equal(after.UpdatedAt) {
		t.Fatal("a late reading changed the device")
	}
}

func TestTwoWritersInEitherOrderGiveTheSame(t *testing.T) {
	for _, first := range []string{"ironic", "slurm"} {
		t.Run(first+" first", func(t *testing.T) {
			w := newWorld(t)
			id := w.bear("n1", node(ready))
			w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle)), id))
			w.pass(time.Second)
			readings := map[string]fleet.Reading{"ironic": w.say("n1", node(leased)), "slurm": w.say("n1", slurm(facts.SlurmMixed|facts.SlurmDrain))}
			w.apply(first, readings[first])
			for source, r := range readings {
				if source != first {
					w.apply(source, r)
				}
			}
			w.wantStatus(id, "quarantine", "validation-unschedulable")
			w.wantCondition(id, "SlurmSchedulable", "False Drain")
			w.wantCondition(id, "ValidationAllocated", "True SlurmLease")
		})
	}
}

func TestTheSameAgainWritesNothing(t *testing.T) {
	w := newWorld(t)
	ids := []int64{w.bear("n1", node(ready)), w.bear("n2", node(leased))}
	w.apply("slurm", joins(w.say("n2", slurm(facts.SlurmIdle)), ids[1]))
	snapshot := w.rowVersions()
	w.pass(30 * time.Second)
	for _, source := range []string{"ironic", "slurm"} {
		readings := []fleet.Reading{w.say("n2", slurm(facts.SlurmIdle))}
		if source == "ironic" {
			readings = []fleet.Reading{w.say("n1", node(ready)), w.say("n2", node(leased))}
		}
		a := w.apply(source, readings...)
		if a.Unchanged != len(readings) || a.Rows != (devices.Rows{}) {
			t.Fatalf("%s again: %+v", source, a)
		}
	}
	w.finish("ironic", "slurm")
	if p := w.project(); p.Checked != 2 || p.Rows != (devices.Rows{}) {
		t.Fatalf("projection: %+v", p)
	}
	if now := w.rowVersions(); now != snapshot {
		t.Fatalf("rows were written: %s, before %s", now, snapshot)
	}
}

// rowVersions sums up which transactions wrote the rows of devices, facts and
// conditions.
func (w *world) rowVersions() string {
	w.t.Helper()
	var sum string
	must(w.t, w.db.QueryRow(w.ctx(), `select md5(string_agg(x, ',' order by x)) from (
		select 'd' || id || xmin::text || ctid::text from devices
		union all select 'f' || device_id || source || xmin::text || ctid::text from facts
		union all select 'w' || device_id || writer || xmin::text || ctid::text from device_writers
		union all select 'c' || device_id || type || xmin::text || ctid::text from conditions) t(x)`).Scan(&sum))
	return sum
}

func TestAbsenceIsAValueAndAReturnEndsIt(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready, cleanFailed))
	if d := w.device(id); d.FailureReason != "CleanFailed: no agent" || d.FailedAt.IsZero() || d.InfrastructureRef != "n1" {
		t.Fatalf("failure is %q at %v of node %q", d.FailureReason, d.FailedAt, d.InfrastructureRef)
	}
	w.pass(time.Minute)
	w.apply("ironic", fleet.Reading{Ref: "n1", Device: id, Gone: true, At: w.clock()})
	w.wantStatus(id, "unknown", "no-infrastructure")
	w.wantCondition(id, "Enrolled", "Unknown NodeNotFound")
	d := w.device(id)
	if d.InfrastructureRef != "" || !d.IronicProvisionState.Null() || d.FailureReason != "" || !d.FailedAt.IsZero() {
		t.Fatalf("a lost node left %q, %s, %q", d.InfrastructureRef, d.IronicProvisionState, d.FailureReason)
	}
	if d.Inventory != facts.InventoryStatusUnknown || d.AbsentSince.IsZero() || d.CustomerReady {
		t.Fatalf("the absent device is %s since %v", d.Inventory, d.AbsentSince)
	}
	// The same ref finds the same device again.
	w.pass(time.Minute)
	if a := w.apply("ironic", w.say("n1", node(ready))); a.Changed != 1 {
		t.Fatalf("the return: %+v", a)
	}
	w.wantStatus(id, "available", "customer-available")
	if d := w.device(id); d.Inventory != facts.InventoryStatusActive || !d.AbsentSince.IsZero() || d.InfrastructureRef != "n1" {
		t.Fatalf("the returned device is %s, absent since %v, node %q", d.Inventory, d.AbsentSince, d.InfrastructureRef)
	}
}

func TestADeviceThatStaysAwayIsRetired(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.apply("ironic", fleet.Reading{Ref: "n1", Device: id, Gone: true, At: w.clock()})
	w.pass(23 * time.Hour)
	w.finish("ironic", "slurm")
	w.project()
	if d := w.device(id); !d.RetiredAt.IsZero() {
		t.Fatal("it was retired before its grace was over")
	}
	w.pass(time.Hour)
	w.finish("ironic", "slurm")
	w.project()
	d := w.device(id)
	if d.RetiredAt.IsZero() || d.InScope != 0 || d.Operational != facts.OperationalStatusUnknown {
		t.Fatalf("retired at %v, scope %x, %s", d.RetiredAt, d.InScope, d.Operational)
	}
	w.wantCondition(id, "Enrolled", "Unknown NoLongerObserved")
	w.pass(time.Hour)
	w.apply("ironic", w.say("n1", node(ready)))
	w.wantStatus(id, "available", "customer-available")
	if d := w.device(id); !d.RetiredAt.IsZero() {
		t.Fatal("a record that came back does not end the retirement")
	}
}

func TestMissingAndUndecodableKeepValues(t *testing.T) {
	for name, c := range map[string]struct {
		reading fleet.Reading
		reason  string
	}{
		"missing":     {fleet.Reading{Ref: "n1", Missing: true}, "MissingUnconfirmed"},
		"undecodable": {fleet.Reading{Ref: "n1", Undecodable: "provision_state: a list"}, "DecodeFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.bear("n1", node(ready))
			w.pass(time.Minute)
			c.reading.At = w.clock()
			if c.reading.Missing {
				c.reading.Device = id
			}
			w.apply("ironic", c.reading)
			w.wantStatus(id, "available", "customer-available")
			w.wantCondition(id, "Enrolled", "True Enrolled")
			if d := w.device(id); d.Unread == 0 || d.IronicProvisionState != facts.ProvisionStateAvailable {
				t.Fatalf("unread %x, mirror %s", d.Unread, d.IronicProvisionState)
			}
			var reason string
			must(t, w.db.QueryRow(w.ctx(), "select unread -> 'Enrolled' ->> 'reason' from device_writers where device_id = $1 and writer = 'openstack'", id).Scan(&reason))
			if reason != c.reason {
				t.Fatalf("unread because of %s, want %s", reason, c.reason)
			}
			// The next good reading ends it, though it says what the last good one said.
			w.pass(time.Minute)
			w.apply("ironic", w.say("n1", node(ready)))
			if d := w.device(id); d.Unread != 0 {
				t.Fatalf("unread %x after a good reading", d.Unread)
			}
		})
	}
}

func TestAFieldThatIsNotServedKeepsItsValue(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready, maintenance))
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) {
		i.Maintenance = facts.Null
		i.Unreadable = map[string]string{"maintenance": "a list"}
		i.Lessee = facts.Text{}
	})))
	w.wantCondition(id, "Maintenance", "True MaintenanceSet")
	w.wantStatus(id, "quarantine", "maintenance")
	var maintenance, pool string
	must(t, w.db.QueryRow(w.ctx(), `select unread -> 'Maintenance' ->> 'reason', unread -> 'MaintenancePool' ->> 'reason'
		from device_writers where device_id = $1 and writer = 'openstack'`, id).Scan(&maintenance, &pool))
	if maintenance != "DecodeFailed" || pool != "FieldNotServed" {
		t.Fatalf("unread because of %q and %q", maintenance, pool)
	}
}

func TestUnknownRefsAreGivenBack(t *testing.T) {
	w := newWorld(t)
	w.bear("n1", node())
	w.pass(time.Second)
	a := w.apply("ironic", w.say("a", node()), w.say("n1", node(ready)), w.say("b", node()))
	if !slices.Equal(a.Unknown, []int{0, 2}) || a.Changed != 1 {
		t.Fatalf("%+v", a)
	}
}

func TestOneBadRecordCostsOneRecord(t *testing.T) {
	w := newWorld(t)
	first, second := w.bear("n1", node()), w.bear("n2", node())
	// What the database itself refuses cannot be written by our own hands; a rule of it can.
	w.exec("alter table facts add constraint poisoned check (body ->> 'last_error' <> 'poison')")
	w.pass(time.Second)
	a := w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.LastError = facts.TextOf("poison") })), w.say("n2", node(ready)))
	if len(a.Refused) != 1 || a.Refused[0].Index != 0 || a.Refused[0].Code != devices.CodeDataRefused || a.Changed != 1 {
		t.Fatalf("%+v", a)
	}
	w.wantStatus(first, "quarantine", "otherwise")
	w.wantStatus(second, "available", "customer-available")
}

func TestNULInATextIsNoObstacle(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready, cleanFailed, func(i *facts.Ironic) {
		i.LastError = facts.TextOf("bad\x00 \\u0000 text\xff")
		i.Properties = map[string]any{"vendor\x00": []any{"A\x00"}}
	}))
	w.wantStatus(id, "failed", "provision-failed")
}

func TestANewSerialUnderAKnownRefClearsTheProof(t *testing.T) {
	w := newWorld(t)
	r := w.say("n1", node(ready))
	r.Serial = "SN1"
	id := w.apply("ironic", born(r)).Born[0]
	w.exec("update devices set enrollment_validated_ref = 'n1', enrollment_proof_source = 'enrolled', enrollment_validated_at = now() where id = $1", id)
	w.pass(time.Second)
	r.At, r.Serial = w.clock(), "SN2"
	a := w.apply("ironic", r)
	if d := w.device(id); !slices.Equal(a.Swapped, []devices.Swap{{Device: id, Name: d.Name, Was: "SN1", Is: "SN2"}}) || d.Proof.ValidatedRef != "" || d.Serial != "SN2" {
		t.Fatalf("swapped %v, proof %q, serial %q", a.Swapped, d.Proof.ValidatedRef, d.Serial)
	}
}

func TestABirthIsRefusedWhereTheMachineIsKnown(t *testing.T) {
	w := newWorld(t)
	r := w.say("u1", node())
	r.Name, r.Serial = "Node1", "SN1"
	r.Facts.Ironic.Name = facts.TextOf("Node1")
	w.apply("ironic", born(r))
	for name, change := range map[string]func(*fleet.Reading){
		"its ref":    func(r *fleet.Reading) { r.Ref = "u1"; r.Name = "x"; r.Serial = "" },
		"its name":   func(r *fleet.Reading) { r.Ref = "u2"; r.Name = "node1"; r.Serial = "" },
		"its serial": func(r *fleet.Reading) { r.Ref = "u3"; r.Name = "y"; r.Serial = "sn1" },
	} {
		again := r
		change(&again)
		a := w.apply("ironic", born(again))
		if len(a.Born) != 0 || len(a.Refused) != 1 || a.Refused[0].Code != devices.CodeJoinAmbiguous {
			t.Errorf("%s: %+v", name, a)
		}
	}
	twins := []fleet.Reading{born(w.say("t1", node())), born(w.say("t1", node()))}
	twins[1].Ref = "t2"
	if a := w.apply("ironic", twins...); len(a.Born) != 1 || len(a.Refused) != 1 {
		t.Errorf("two births of one name: %+v", a)
	}
}
