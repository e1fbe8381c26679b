package redfish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
)

func roundItem(t *testing.T, p *peer) {
	records, end := round1(t, p.client(t))
	if len(records) != 1+len(p.more) || !end.Complete || end.Records != len(records) {
		t.Fatalf("%d records, %+v", len(records), end)
	}
	for _, r := range records {
		f := r.BMC
		if f == nil || f.Failures != facts.BMCFailures0 || f.Refusal != 0 || !f.PowerState.Known || f.ChassisHealth == 0 && f.Unreadable["chassis_health"] == "" {
			t.Errorf("%s: %+v", r.Ref, f)
		}
	}
}

func powerItem(t *testing.T, p *peer) {
	p.power(t, PowerOff)
	c := p.client(t)
	for _, want := range []string{PowerOn, PowerOn, PowerOff, PowerOff} {
		before, err := c.Power(t.Context(), p.target)
		if err != nil {
			t.Fatal(err)
		}
		types := map[string][]string{PowerOn: {"PushPowerButton", "On"}, PowerOff: {"GracefulShutdown", "ForceOff"}}[want]
		r, err := c.Reset(t.Context(), p.target, Reset{Types: types, Want: want, Within: 30 * time.Second, Pause: 100 * time.Millisecond})
		if err != nil || !r.Verified || r.After.State != want || (r.Sent == "") != (before.State == want) {
			t.Fatalf("from %s to %s: %+v %v", before.State, want, r, err)
		}
		got, err := c.Get(t.Context(), p.target.Address)
		if err != nil || got.BMC.PowerState.String() != want {
			t.Errorf("the facts say %+v, %v", got, err)
		}
	}
}

func markerItem(t *testing.T, p *peer) {
	p.need(t, "markers")
	p.power(t, PowerOn)
	r, err := p.client(t).Reset(t.Context(), p.target, Reset{Types: []string{"GracefulRestart", "ForceRestart"}, Within: 30 * time.Second, Pause: 100 * time.Millisecond})
	if err != nil || !r.Verified || r.Before.Marker == r.After.Marker || r.After.Marker == "" {
		t.Errorf("%+v %v", r, err)
	}
}

func undeclaredItem(t *testing.T, p *peer) {
	if _, err := p.client(t).Reset(t.Context(), p.target, Reset{Types: []string{"Suspend"}}); !errors.Is(err, ErrNotAllowed) || sources.KindOf(err) != sources.KindRefused {
		t.Errorf("%v", err)
	}
}

func loginItem(t *testing.T, p *peer) {
	secret := "admin:wrong"
	c := p.client(t, func(c *Config) {
		c.Targets = fixed(p.target)
		c.Secret = func(string) (string, error) { return secret, nil }
	})
	for range 5 {
		if got := answeredFacts(t, c); got.Refusal != facts.BMCRefusalBmcCredentialRefused || got.PowerState.Known {
			t.Fatalf("%+v", got)
		}
	}
	if _, err := c.Power(t.Context(), p.target); !errors.Is(err, ErrBlocked) || sources.KindOf(err) != sources.KindForbidden {
		t.Errorf("%v", err)
	}
	secret = p.login
	if got := answeredFacts(t, c); got.Refusal != 0 || !got.PowerState.Known {
		t.Errorf("%+v", got)
	}
}

func sessionItem(t *testing.T, p *peer) {
	p.need(t, "sessions")
	p.power(t, PowerOff)
	p.power(t, PowerOn)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = p.client(t).Reset(ctx, p.target, Reset{Types: []string{"ForceOff"}, Want: PowerOff})
	b, fault := p.client(t).acting(t.Context(), "count sessions", p.target)
	if fault != nil {
		t.Fatal(fault)
	}
	defer b.close()
	if open, err := b.listed(t.Context(), "/redfish/v1/SessionService/Sessions"); err != nil || len(open) != 0 {
		t.Errorf("%v are open, %v", open, err)
	}
	p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.Full = true })
	defer p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.Full = false })
	if got := answeredFacts(t, p.client(t, func(c *Config) { c.Targets = fixed(p.target) })); got.Refusal != facts.BMCRefusalBmcSessionsFull {
		t.Errorf("full of others' sessions: %+v", got)
	}
	_, err := p.client(t).Reset(t.Context(), p.target, Reset{Types: []string{"ForceOff"}, Want: PowerOff})
	if ClassOf(err) != ClassSessions || sources.KindOf(err) != sources.KindTransient {
		t.Errorf("full of others' sessions: %v", err)
	}
}

func bootItem(t *testing.T, p *peer) {
	boot := Boot{Target: "Pxe", Enabled: "Once"}
	c := p.client(t)
	c.bootSettle = 2 * time.Second
	err := c.BootOverride(t.Context(), p.target, boot)
	if !slices.Contains(p.can, "once") { // it makes everything Continuous, and that is told
		if !errors.Is(err, ErrNoEffect) || !strings.Contains(err.Error(), "Pxe Continuous") {
			t.Fatalf("%v", err)
		}
		boot.Enabled = "Continuous"
		err = c.BootOverride(t.Context(), p.target, boot)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.BootOverride(t.Context(), p.target, boot); err != nil {
		t.Errorf("what is so already: %v", err)
	}
	if err := c.BootOverride(t.Context(), p.target, Boot{Target: "Nonsense", Enabled: "Once"}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("%v", err)
	}
}

const inventoryPath = "/redfish/v1/UpdateService/FirmwareInventory/"

func updateItem(t *testing.T, p *peer) {
	c := p.client(t)
	if slices.Contains(p.can, "instant updates") {
		b, fault := c.acting(t.Context(), "find the machine", p.target)
		if fault != nil {
			t.Fatal(fault)
		}
		defer b.close()
		uri, _, err := b.machine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		task, err := c.Update(t.Context(), p.target, Image{URI: "http://127.0.0.1:9/x.img", Targets: []string{uri}})
		if err != nil || task.Mode != ByMonitor {
			t.Fatalf("%+v %v", task, err)
		}
		if err := c.Await(t.Context(), p.target, task, nil, Budget{Pause: 100 * time.Millisecond}); err != nil {
			t.Error(err)
		}
		return
	}
	p.need(t, "tasks")
	task, err := c.Update(t.Context(), p.target, Image{URI: "https://images/FW_BMC_0@v2.0.1.fwpkg", Targets: []string{inventoryPath + "FW_BMC_0"}})
	if err != nil || task.Mode != ByMonitor {
		t.Fatalf("%+v %v", task, err)
	}
	under, err := c.Updates(t.Context(), p.target)
	if err != nil || len(under) != 1 || under[0].Stage != StageRunning {
		t.Errorf("%+v %v", under, err)
	}
	if _, err := c.Update(t.Context(), p.target, Image{URI: "https://images/FW_BMC_0@v3.fwpkg", Targets: []string{inventoryPath + "FW_BMC_0"}}); sources.KindOf(err) != sources.KindTransient || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a second one beside it: %v", err)
	}
	p.pass(t, world.UpdateTime+time.Second)
	if err := c.Await(t.Context(), p.target, task, map[string]string{"FW_BMC_0": "v2.0.1"}, Budget{Pause: 100 * time.Millisecond, Gap: 5 * time.Second}); err != nil {
		t.Error(err)
	}
	if under, err := c.Updates(t.Context(), p.target); err != nil || len(under) != 0 {
		t.Errorf("%+v %v", under, err)
	}
	if err := c.Await(t.Context(), p.target, task, map[string]string{"FW_BMC_0": "other"}, Budget{Pause: 50 * time.Millisecond, Gap: 200 * time.Millisecond}); !errors.Is(err, ErrVersionMismatch) {
		t.Errorf("%v", err)
	}
}

func (p *peer) pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := p.sim.world.Advance(d); err != nil {
		t.Fatal(err)
	}
}

func failedUpdateItem(t *testing.T, p *peer) {
	p.need(t, "faults")
	p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.BadImage = true })
	c := p.client(t)
	task, err := c.Update(t.Context(), p.target, Image{URI: "https://images/FW_BMC_0@v9.fwpkg", Targets: []string{inventoryPath + "FW_BMC_0"}})
	if err != nil {
		t.Fatal(err)
	}
	p.pass(t, world.UpdateTime+time.Second)
	if err := c.Await(t.Context(), p.target, task, map[string]string{"FW_BMC_0": "v9"}, Budget{Pause: 100 * time.Millisecond}); !errors.Is(err, ErrUpdateFailed) || !strings.Contains(err.Error(), "did not verify") {
		t.Errorf("%v", err)
	}
}

func pushItem(t *testing.T, p *peer) {
	p.need(t, "push")
	c := p.client(t)
	content := strings.Repeat("x", 1<<20)
	task, err := c.Push(t.Context(), p.target, Upload{Name: "FW_BMC_0@v5.fwpkg", Size: int64(len(content)), Content: strings.NewReader(content), Targets: []string{inventoryPath + "FW_BMC_0"}})
	if err != nil {
		t.Fatal(err)
	}
	p.pass(t, world.UpdateTime+time.Second)
	if err := c.Await(t.Context(), p.target, task, map[string]string{"FW_BMC_0": "v5"}, Budget{Pause: 100 * time.Millisecond, Gap: 5 * time.Second}); err != nil {
		t.Error(err)
	}
}

func baseboardItem(t *testing.T, p *peer) {
	p.need(t, "baseboard")
	p.power(t, PowerOn)
	c := p.client(t, func(c *Config) { c.Targets = fixed(p.target) })
	if got := answeredFacts(t, c); got.Gpus == 0 || got.Fpgas == 0 || got.ChassisHealth == 0 {
		t.Fatalf("%+v", got)
	}
	if p.sim == nil {
		return
	}
	p.power(t, PowerOff)
	got := answeredFacts(t, c)
	if got.Gpus != 0 || got.Unreadable["gpus"] == "" || got.PowerState.String() != PowerOff || got.Memory == 0 || got.Thermal == 0 || got.Refusal != 0 {
		t.Errorf("%+v", got)
	}
	p.power(t, PowerOn)
}

func brokenItem(t *testing.T, p *peer) {
	p.need(t, "faults")
	p.power(t, PowerOn)
	before := maps.Clone(p.sim.machine("sim1/" + p.target.Name).Health)
	defer p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.Health = before })
	c := p.client(t, func(c *Config) { c.Targets = fixed(p.target) })
	for part, of := range map[string]func(*facts.BMC) facts.RedfishHealth{
		"processors": func(f *facts.BMC) facts.RedfishHealth { return f.Processors }, "memory": func(f *facts.BMC) facts.RedfishHealth { return f.Memory },
		"storage": func(f *facts.BMC) facts.RedfishHealth { return f.Storage }, "network_adapters": func(f *facts.BMC) facts.RedfishHealth { return f.NetworkAdapters },
		"thermal": func(f *facts.BMC) facts.RedfishHealth { return f.Thermal }, "gpus": func(f *facts.BMC) facts.RedfishHealth { return f.Gpus },
		"fpgas": func(f *facts.BMC) facts.RedfishHealth { return f.Fpgas }, "chassis_health": func(f *facts.BMC) facts.RedfishHealth { return f.ChassisHealth },
	} {
		p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.Health = map[string]string{part: "Critical"} })
		got := answeredFacts(t, c)
		if of(got) != facts.RedfishHealthCritical || got.ChassisHealth != facts.RedfishHealthCritical {
			t.Errorf("%s: %+v", part, got)
		}
	}
}

func classesItem(t *testing.T, p *peer) {
	p.need(t, "classes")
	for _, target := range p.more {
		got, err := p.client(t).Get(t.Context(), target.Address)
		if err != nil || got.BMC.ChassisHealth == 0 && target.Class != facts.DeviceClassGpuCompute || got.BMC.Thermal == 0 || len(got.BMC.Firmware) == 0 {
			t.Errorf("%s: %+v %v", target.Name, got, err)
			continue
		}
		if (target.Class == facts.DeviceClassPowershelf) != (got.BMC.PowerSupplies != 0) {
			t.Errorf("%s: %+v", target.Name, got.BMC)
		}
	}
}

func shelfItem(t *testing.T, p *peer) {
	p.need(t, "classes")
	c := p.client(t)
	for _, target := range p.more {
		if target.Class != facts.DeviceClassPowershelf {
			continue
		}
		for _, want := range []string{PowerOff, PowerOn} {
			types := map[string][]string{PowerOn: {"On"}, PowerOff: {"GracefulShutdown", "ForceOff"}}[want]
			r, err := c.Reset(t.Context(), target, Reset{Types: types, Want: want, Within: 20 * time.Second, Pause: 100 * time.Millisecond})
			if err != nil || !r.Verified || r.Sent == "" {
				t.Errorf("%s: %+v %v", want, r, err)
			}
		}
	}
}

func silentItem(t *testing.T, p *peer) {
	p.need(t, "faults")
	c := p.client(t)
	later := p.sim.world.Now().Add(time.Hour)
	p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.Dead = true })
	records, _ := round1(t, c)
	if answered, silent, _ := outcome(records); answered != len(p.more) || silent != 1 {
		t.Errorf("%d answered, %d silent", answered, silent)
	}
	p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.Dead = false; m.BMC.NotReady = later })
	for _, r := range first(round1(t, c)) {
		if r.Ref == p.target.Address && (r.BMC == nil || r.BMC.Refusal != facts.BMCRefusalBmcNotReady) {
			t.Errorf("%+v", r)
		}
	}
	p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.NotReady = time.Time{}; m.BMC.Deaf = true; m.On = false })
	defer p.sim.edit(t, p.target.Name, func(m *world.Machine) { m.BMC.Deaf = false })
	if _, err := c.Reset(t.Context(), p.target, Reset{Types: []string{"On"}, Want: PowerOn, Within: 500 * time.Millisecond, Pause: 50 * time.Millisecond}); !errors.Is(err, ErrNoEffect) {
		t.Errorf("%v", err)
	}
}
