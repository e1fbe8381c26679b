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

const address = "10.0.0.1"

// polled is a site whose BMCs are read, with one ready device that has one.
func polled(t *testing.T) (*world, int64) {
	t.Helper()
	w := newWorld(t, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	return w, w.bear("n1", node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf(address) }))
}

// told is a round in which the BMC answered.
func (w *world) told(id int64, change func(*facts.BMC)) devices.Applied {
	w.t.Helper()
	var f facts.Facts
	f.BMC = facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK, Processors: facts.RedfishHealthOK}
	if change != nil {
		change(&f.BMC)
	}
	return w.round(joins(w.say(address, f), id))
}

// silent is a round in which it did not.
func (w *world) silent(id int64) devices.Applied {
	w.t.Helper()
	return w.round(fleet.Reading{Ref: address, Device: id, At: w.clock(), Unanswered: "connection refused"})
}

func refused(b *facts.BMC) {
	*b = facts.BMC{Failures: facts.BMCFailures0, Refusal: facts.BMCRefusalBmcCredentialRefused}
}

// round ends a round of BMCs, five minutes after the one before.
func (w *world) round(r fleet.Reading) devices.Applied {
	w.t.Helper()
	applied := w.apply("bmc", r)
	w.finish("bmc", "ironic", "slurm")
	w.project()
	w.pass(5 * time.Minute)
	return applied
}

// shown is what is shown of a type of a device: its value, and the reason that
// lies over it.
func (w *world) shown(id int64, name string) string {
	w.t.Helper()
	all, err := w.svc.Standings(w.ctx(), []fleet.Device{w.device(id)})
	must(w.t, err)
	row := w.condition(id, name)
	if reason := all[id].Reasons[name]; reason != "" {
		return row + " / " + reason
	}
	return row
}

func (w *world) wantShown(id int64, name, want string) {
	w.t.Helper()
	if got := w.shown(id, name); got != want {
		w.t.Fatalf("%s shows %q, want %q", name, got, want)
	}
}

func (w *world) wantHealth(id int64, want string) {
	w.t.Helper()
	if got := w.device(id).Health.String(); got != want {
		w.t.Fatalf("health is %s, want %s", got, want)
	}
}

func (w *world) failures(id int64) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.ctx(), "select (body ->> 'failures')::int from facts where device_id = $1 and source = 'bmc'", id).Scan(&n))
	return n
}

func TestASilentBMCKeepsWhatItSaidAndIsDeadAtTheThirdTry(t *testing.T) {
	w, id := polled(t)
	w.told(id, nil)
	w.wantHealth(id, "healthy")
	const kept = "True RedfishHealthOk / RedfishTelemetryUnavailable"
	for n, reachable := range []string{"True RedfishAnswered / RedfishNoAnswer", "True RedfishAnswered / RedfishNoAnswer", "False RedfishUnreachable", "False RedfishUnreachable"} {
		w.silent(id)
		if got := w.failures(id); got != min(n+1, 3) {
			t.Fatalf("%d failures after %d tries", got, n+1)
		}
		w.wantShown(id, "BmcReachable", reachable)
		w.wantShown(id, "ChassisHealthy", kept)
		w.wantShown(id, "ProcessorsHealthy", kept)
	}
	w.wantHealth(id, "unknown") // for longer than it is held
	if applied := w.silent(id); applied.Changed != 0 || applied.Unchanged != 1 || applied.Rows != (devices.Rows{}) {
		t.Errorf("a BMC that stays dead writes %+v", applied)
	}
	w.told(id, nil)
	w.wantShown(id, "BmcReachable", "True RedfishAnswered")
	w.wantShown(id, "ChassisHealthy", "True RedfishHealthOk")
	w.wantHealth(id, "healthy")
}

func TestSilenceRepairsNothing(t *testing.T) {
	silent := (*world).silent
	refusing := func(w *world, id int64) devices.Applied { return w.told(id, refused) }
	for name, is := range map[string]struct {
		health facts.RedfishHealth
		round  func(*world, int64) devices.Applied
		want   string
	}{
		"degraded and silent":  {facts.RedfishHealthWarning, silent, "degraded"},
		"critical and silent":  {facts.RedfishHealthCritical, silent, "critical"},
		"degraded and refused": {facts.RedfishHealthWarning, refusing, "degraded"},
		"critical and refused": {facts.RedfishHealthCritical, refusing, "critical"},
	} {
		t.Run(name, func(t *testing.T) {
			w, id := polled(t)
			w.told(id, func(b *facts.BMC) { b.ChassisHealth = is.health })
			for range 5 {
				is.round(w, id)
				w.wantHealth(id, is.want)
			}
			w.told(id, nil)
			w.wantHealth(id, "healthy")
		})
	}
}

func TestARefusalIsAnAnswer(t *testing.T) {
	w, id := polled(t)
	w.told(id, nil)
	w.silent(id)
	w.told(id, refused)
	if n := w.failures(id); n != 0 {
		t.Errorf("%d failures after a refusal", n)
	}
	w.wantShown(id, "BmcReachable", "True RedfishAnswered")
	w.wantShown(id, "ChassisHealthy", "True RedfishHealthOk / BmcCredentialRefused")
	w.wantHealth(id, "healthy") // what was read last is still young enough
	w.silent(id)
	w.wantHealth(id, "healthy")
	w.told(id, refused)
	w.wantHealth(id, "unknown")
}

func TestABMCThatWasNeverReadIsCountedToo(t *testing.T) {
	w, id := polled(t)
	for n, reachable := range []string{" / RedfishNoAnswer", " / RedfishNoAnswer", "False RedfishUnreachable"} {
		w.silent(id)
		if got := w.failures(id); got != n+1 {
			t.Errorf("%d failures after %d tries", got, n+1)
		}
		w.wantShown(id, "BmcReachable", reachable)
		w.wantShown(id, "ChassisHealthy", " / RedfishTelemetryUnavailable")
		w.wantHealth(id, "unknown")
	}
	if n := w.exec("update facts set body = body where device_id = $1 and source = 'bmc' and body = '{\"failures\": 3}'", id); n != 1 {
		t.Error("something else than the tries is stored")
	}
}

func TestATryCountsOnceAndInItsOrder(t *testing.T) {
	w, id := polled(t)
	early := w.clock()
	w.pass(time.Minute)
	answer := func() {
		w.apply("bmc", joins(w.say(address, facts.Facts{BMC: facts.BMC{Failures: facts.BMCFailures0, Processors: facts.RedfishHealthOK}}), id))
	}
	answer()
	try := fleet.Reading{Ref: address, At: w.clock().Add(time.Second), Unanswered: "time-out"}
	for range 2 {
		w.apply("bmc", try) // the same try, told again by a replica that was paused
	}
	if n := w.failures(id); n != 1 {
		t.Errorf("one try counts %d times", n)
	}
	try.At = early
	if applied := w.apply("bmc", try); applied.Ignored != 1 || w.failures(id) != 1 {
		t.Errorf("an older try: %+v, %d failures", applied, w.failures(id))
	}
}

func TestAnotherBMCStartsFromNothing(t *testing.T) {
	w, id := polled(t)
	w.told(id, nil)
	w.silent(id)
	w.silent(id)
	const other = "10.0.0.2"
	w.apply("ironic", w.say("n1", node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf(other) })))
	w.wantHealth(id, "unknown")
	w.round(fleet.Reading{Ref: other, Device: id, At: w.clock(), Unanswered: "no route to host"})
	if n := w.failures(id); n != 1 {
		t.Errorf("%d failures at the new address", n)
	}
	w.wantShown(id, "ChassisHealthy", "True RedfishHealthOk / RedfishTelemetryUnavailable") // of the old one, and shown as unknown
}

func TestBMCsAreAskedOfTheDevicesThatStand(t *testing.T) {
	w := newWorld(t, withoutIronic, func(s *fleet.SiteSpec) { s.Sources.Recorded["bmc"] = "x" })
	bear := func(name, address, role, status string) {
		t.Helper()
		var f facts.Facts
		f.Netbox = facts.Netbox{Name: facts.TextOf(name), Role: facts.TextOf(role), Status: facts.TextOf(status), OobIP: facts.TextOf(address)}
		if applied := w.apply("file", born(w.say(name, f))); len(applied.Born) != 1 {
			t.Fatalf("%s is not born: %+v", name, applied)
		}
	}
	bear("c1", "10.0.0.1/24", "compute", "active")
	bear("c2", "10.0.0.1", "compute", "active") // shares it
	bear("n1", "2001:DB8::1", "nvswitch", "failed")
	bear("planned", "10.0.0.3", "compute", "planned")
	bear("bare", "", "compute", "active")
	bear("retired", "10.0.0.4", "compute", "active")
	w.exec("update devices set retired_at = now() where name = 'retired'")
	bmcs, err := w.svc.BMCs(w.ctx(), w.site.ID)
	must(t, err)
	want := []store.BMC{{Address: "10.0.0.1", Name: "c1", Class: facts.DeviceClassGpuCompute}, {Address: "2001:db8::1", Name: "n1", Class: facts.DeviceClassNvswitch}}
	if !slices.Equal(bmcs, want) {
		t.Errorf("asked are %+v, want %+v", bmcs, want)
	}
}

// A part that cannot be understood, such as a baseboard that answers only while
// the host is on, is not a part without telemetry.
func TestWhatABMCCouldNotTellIsNotObserved(t *testing.T) {
	w, id := polled(t)
	w.told(id, func(b *facts.BMC) { b.Gpus = facts.RedfishHealthWarning })
	hostOff := func(b *facts.BMC) {
		b.ChassisHealth, b.Unreadable = 0, map[string]string{"gpus": "it answers 503", "chassis_health": "it answers 503"}
	}
	for range 3 {
		w.told(id, hostOff)
		w.wantShown(id, "GpusHealthy", "False NvidiaGpuHealthDegraded / DecodeFailed")
		w.wantShown(id, "ChassisHealthy", "True RedfishHealthOk / DecodeFailed")
		w.wantShown(id, "ProcessorsHealthy", "True RedfishHealthOk")
		w.wantShown(id, "FpgasHealthy", "Unknown NvidiaFpgaTelemetryUnavailable") // that one it does not have
		w.wantHealth(id, "healthy")
	}
	w.told(id, hostOff)
	w.wantHealth(id, "unknown") // for longer than it is held
	w.told(id, nil)
	w.wantShown(id, "GpusHealthy", "Unknown NvidiaGpuTelemetryUnavailable")
	w.wantHealth(id, "healthy")
}
