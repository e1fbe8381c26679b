package devices_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// fromNetBox makes a site of sites of a NetBox.
func fromNetBox(instance string, slugs ...string) func(*fleet.SiteSpec) {
	return func(s *fleet.SiteSpec) {
		s.Inventory = facts.InventorySourceNetbox
		s.NetBox = &fleet.NetBoxSites{Instance: instance, Sites: slugs}
		s.Sources.Recorded = map[string]string{"netbox": "x"}
	}
}

func (w *world) put(spec fleet.SiteSpec, o devices.SiteOptions) error {
	o.Actor = "ada"
	change, err := devices.ApplySite(w.ctx(), w.db, spec, o)
	if err == nil && spec.Name == w.site.Spec.Name {
		w.site = change.Site
	}
	return err
}

func TestASiteOfANetBoxIsOneOfOurs(t *testing.T) {
	w := newWorld(t, fromNetBox("nb", "a", "b"))
	other := w.site.Spec
	other.Name = "annex"
	for name, c := range map[string]struct {
		change  func(*fleet.SiteSpec)
		refused string
	}{
		"a site of another's":          {fromNetBox("nb", "c", "b"), "the site b of NetBox nb is site lab already"},
		"its own":                      {fromNetBox("nb", "c"), ""},
		"the same name, other NetBox":  {fromNetBox("nb2", "a"), ""},
		"a site without NetBox at all": {withoutIronic, ""},
	} {
		spec := other
		spec.NetBox = nil
		c.change(&spec)
		err := w.put(spec, devices.SiteOptions{DryRun: true})
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
	again := w.site.Spec
	again.NetBox = &fleet.NetBoxSites{Instance: "nb", Sites: []string{"b"}}
	must(t, w.put(again, devices.SiteOptions{}))
	spec := other
	fromNetBox("nb", "a")(&spec)
	must(t, w.put(spec, devices.SiteOptions{}))
}

func TestTheIdsOfAnotherNetBoxMeanOtherMachines(t *testing.T) {
	w := newWorld(t, fromNetBox("nb", "a"))
	id := w.device(w.bearAs("netbox", "7", "n1", "east")).ID
	spec := w.site.Spec
	spec.NetBox = &fleet.NetBoxSites{Instance: "nb2", Sites: []string{"a"}}
	must(t, w.put(spec, devices.SiteOptions{}))
	w.project()
	if d := w.device(id); d.Inventory != facts.InventoryStatusActive || !d.AbsentSince.IsZero() {
		t.Errorf("the device is %s since %v", d.Inventory, d.AbsentSince)
	}
	w.pass(1)
	if applied := w.apply("netbox", w.machine("7", "n2", "east")); len(applied.Unknown) != 1 {
		t.Errorf("an id of the other NetBox is taken for the old one: %+v", applied)
	}
	if applied := w.apply("netbox", born(w.machine("8", "n1", "west"))); len(applied.Refused) != 1 {
		t.Errorf("a second device of the name is born: %+v", applied)
	}
	if applied := w.apply("netbox", joins(w.machine("8", "n1", "west"), id)); applied.Changed != 1 {
		t.Errorf("its new record does not join: %+v", applied)
	}
}

func (w *world) machine(ref, name, tenant string) fleet.Reading {
	var f facts.Facts
	f.Netbox = facts.Netbox{Name: facts.TextOf(name), Role: facts.TextOf("compute"), Status: facts.TextOf("active"), Tenant: facts.TextOf(tenant)}
	r := w.say(ref, f)
	r.Name = name
	return r
}

func (w *world) bearAs(source, ref, name, tenant string) int64 {
	w.t.Helper()
	applied := w.apply(source, born(w.machine(ref, name, tenant)))
	if len(applied.Born) != 1 {
		w.t.Fatalf("no device was born: %+v", applied)
	}
	return applied.Born[0]
}
