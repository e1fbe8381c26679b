package engine

import (
	"os"
	"sync"
	"testing"

	"github.com/musterhq/muster/facts"
)

// shipped is the bundle of this repository, loaded once for all tests.
var shipped = sync.OnceValues(func() (*Bundle, error) {
	b, _, err := Load(os.DirFS(".."), Options{})
	return b, err
})

func shippedBundle(t testing.TB) *Bundle {
	t.Helper()
	b, err := shipped()
	if err != nil {
		t.Fatalf("load the shipped bundle:\n%v", err)
	}
	return b
}

func TestShippedBundleHasEveryWritersTypes(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	for name, want := range map[string]int{"openstack": 8, "slurm": 2, "health-status": 10, "custody": 2, "frontend-fabric": 1, "nvlink-fabric": 1, "backend-fabric": 1} {
		at := b.WriterIndex(name)
		if at < 0 {
			t.Errorf("no writer %s", name)
			continue
		}
		got := 0
		for _, kind := range b.Catalogue() {
			if b.Writers()[at].Types>>kind.Bit&1 == 1 {
				got++
			}
		}
		if got != want {
			t.Errorf("%s may write %d types, want %d", name, got, want)
		}
	}
	for _, source := range []string{"netbox", "ironic", "file"} {
		if _, _, classRung, statusRung := b.Inventory(source, &facts.Facts{}, &facts.Codes{}); classRung == "" || statusRung == "" {
			t.Errorf("inventory source %s is not mapped", source)
		}
	}
}

func TestAxesAreJudged(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	judge := func(edit func(f *facts.Facts)) (*facts.Facts, *facts.Codes) {
		f, c := &facts.Facts{}, &facts.Codes{}
		edit(f)
		f.Intern(c)
		return f, c
	}
	f, c := judge(func(f *facts.Facts) { f.BMC.ChassisHealth = 3 })
	if status, rung := b.Health(f, c); status != facts.HealthStatusCritical || rung != "critical" {
		t.Errorf("a critical chassis gives %v by %s", status, rung)
	}
	f, c = judge(func(f *facts.Facts) { f.Device.HealthStatus = facts.HealthStatusDegraded })
	if status, _ := b.Health(f, c); status != facts.HealthStatusDegraded {
		t.Errorf("silence repaired a degraded device to %v", status)
	}
	f, c = judge(func(f *facts.Facts) { f.Device.OperationalStatus = facts.OperationalStatusDelegated })
	if rung, frozen := b.Frozen(f, c); !frozen || rung != "custody" {
		t.Errorf("a delegated device is frozen %v by %s", frozen, rung)
	}
	f, c = judge(func(f *facts.Facts) {
		f.Device.InventoryStatus, f.Device.OperationalStatus, f.Device.HealthStatus = facts.InventoryStatusActive, facts.OperationalStatusAvailable, facts.HealthStatusHealthy
	})
	if !b.CustomerReady(f, c) {
		t.Error("a healthy available device is not customer-ready")
	}
	f.Device.InventoryOnly = true
	f.Intern(c)
	if b.CustomerReady(f, c) {
		t.Error("an inventory-only device is customer-ready")
	}
	if !b.EntersService(facts.OperationalStatusAvailable) || b.EntersService(facts.OperationalStatusQuarantine) {
		t.Error("the wrong status enters service")
	}
	f, c = judge(func(f *facts.Facts) {
		f.Netbox.Role, f.Netbox.Status = facts.TextOf("gpu-compute"), facts.TextOf("broken")
	})
	if class, status, classRung, statusRung := b.Inventory("netbox", f, c); class != facts.DeviceClassGpuCompute || !status.Null() || classRung != "gpu-compute" || statusRung != "otherwise" {
		t.Errorf("netbox gives %v %v by %s %s", class, status, classRung, statusRung)
	}
	if class, status, classRung, _ := b.Inventory("excel", f, c); !class.Null() || !status.Null() || classRung != "" {
		t.Error("an unknown inventory source maps something")
	}
}

// Any number of goroutines use one bundle; the race detector watches.
func TestBundleIsUsedConcurrently(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	fs, cs := population(64, 2)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			var out Observed
			for i := range fs {
				for w := range b.Writers() {
					b.Observe(w, &fs[i], &cs[i], &out)
					b.InScope(w, &fs[i], &cs[i], Masks{})
				}
				b.Admit("move_to_test_cluster", &AdmitRequest{Facts: &fs[i]})
				b.ExplainCondition("Maintenance", &fs[i])
				b.Health(&fs[i], &cs[i])
			}
		})
	}
	wait.Wait()
}
