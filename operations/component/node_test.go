package component_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goph "github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// fakeNode is an Ironic with one node.
type fakeNode struct {
	facts facts.Ironic
	sent  []goph.TargetPowerState
	err   error // of SetPower
	lag   bool  // SetPower leaves the change under way

	locked func(*fakeNode) // what happens while SetPower waits for the lock
}

func newNode(power string) *fakeNode {
	return &fakeNode{facts: facts.Ironic{
		ProvisionState: facts.ProvisionStateAvailable, Maintenance: facts.False, InstanceBound: facts.False,
		Reservation: facts.Text{Known: true}, PowerState: facts.Text{Known: true, Value: power},
	}}
}

func (n *fakeNode) Get(context.Context, string) (*sources.Record, error) {
	f := n.facts
	return &sources.Record{Ref: "u", Ironic: &f}, nil
}

func (n *fakeNode) SetPower(_ context.Context, _ string, target goph.TargetPowerState, _ time.Duration, may func(*facts.Ironic) error) (*sources.Record, error) {
	if n.locked != nil {
		n.locked(n)
	}
	if may != nil {
		if err := may(&n.facts); err != nil {
			return nil, err
		}
	}
	n.sent = append(n.sent, target)
	if n.lag {
		n.facts.TargetPowerState = facts.Text{Known: true, Value: string(target)}
		return nil, n.err
	}
	if n.err != nil {
		return nil, n.err
	}
	n.facts.PowerState.Value = map[goph.TargetPowerState]string{goph.PowerOn: "power on", goph.SoftPowerOff: "power off", goph.PowerOff: "power off", goph.SoftRebooting: "power on"}[target]
	return n.Get(context.Background(), "")
}

// fakeBMC is a BMC of a machine, which takes resets.
type fakeBMC struct {
	component.BMC
	state   string
	sent    []string
	updates []redfish.Progress
}

func (b *fakeBMC) Updates(context.Context, redfish.Target) ([]redfish.Progress, error) {
	return b.updates, nil
}

func (b *fakeBMC) Power(context.Context, redfish.Target) (redfish.Power, error) {
	return redfish.Power{State: b.state, Marker: "m"}, nil
}

func (b *fakeBMC) Reset(_ context.Context, _ redfish.Target, r redfish.Reset) (redfish.ResetResult, error) {
	b.sent = append(b.sent, r.Types[0])
	b.state = r.Want
	return redfish.ResetResult{Sent: r.Types[0], After: redfish.Power{State: r.Want}}, nil
}

func managed(t *testing.T, n *fakeNode, b *fakeBMC) (component.Power, component.Part) {
	t.Helper()
	s := bmcs(t, b)
	if b == nil {
		s.BMC = func(context.Context) (component.BMC, func(), error) { return nil, nil, errors.New("the site has none") }
	}
	s.Ironic = func(context.Context) (component.Ironic, func(), error) { return n, func() {}, nil }
	s.Site = func(context.Context) (fleet.Site, error) {
		return fleet.Site{Spec: fleet.SiteSpec{Lessees: fleet.Lessees{Slurm: "slurm-project"}}}, nil
	}
	return component.Managers(s)["compute"].Power, component.Part{Name: "c1", Type: "compute", BMC: "10.0.0.1", Node: "u"}
}

// A tray that Ironic manages takes its power through Ironic, unless Ironic leaves
// it to muster.
func TestAManagedTrayIsSwitchedThroughIronic(t *testing.T) {
	t.Parallel()
	for operation, want := range map[string]goph.TargetPowerState{
		"power_on": goph.PowerOn, "force_power_on": goph.PowerOn, "power_off": goph.SoftPowerOff, "force_power_off": goph.PowerOff,
	} {
		s := component.Switch{Operation: operation}
		from, is, goal := "power on", component.On, "power off"
		if s.Leads() == component.On {
			from, is, goal = "power off", component.Off, "power on"
		}
		n, b := newNode(from), &fakeBMC{state: is}
		m, p := managed(t, n, b)
		done, err := m.Switch(t.Context(), p, s)
		if err != nil || done.State != s.Leads() || len(n.sent) != 1 || n.sent[0] != want || len(b.sent) != 0 {
			t.Errorf("%s: %+v, %v; Ironic was sent %v, the BMC %v", operation, done, err, n.sent, b.sent)
		}
		if _, err := m.Switch(t.Context(), p, s); err != nil || len(n.sent) != 1 {
			t.Errorf("%s again: %v, %v", operation, n.sent, err)
		}
		for reason, through := range map[string]bool{"muster:7 under repair": true, "an operator's": false} {
			n, b := newNode(from), &fakeBMC{state: is}
			n.facts.Maintenance, n.facts.MaintenanceReason = facts.True, facts.Text{Known: true, Value: reason}
			m, p := managed(t, n, b)
			if _, err := m.Switch(t.Context(), p, s); err != nil || (len(b.sent) == 1) != through || (n.facts.PowerState.Value == goal) == through {
				t.Errorf("%s in maintenance %q: %v; Ironic was sent %v, the BMC %v", operation, reason, err, n.sent, b.sent)
			}
		}
	}
}

func TestWhatIronicDoesNotDo(t *testing.T) {
	t.Parallel()
	away := &sources.Error{Kind: sources.KindTransient, Op: "set ironic power", Message: "it was accepted, but the node does not show it"}
	for name, c := range map[string]struct {
		err  error
		lag  bool
		s    component.Switch
		want codes.Failure
	}{
		"a shutdown takes long":        {away, true, component.Switch{Operation: "power_off"}, ""},
		"one that is to be seen":       {away, true, component.Switch{Operation: "power_off", Seen: true}, codes.IronicUnavailable},
		"a shutdown that is not there": {away, false, component.Switch{Operation: "power_off"}, codes.IronicUnavailable},
		"by force":                     {away, true, component.Switch{Operation: "force_power_off"}, codes.IronicUnavailable},
		"it refuses":                   {&sources.Error{Kind: sources.KindConflict, Op: "o", Message: "m"}, false, component.Switch{Operation: "power_off"}, codes.IronicStateUnexpected},
	} {
		n := newNode("power on")
		n.err, n.lag = c.err, c.lag
		m, p := managed(t, n, &fakeBMC{state: component.On})
		if _, err := m.Switch(t.Context(), p, c.s); act.Code(err) != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A managed tray is looked at where the truth is: at its BMC, and in Ironic only
// where the site has no BMCs.
func TestWhereAManagedTrayIsLookedAt(t *testing.T) {
	t.Parallel()
	n := newNode("power off")
	m, p := managed(t, n, &fakeBMC{state: component.On})
	if now, err := m.State(t.Context(), p); err != nil || now.Power != component.On {
		t.Errorf("%+v, %v", now, err)
	}
	m, p = managed(t, n, nil)
	if now, err := m.State(t.Context(), p); err != nil || now.Power != component.Off {
		t.Errorf("%+v, %v", now, err)
	}
	n.facts.TargetPowerState = facts.Text{Known: true, Value: "power on"}
	if now, err := m.State(t.Context(), p); err != nil || now.Power != "" {
		t.Errorf("while it changes: %+v, %v", now, err)
	}
	if marker, err := m.Marker(t.Context(), p); marker != "" || err != nil {
		t.Errorf("a marker without a BMC: %q, %v", marker, err)
	}
}

func TestAWarmResetThroughIronic(t *testing.T) {
	t.Parallel()
	n := newNode("power on")
	m, p := managed(t, n, &fakeBMC{state: component.On})
	if _, err := m.Reset(t.Context(), p, false); err != nil || len(n.sent) != 1 || n.sent[0] != goph.SoftRebooting {
		t.Errorf("%v, %v", n.sent, err)
	}
	n.err = &sources.Error{Kind: sources.KindTransient, Op: "o", Message: "the answer was lost"}
	if _, err := m.Reset(t.Context(), p, false); act.Code(err) != codes.ResetResultUnknown || !act.IsFinal(err) {
		t.Error(err)
	}
	n.facts.PowerState.Value = "power off"
	if _, err := m.Reset(t.Context(), p, false); act.Code(err) != codes.PowerRefused {
		t.Error(err)
	}
}

// What came to a node since its operation was admitted keeps its power: a
// customer's instance, unless that was overridden, and work of Ironic's own.
func TestWhatCameToANodeKeepsItsPower(t *testing.T) {
	t.Parallel()
	theirs := func(n *fakeNode) {
		n.facts.ProvisionState, n.facts.InstanceBound, n.facts.OurMark = facts.ProvisionStateActive, facts.True, facts.False
		n.facts.InstanceUUID, n.facts.Lessee = facts.Text{Known: true, Value: "i"}, facts.Text{Known: true, Value: "a customer's project"}
	}
	for name, c := range map[string]struct {
		is       func(*fakeNode)
		override bool
		want     codes.Failure
	}{
		"a customer's instance":           {theirs, false, codes.InstanceNotOurs},
		"the same, overridden":            {theirs, true, ""},
		"one that muster bound":           {func(n *fakeNode) { theirs(n); n.facts.OurMark = facts.True }, false, ""},
		"one of SLURM's project":          {func(n *fakeNode) { theirs(n); n.facts.Lessee.Value = "slurm-project" }, false, ""},
		"one of which nobody knows whose": {func(n *fakeNode) { theirs(n); n.facts.OurMark = facts.Null }, false, codes.IronicUnavailable},
		"a deployment":                    {func(n *fakeNode) { n.facts.ProvisionState = facts.ProvisionStateDeploying }, true, codes.IronicStateUnexpected},
	} {
		for _, operation := range []string{"power_off", "force_power_off", "warm_reset"} {
			n := newNode("power on")
			c.is(n)
			m, p := managed(t, n, &fakeBMC{state: component.On})
			var err error
			if operation == "warm_reset" {
				_, err = m.Reset(t.Context(), p, c.override)
			} else {
				_, err = m.Switch(t.Context(), p, component.Switch{Operation: operation, Override: c.override})
			}
			if act.Code(err) != c.want || (len(n.sent) == 1) != (c.want == "") {
				t.Errorf("%s, %s: %v; Ironic was sent %v", name, operation, err, n.sent)
			}
		}
		n := newNode("power off")
		c.is(n)
		m, p := managed(t, n, &fakeBMC{state: component.Off})
		if _, err := m.Switch(t.Context(), p, component.Switch{Operation: "power_on"}); err != nil {
			t.Errorf("%s, power_on: %v", name, err)
		}
	}
}

// What comes to a node while a command waits for Ironic's lock keeps its power too.
func TestACommandThatWaitedForTheLockLooksAgain(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"power_off", "warm_reset"} {
		n := newNode("power on")
		n.locked = func(n *fakeNode) {
			n.facts.InstanceBound, n.facts.OurMark = facts.True, facts.False
			n.facts.InstanceUUID, n.facts.Lessee = facts.Text{Known: true, Value: "i"}, facts.Text{Known: true, Value: "a customer's project"}
		}
		m, p := managed(t, n, &fakeBMC{state: component.On})
		var err error
		if operation == "warm_reset" {
			_, err = m.Reset(t.Context(), p, false)
		} else {
			_, err = m.Switch(t.Context(), p, component.Switch{Operation: operation})
		}
		if act.Code(err) != codes.InstanceNotOurs || len(n.sent) != 0 {
			t.Errorf("%s: %v; Ironic was sent %v", operation, err, n.sent)
		}
	}
}

// Power that is taken while firmware is written may never come back.
func TestPowerStaysWhileFirmwareIsWritten(t *testing.T) {
	t.Parallel()
	for _, through := range []string{"Ironic", "the BMC"} {
		for operation, want := range map[string]codes.Failure{"power_off": codes.FirmwareBusy, "warm_reset": codes.FirmwareBusy, "force_power_off": ""} {
			n, b := newNode("power on"), &fakeBMC{state: component.On, updates: []redfish.Progress{{URI: "/t/1", State: "Running"}}}
			m, p := managed(t, n, b)
			if through == "the BMC" {
				p.Node = ""
			}
			var err error
			if operation == "warm_reset" {
				_, err = m.Reset(t.Context(), p, false)
			} else {
				_, err = m.Switch(t.Context(), p, component.Switch{Operation: operation})
			}
			if act.Code(err) != want || act.IsFinal(err) || (len(n.sent)+len(b.sent) == 0) != (want != "") {
				t.Errorf("%s through %s: %v; sent %v, %v", operation, through, err, n.sent, b.sent)
			}
		}
	}
}

// What was not sent is no lost answer, and what Ironic says no to is known.
func TestAWarmResetThatWasNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want codes.Failure
		stay bool
	}{
		"not sent":       {fmt.Errorf("%w: %w", ironic.ErrUnsent, &sources.Error{Kind: sources.KindTransient, Message: "503"}), codes.IronicUnavailable, false},
		"Ironic gave up": {&sources.Error{Kind: sources.KindTransient, Message: "it gave up", Err: ironic.ErrGaveUp}, codes.PowerNoEffect, true},
	} {
		n := newNode("power on")
		n.err = c.err
		m, p := managed(t, n, &fakeBMC{state: component.On})
		if _, err := m.Reset(t.Context(), p, false); act.Code(err) != c.want || act.IsFinal(err) != c.stay {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fakeInventory is a NetBox with one device.
type fakeInventory struct {
	status string
	err    error
	writes int
}

func (i *fakeInventory) Read(context.Context, string) (*netbox.Device, error) {
	d := &netbox.Device{}
	d.Netbox = &facts.Netbox{Status: facts.Text{Known: true, Value: i.status}}
	return d, i.err
}

func (i *fakeInventory) Update(_ context.Context, _ string, c netbox.Change) (*netbox.Device, error) {
	i.status = c.Status
	i.writes++
	return nil, nil
}

func TestADecommissioningIsAskedOfTheInventory(t *testing.T) {
	t.Parallel()
	i := &fakeInventory{status: "active"}
	m := component.Managers(&component.Systems{NetBox: func(context.Context) (component.Inventory, func(), error) { return i, func() {}, nil }})["nvswitch"].Decommission
	p := component.Part{Name: "n1", Type: "nvswitch", NetBox: "12"}
	for range 2 {
		if err := m.Decommission(t.Context(), p, "muster task 7"); err != nil || i.writes != 1 || i.status != "decommissioning" {
			t.Errorf("%q after %d writes, %v", i.status, i.writes, err)
		}
	}
	for status, want := range map[string]string{
		"active": "Ready", "decommissioning": "Decommissioning/Inventory", "decommissioned": "Decommissioned", "offline": "Maintenance(offline)", "odd": "odd", "": "",
	} {
		i.status = status
		if got, err := m.Decommissioning(t.Context(), p); got != want || err != nil {
			t.Errorf("%q is told as %q, %v", status, got, err)
		}
	}
	if err := m.Decommission(t.Context(), component.Part{Name: "n2"}, ""); act.Code(err) != codes.NetboxDeviceMissing {
		t.Error(err)
	}
	i.err = &sources.Error{Kind: sources.KindForbidden, Op: "o", Message: "m"}
	if err := m.Decommission(t.Context(), p, ""); act.Code(err) != codes.DecommissionRefused {
		t.Error(err)
	}
}
