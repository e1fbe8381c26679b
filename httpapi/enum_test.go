package httpapi_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/facts"
)

func TestPublishedEnumsAreThoseOfTheFacts(t *testing.T) {
	w := newWorld(t)
	ofField := func(path string) []string {
		field, ok := facts.FieldOf(path)
		if !ok {
			t.Fatalf("there is no fact %s", path)
		}
		var values []string
		for _, literal := range field.Values {
			values = append(values, literal[1:len(literal)-1])
		}
		return values
	}
	for name, want := range map[string][]string{
		"DeviceClassEnum":          ofField("device.device_class"),
		"InventoryStatusEnum":      ofField("device.inventory_status"),
		"OperationalStatusEnum":    ofField("device.operational_status"),
		"HealthStatusEnum":         ofField("device.health_status"),
		"EngagementModeEnum":       ofField("site.engagement_mode"),
		"InventorySourceEnum":      ofField("site.inventory_source"),
		"RedfishHealthEnum":        ofField("bmc.chassis_health"),
		"IronicProvisionStateEnum": ofField("ironic.provision_state"),
		"DeviceSlurmStateEnum":     (^facts.SlurmStates(0)).Tokens(),
	} {
		schema := w.server.Document().Components.Schemas[name]
		if schema == nil {
			t.Errorf("%s is not published", name)
			continue
		}
		var got []string
		for _, value := range schema.Value.Enum {
			got = append(got, value.(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
