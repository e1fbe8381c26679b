package redfish

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// What a BMC came with lets in again after a reset, whatever the store still has
// of its device.
func TestABMCTakesWhatItCameWithAfterAReset(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	m.password = "factory-canary"
	store := &shop{}
	c, target := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) {
		c.Credentials = []Credential{{"*", RefStore}, {"*", "env:FACTORY"}}
		c.Secret = func(string) (string, error) { return "admin:factory-canary", nil }
		c.Store = store.get
	})
	store.set(target.Name, Account{"admin", "own-canary"}, nil)
	if err := c.Login(t.Context(), target); sources.KindOf(err) != sources.KindForbidden {
		t.Errorf("by its own: %v", err)
	}
	if err := c.FactoryLogin(t.Context(), target); err != nil {
		t.Errorf("by what it came with: %v", err)
	}
	m.mu.Lock()
	m.password = "own-canary"
	m.mu.Unlock()
	if err := c.FactoryLogin(t.Context(), target); sources.KindOf(err) != sources.KindForbidden || strings.Contains(err.Error(), "canary") {
		t.Errorf("it has its own: %v", err)
	}
}
