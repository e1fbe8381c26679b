package devices_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

func TestABirthHasOneRowOfHistoryAKind(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	rows, err := w.db.Query(w.ctx(), `select kind || ' ' || value || ' ' || (cause ->> 'type') || ' ' || (judged is not null) || ' ' || status_before || ' ' || bundle_version
		from lifecycle_events where device_id = $1 order by kind`, id)
	must(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		got = append(got, line)
	}
	must(t, rows.Err())
	version := w.bundle.Version()
	want := []string{"health unknown birth false  " + version, "inventory active birth false  " + version, "operational available birth true  " + version}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func TestServiceBeginsOnceAndNeverAgain(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(leased))
	if d := w.device(id); !d.EnteredServiceAt.IsZero() {
		t.Fatalf("in service since %v", d.EnteredServiceAt)
	}
	began := w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready)))
	for _, next := range []func(*facts.Ironic){maintenance, bound, leased, ready} {
		w.pass(time.Minute)
		w.apply("ironic", w.say("n1", node(ready, next)))
		if d := w.device(id); !d.EnteredServiceAt.Equal(began) {
			t.Errorf("%s: in service since %v, want %v", d.Operational, d.EnteredServiceAt, began)
		}
	}
	partner := w.bear("n2", node(maintenance))
	handed := w.pass(time.Minute)
	w.exec("update devices set operational_status = 'delegated' where id = $1", partner)
	w.finish("ironic", "slurm")
	w.project()
	if d := w.device(partner); !d.EnteredServiceAt.Equal(handed) || d.Operational != facts.OperationalStatusDelegated {
		t.Errorf("the partner's %s device is in service since %v, want %v", d.Operational, d.EnteredServiceAt, handed)
	}
}

func TestAFailureIsDatedAndQuotedWhileItLasts(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	failing := w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, cleanFailed)))
	want := func(reason string, at time.Time) {
		t.Helper()
		if d := w.device(id); d.FailureReason != reason || !d.FailedAt.Equal(at) {
			t.Errorf("failed at %v by %q, want %v and %q", d.FailedAt, d.FailureReason, at, reason)
		}
	}
	want("CleanFailed: no agent", failing)
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready, cleanFailed, func(i *facts.Ironic) { i.LastError = facts.TextOf("no disk") })))
	want("CleanFailed: no disk", failing)
	// A record that cannot be read forgives nothing.
	w.pass(time.Minute)
	w.apply("ironic", fleet.Reading{Ref: "n1", At: w.clock(), Undecodable: "a list"})
	want("CleanFailed: no disk", failing)
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(ready)))
	want("", time.Time{})
}

func TestASnapshotRepairsEverythingThatFollows(t *testing.T) {
	for name, spoil := range map[string]string{
		"decisive":       "decisive = 0",
		"failed_at":      "failed_at = null",
		"failure_reason": "failure_reason = 'x'",
		"status":         "operational_status = 'validation'",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withoutIronic)
			id := w.bearFromFile("n1")
			snap := func(change map[string]fleet.Tri) devices.SnapshotResult {
				t.Helper()
				w.pass(time.Second)
				results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, Conditions: whole(change)}})
				must(t, err)
				return results[0]
			}
			snap(nil)
			failed := map[string]fleet.Tri{"ProvisionFailed": fleet.True}
			snap(failed)
			want := w.device(id)
			w.exec("update devices set "+spoil+" where id = $1", id)
			if r := snap(failed); !r.Repaired || len(r.Written) != 0 {
				t.Fatalf("%+v", r)
			}
			got := w.device(id)
			if got.Operational != want.Operational || got.Decisive != want.Decisive || got.FailureReason != want.FailureReason || got.FailedAt.IsZero() {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			if r := snap(failed); r.Repaired {
				t.Fatalf("again: %+v", r)
			}
		})
	}
}

func TestCustomerReadyNeverComesOfSilence(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	ids := map[string]int64{}
	for name, n := range map[string]facts.Facts{"available": node(ready), "leased": node(leased), "held": node(ready, maintenance)} {
		n.Ironic.BMCAddress = facts.TextOf("192.0.2." + string(rune('1'+len(ids))))
		ids[name] = w.bear(name, n)
	}
	for _, health := range []facts.RedfishHealth{facts.RedfishHealthWarning, facts.RedfishHealthOK} {
		w.pass(time.Second)
		for _, id := range ids {
			var f facts.Facts
			f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: health}
			w.apply("bmc", joins(w.say(w.device(id).BMCAddress, f), id))
		}
		w.finish("bmc")
	}
	was := map[int64]bool{}
	for _, id := range ids {
		was[id] = w.device(id).CustomerReady
	}
	if !was[ids["available"]] || was[ids["leased"]] {
		t.Fatalf("%v", was)
	}
	for range 60 { // everything is silent from here on
		w.pass(30 * time.Minute)
		w.project()
		for name, id := range ids {
			d := w.device(id)
			if d.CustomerReady && !was[id] {
				t.Fatalf("%s became customer-ready by silence: %s, %s, %s", name, d.Operational, d.Health, d.Inventory)
			}
			was[id] = d.CustomerReady
		}
	}
	if d := w.device(ids["available"]); d.CustomerReady || d.Operational != facts.OperationalStatusUnknown {
		t.Errorf("after thirty silent hours the device is %s", d.Operational)
	}
}
