package devices_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Nobody who judges by one bundle is overtaken by the next: an activation waits
// for those who are at it, and who comes later judges by the new one.
func TestAnActivationWaitsForThoseWhoJudge(t *testing.T) {
	w := newWorld(t)
	next, err := edition()
	must(t, err)
	id := w.bear("n1", node(ready))
	w.pass(time.Second)
	blocked := func(n int) func() bool {
		return func() bool {
			var waiting int
			must(t, w.db.QueryRow(w.ctx(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
			return waiting == n
		}
	}
	applied, activated := make(chan error, 1), make(chan error, 1)
	must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
		if _, err := store.LockDevices(w.ctx(), tx, []int64{id}); err != nil {
			return err
		}
		go func() {
			_, err := w.svc.Apply(w.ctx(), w.batch("ironic", w.say("n1", node(ready, maintenance))))
			applied <- err
		}()
		wait(t, "the reading to wait for the device", blocked(1))
		go func() {
			activated <- w.db.Tx(w.ctx(), func(tx pgx.Tx) error { return activate(w.ctx(), tx, next) })
		}()
		wait(t, "the activation to wait for the reading", blocked(2))
		active, err := store.Active(w.ctx(), w.db)
		if err != nil || active.Version != w.bundle.Version() {
			t.Errorf("active is %s, %v", active.Version, err)
		}
		return nil
	}))
	must(t, <-applied)
	must(t, <-activated)
	w.wantStatus(id, "quarantine", "maintenance")
	var version string
	must(t, w.db.QueryRow(w.ctx(), "select bundle_version from lifecycle_events where device_id = $1 order by id desc limit 1", id).Scan(&version))
	if version != w.bundle.Version() {
		t.Errorf("judged by %s", version)
	}
}

func TestAProofEndsWithTheClassThatItIsFor(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	w.exec("update devices set enrollment_validated_ref = 'n1', enrollment_proof_source = 'enrolled', enrollment_validated_at = now() where id = $1", id)
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(ready, maintenance)))
	if d := w.device(id); d.Proof.ValidatedRef != "n1" {
		t.Fatalf("a change of nothing clears it: %+v", d.Proof)
	}
	w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.ResourceClass = facts.TextOf("nvswitch") })))
	if d := w.device(id); d.Proof.ValidatedRef != "n1" {
		t.Fatalf("a class that waits clears it: %+v", d.Proof)
	}
	w.apply("ironic", fleet.Reading{Device: id, Reclassify: true, At: w.clock()})
	if d := w.device(id); d.Proof.ValidatedRef != "" || d.Proof.Source != "none" || !d.Proof.ValidatedAt.IsZero() {
		t.Errorf("%s has the proof %+v", d.Class, d.Proof)
	}
}

func TestMirrorsKeepWhatWasReadLast(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle|facts.SlurmDrain)), id))
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(leased, func(i *facts.Ironic) { i.ProvisionState, i.Unmodelled = 0, true })))
	w.apply("slurm", w.say("n1", slurm(0)))
	d := w.device(id)
	if d.IronicProvisionState != facts.ProvisionStateActive || d.SlurmStates != facts.SlurmIdle|facts.SlurmDrain || d.Unread == 0 {
		t.Errorf("mirrors %s and %v, unread %x", d.IronicProvisionState, d.SlurmStates.Tokens(), d.Unread)
	}
	w.wantStatus(id, "quarantine", "validation-unschedulable")
}

func TestAnOlderNotReadDoubtsNothing(t *testing.T) {
	w := newWorld(t, withoutIronic)
	id := w.bearFromFile("n1")
	snap := func(at time.Time, change map[string]fleet.Tri) devices.SnapshotResult {
		t.Helper()
		results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, ObservedAt: at, Conditions: whole(change)}})
		must(t, err)
		return results[0]
	}
	newest := w.pass(time.Minute)
	snap(newest, nil)
	if r := snap(newest.Add(-time.Second), map[string]fleet.Tri{"Enrolled": devices.NotRead}); r.Code != "" || len(r.Ignored) != 7 {
		t.Errorf("an older snapshot: %+v", r)
	}
	if d := w.device(id); d.Unread != 0 || d.Operational != facts.OperationalStatusAvailable {
		t.Errorf("unread %x, %s", d.Unread, d.Operational)
	}
}
