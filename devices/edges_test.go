package devices_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

func TestOnlyTheInventoryGivesBirth(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	a := w.apply("ironic", born(w.say("u1", node(ready))))
	if len(a.Born) != 0 || len(a.Refused) != 1 || a.Refused[0].Code != devices.CodeJoinAmbiguous {
		t.Fatalf("%+v", a)
	}
	w.bearFromFile("n1")
}

func TestANameIsTakenWithinItsTenant(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	of := func(ref, tenant, serial string) fleet.Reading {
		var f facts.Facts
		f.Netbox = facts.Netbox{Name: facts.TextOf("n1"), Role: facts.TextOf("gpu-node"), Status: facts.TextOf("active"), Tenant: facts.TextOf(tenant)}
		return born(fleet.Reading{Ref: ref, Name: "n1", Serial: serial, At: w.clock(), Facts: f})
	}
	a := w.apply("file", of("1", "east", "S1"), of("2", "west", "S2"), of("3", "west", "S3"))
	if len(a.Born) != 2 || len(a.Refused) != 1 || a.Refused[0].Index != 2 {
		t.Fatalf("%+v", a)
	}
	if a = w.apply("file", of("4", "east", "")); len(a.Refused) != 1 {
		t.Errorf("another n1 of the east: %+v", a)
	}
	if a = w.apply("file", of("5", "north", "S1")); len(a.Refused) != 1 {
		t.Errorf("a serial is the site's, whoever the tenant: %+v", a)
	}
	if a = w.apply("file", of("6", "north", "S6")); len(a.Born) != 1 {
		t.Errorf("the first n1 of the north: %+v", a)
	}
}

func TestARefThatIsNoTextCostsItsOwnRecord(t *testing.T) {
	w := newWorld(t)
	bad := w.say("n\x00", node(ready))
	a := w.apply("ironic", born(w.say("n1", node(ready))), born(bad), born(w.say("n2", node(ready))))
	if len(a.Born) != 2 || len(a.Refused) != 1 || a.Refused[0].Index != 1 || a.Refused[0].Code != devices.CodeDataRefused {
		t.Fatalf("%+v", a)
	}
}

func TestTextsFromDevicesAreStoredClean(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	var f facts.Facts
	f.Netbox = facts.Netbox{
		Name: facts.TextOf("n\x001\xff"), Role: facts.TextOf("gpu-node"), Status: facts.TextOf("active"), Position: facts.TextOf("u\x007"),
		OobIP: facts.TextOf("10.0.0.1\x00"), ResourceClass: facts.TextOf("g\xffpu"), Serial: facts.TextOf("S\x00"),
	}
	id := w.apply("file", born(fleet.Reading{Ref: "1", Name: "n\x001\xff", Serial: "S\x001", At: w.clock(), Facts: f})).Born
	if len(id) != 1 {
		t.Fatal("a device with such a name is not born")
	}
	d := w.device(id[0])
	if d.Name != "n1\uFFFD" || d.Position != "u7" || d.BMCAddress != "10.0.0.1" || d.ResourceClass != "g\uFFFDpu" || d.Serial != "S1" {
		t.Fatalf("%+v", d)
	}
	w.finish("file")
	if p := w.project(); p.Rows != (devices.Rows{}) {
		t.Errorf("the projection finds %+v to do", p.Rows)
	}
	before := w.rowVersions()
	w.pass(time.Second)
	if a := w.apply("file", fleet.Reading{Ref: "1", Name: "n\x001\xff", Serial: "S1", At: w.clock(), Facts: f}); a.Unchanged != 1 || w.rowVersions() != before {
		t.Errorf("the same again is written again: %+v", a)
	}
}

// Everything that a replica does, at once and over one connection.
func TestNothingNeedsASecondConnection(t *testing.T) {
	w := newWorld(t, withoutIronic)
	posted := w.bearFromFile("n1")
	narrow, err := store.Open(w.ctx(), w.db.Config().ConnString(), store.Options{MaxConns: 1, AcquireTimeout: time.Minute})
	must(t, err)
	t.Cleanup(narrow.Close)
	svc := devices.New(narrow, w.policies, w.clock, hclog.NewNullLogger())
	policy, err := devices.OpenPolicy(narrow, muster.Bundle(), w.clock, hclog.NewNullLogger())
	must(t, err)
	snapshots := []devices.DeviceSnapshot{{DeviceID: posted, Conditions: whole(nil)}}
	ctx, cancel := context.WithTimeout(w.ctx(), 2*time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	for name, act := range map[string]func() error{
		"apply": func() error {
			a, err := svc.Apply(ctx, w.batch("file", born(w.say("m1", facts.Facts{})), born(w.say("m\x002", facts.Facts{}))))
			if err == nil && len(a.Born) != 1 {
				t.Errorf("apply: %+v", a)
			}
			return err
		},
		"project": func() error { _, err := svc.Project(ctx, w.site.ID, fleet.Cause{}); return err },
		"finish": func() error {
			return svc.FinishSweep(ctx, devices.Finish{SiteID: w.site.ID, Source: "file", Owner: owner, Epoch: w.epoch, At: w.clock()})
		},
		"post": func() error {
			_, _, err := svc.PostCondition(ctx, devices.ConditionPost{DeviceID: posted, Type: "CustodyIntent", Writer: "custody", Status: fleet.True, Reason: "Held"})
			return err
		},
		"snapshot": func() error {
			_, err := svc.PostSnapshot(ctx, "openstack", devices.Caller{Name: "x"}, snapshots)
			return err
		},
		"standings": func() error { _, err := svc.Standings(ctx, []fleet.Device{w.device(posted)}); return err },
		"explain":   func() error { _, err := svc.Explain(ctx, posted); return err },
		"activate":  func() error { _, _, err := policy.Activate(ctx, muster.Bundle(), "ada"); return err },
		"site": func() error {
			_, err := devices.ApplySite(ctx, narrow, w.site.Spec, devices.SiteOptions{Actor: "ada"})
			return err
		},
	} {
		for range 3 {
			if name == "apply" || name == "activate" {
				wait.Go(func() { must(t, act()) })
				break
			}
			wait.Go(func() {
				if err := act(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	wait.Wait()
	w.wantStatus(posted, "available", "customer-available")
}

func TestPostsAboutDevicesThatNobodyObservesAreRefused(t *testing.T) {
	w := newWorld(t, withoutIronic, func(s *fleet.SiteSpec) { s.InventoryOnly = true })
	id := w.bearFromFile("n1")
	results, err := w.svc.PostSnapshot(w.ctx(), "openstack", devices.Caller{Name: "x"}, []devices.DeviceSnapshot{{DeviceID: id, Conditions: whole(nil)}})
	must(t, err)
	if results[0].Code != devices.CodeOutOfScope {
		t.Errorf("%+v", results[0])
	}
	if d := w.device(id); d.Conditions.Present != 0 || d.InScope != 0 || d.Operational != facts.OperationalStatusUnknown {
		t.Errorf("%+v", d)
	}
	for _, kind := range []fleet.Kind{fleet.KindOperational, fleet.KindHealth} {
		if got := w.history(id, kind); !slices.Equal(got, []string{"unknown"}) {
			t.Errorf("history of %s: %v", kind, got)
		}
	}
}
