package devices_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// Of many devices that are alike, the one that is not as it should be is found
// and repaired, and no other is written.
func TestOneOfManyIsRepairedAlone(t *testing.T) {
	for name, spoil := range map[string]string{
		"its status":            "operational_status = 'quarantine'",
		"its rung":              "rung = 'x'",
		"its decisive mask":     "decisive = decisive # 1",
		"its readiness":         "customer_ready = true",
		"its health":            "health_status = 'healthy'",
		"its service":           "entered_service_at = null",
		"its failure":           "failed_at = now()",
		"the rules it is under": "observation_version = 'old'",
		"its due instant":       "due_at = '2026-01-01'",
		"a condition of it":     "cond_true = cond_true # (select 1::bigint << bit from condition_types where type = 'ProvisionAvailable')",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			births := make([]fleet.Reading, 0, 20)
			for i := range 20 {
				births = append(births, born(w.say(string(rune('a'+i)), node(ready))))
			}
			ids := w.apply("ironic", births...).Born
			w.finish("ironic", "slurm")
			want := w.device(ids[7])
			w.exec("update devices set "+spoil+" where id = $1", ids[7])
			p := w.project()
			if p.Checked != 20 || p.Changed != 1 {
				t.Fatalf("%+v", p)
			}
			got := w.device(ids[7])
			if got.Operational != want.Operational || got.Rung != want.Rung || got.Decisive != want.Decisive || got.CustomerReady != want.CustomerReady ||
				got.Health != want.Health || !got.FailedAt.IsZero() || got.EnteredServiceAt.IsZero() || got.ObservationVersion != want.ObservationVersion ||
				!got.DueAt.Equal(want.DueAt) || got.Conditions != want.Conditions {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			if again := w.project(); again.Rows.Devices != 0 {
				t.Fatalf("again: %+v", again)
			}
		})
	}
}

// Devices that agree in everything the groups tell apart agree in what follows:
// an impairment, triage and the inventory's word each make another group.
func TestWhatTellsDevicesApartIsSeen(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	var ids []int64
	for _, name := range []string{"plain", "impaired", "delegated", "staged"} {
		id := w.apply("ironic", born(w.say(name, node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf(name) })))).Born[0]
		var f facts.Facts
		f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK}
		w.apply("bmc", joins(w.say(name, f), id))
		ids = append(ids, id)
	}
	w.finish("ironic", "slurm", "bmc")
	w.exec(`update devices set annotations = '{"impairment-event-id": "e"}', operational_status = 'quarantine', customer_ready = false where id = $1`, ids[1])
	w.exec("update devices set operational_status = 'delegated' where id = $1", ids[2])
	w.exec("update devices set inventory_status = 'staged', customer_ready = false where id = $1", ids[3])
	w.pass(time.Second)
	if p := w.project(); p.Changed != 0 {
		t.Fatalf("%+v", p)
	}
	for i, want := range []struct {
		status string
		ready  bool
	}{{"available", true}, {"quarantine", false}, {"delegated", true}, {"available", false}} {
		if d := w.device(ids[i]); d.Operational.String() != want.status || d.CustomerReady != want.ready {
			t.Errorf("%s is %s, ready %v", d.Name, d.Operational, d.CustomerReady)
		}
	}
	w.exec("update devices set customer_ready = not customer_ready")
	if p := w.project(); p.Changed != 4 {
		t.Errorf("%+v", p)
	}
}
