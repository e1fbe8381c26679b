package ironic

import (
	"net/http"
	"testing"

	"github.com/musterhq/muster/sources"
)

func pointer[T any](v T) *T { return &v }

func TestAnInventoryTellsWhatItTells(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want Inventory
	}{
		"all": {`{"inventory": {"cpu": {"count": 144, "architecture": "aarch64"}, "memory": {"physical_mb": 983040, "total": 1},
			"interfaces": [{"name": "eth0", "mac_address": "A0:00:00:00:00:01", "has_carrier": true, "speed_mbps": 200000, "lldp": null}],
			"disks": [{"name": "/dev/sda", "model": "M", "serial": "S", "size": 1000}]},
			"plugin_data": {"parsed_lldp": {"eth0": {"switch_chassis_id": "c", "switch_system_name": "leaf", "switch_port_id": "swp1"}},
			"pci_devices": [{"vendor_id": "10DE", "product_id": "0x2941", "class": "0x030200", "bus": "b"}, {"vendor_id": "1a03", "product_id": "2000", "class": "030000"}, {"class": "020000"}]}}`,
			Inventory{
				CPUs: 144, CPUArch: "aarch64", MemoryMB: 983040, GPUs: []GPU{{Model: "10de:2941", Bus: "b"}},
				NICs:  []NIC{{Name: "eth0", MAC: "a0:00:00:00:00:01", SpeedMbps: pointer(200000), Carrier: pointer(true), LLDP: &Neighbour{"leaf", "swp1"}}},
				Disks: []Disk{{"/dev/sda", "M", "S", 1000}},
			}},
		"LLDP as it was heard": {`{"inventory": {"interfaces": [{"name": "a", "lldp": [[1, "04aabbccddeeff"], [2, "0545746831"], [3, "0078"]]},
			{"name": "b", "lldp": [[1, "04aabbccddeeff"], [2, "0301020304050a"], [5, "6c656166"]]}]}}`,
			Inventory{NICs: []NIC{{Name: "a", LLDP: &Neighbour{"aa:bb:cc:dd:ee:ff", "Eth1"}}, {Name: "b", LLDP: &Neighbour{"leaf", "01:02:03:04:05:0a"}}}}},
		"LLDP that names nothing": {`{"inventory": {"interfaces": [{"name": "a", "lldp": [[1, "0501c0a80001"], [2, "05"], [2, "zz"], [1], 7]}, {"name": "b", "lldp": [[1, "04aabbccddeeff"], [2, "0545746831"], 7]}]},
			"plugin_data": {"parsed_lldp": {"a": 7}}}`,
			Inventory{NICs: []NIC{{Name: "a"}, {Name: "b"}}}},
		"the total in place of what is fitted": {`{"inventory": {"memory": {"total": 2097152}}}`, Inventory{MemoryMB: 2}},
		"odd parts":                            {`{"inventory": {"cpu": {"count": "144"}, "memory": {"physical_mb": -1}, "interfaces": [7, {"name": null}, {"name": "a", "speed_mbps": 1.5, "mac_address": "x"}], "disks": [7]}}`, Inventory{NICs: []NIC{{Name: "a"}}}},
		"no GPUs among the devices":            {`{"inventory": {}, "plugin_data": {"pci_devices": [{"class": "020000"}]}}`, Inventory{GPUs: []GPU{}}},
		"a device that cannot be read":         {`{"inventory": {}, "plugin_data": {"pci_devices": [{"class": "030200"}, 7]}}`, Inventory{}},
		"nothing":                              {`{"inventory": {}, "plugin_data": null}`, Inventory{}},
	} {
		got, err := decodeInventory([]byte(test.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) { equal(t, *got, test.want) })
	}
}

func TestWhatIsNoInventoryIsNotRead(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`[]`, `{}`, `{"inventory": null}`, `{"inventory": 7}`, `<html>`} {
		f, c := writer(t, "manageable", nil)
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/nodes/u/inventory" {
				return false
			}
			_, _ = w.Write([]byte(body))
			return true
		}
		_, err := c.Inventory(t.Context(), "u")
		wantKind(t, err, sources.KindTransient)
	}
}
