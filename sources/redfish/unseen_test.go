package redfish

import (
	"testing"

	"github.com/musterhq/muster/facts"
)

// A BMC that is starting may list no machine, or not show it: of nothing that
// hangs on it anything is known then.
func TestAMachineThatIsNotShownHasNoHealthsToTell(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]answerRule{
		"not listed":    {path: "/Systems$", status: 200, body: `{"Members": []}`},
		"not to be had": {path: "/Systems/System_0$", drop: "before"},
	} {
		m := newMachine(t, object(t, tray))
		m.set("/redfish/v1/Systems", "Members", []any{map[string]any{"@odata.id": "/redfish/v1/Systems/System_0"}})
		m.rule(rule)
		client, _ := m.client(t, facts.DeviceClassGpuCompute)
		got := answeredFacts(t, client)
		for _, fact := range []string{"power_state", "processors", "memory", "storage", "gpus", "fpgas"} {
			if got.Unreadable[fact] == "" {
				t.Errorf("%s: %s is not told to be unread: %+v", name, fact, got)
			}
		}
	}
}
