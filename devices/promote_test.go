package devices_test

import (
	"errors"
	"testing"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

func TestAPromotedDeviceIsDerivedFromThenOn(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) { s.InventoryOnly = true })
	id := w.bear("n1", node(ready, func(i *facts.Ironic) { i.BMCAddress = facts.TextOf("10.0.0.1") }))
	other := w.bear("n2", node(ready))
	if d := w.device(id); !d.InventoryOnly || d.Operational != facts.OperationalStatusUnknown || d.InScope != 0 {
		t.Fatalf("before, it is %s in scope %x", d.Operational, d.InScope)
	}
	by := devices.Caller{Name: "ada", Remote: "192.0.2.1"}
	for range 2 { // again is no error, and no second entry
		must(t, w.svc.Promote(w.ctx(), id, "it is ours\x00 now", by))
	}
	w.wantStatus(id, "available", "customer-available")
	if d := w.device(other); !d.InventoryOnly || d.InScope != 0 {
		t.Error("another device of the site is promoted with it")
	}
	if n := w.exec("update devices set name = name from audit a where a.action = 'device.promote' and a.target = 'device ' || devices.id and a.principal = 'ada' and a.detail ->> 'reason' = 'it is ours now'"); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	w.pass(1)
	w.apply("ironic", w.say("n1", node(ready, maintenance))) // and the site's nature takes nothing back
	w.finish("ironic")
	w.project()
	w.wantStatus(id, "quarantine", "maintenance")

	w.exec("update devices set retired_at = now() where id = $1", other)
	for name, c := range map[string]struct {
		id   int64
		code devices.Code
	}{"a retired device": {other, devices.CodeDeviceRetired}, "no device": {1 << 40, devices.CodeDeviceNotFound}} {
		if err := w.svc.Promote(w.ctx(), c.id, "x", by); !errors.Is(err, &devices.RefusedError{Code: c.code}) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}
