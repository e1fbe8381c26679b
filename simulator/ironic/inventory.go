package ironic

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"

	"github.com/musterhq/muster/simulator/world"
)

// inventory is there after an inspection by a ramdisk; one through Redfish keeps
// none.
func (c *call) inventory(ident string) error {
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	if c.minor < 81 {
		return refuse(http.StatusNotFound, "")
	}
	var m *world.Machine
	c.world.Read(func(s *world.State) { m = s.MachineOf(n) })
	if m == nil || !n.Inventoried {
		return refuse(http.StatusNotFound, "Node inventory record for node %d could not be found.", n.ID)
	}
	return c.send(http.StatusOK, found(m))
}

// found is what a ramdisk finds in a machine, in its own form. Parts that are
// broken it does not find; a broken network adapter has no link.
func found(m *world.Machine) map[string]any {
	interfaces, heard := []any{}, map[string]any{}
	for _, nic := range m.NICs() {
		if nic.Management {
			continue
		}
		up := m.Health["network_adapters"] != "Critical"
		one := map[string]any{
			"name": nic.Name, "mac_address": nic.MAC, "ipv4_address": nil, "ipv6_address": nil, "has_carrier": up, "lldp": nil, "vendor": "0x15b3",
			"product": "0xa2dc", "client_id": nil, "biosdevname": nil, "speed_mbps": nil,
		}
		if up {
			one["speed_mbps"] = nic.Mbps
		}
		if up && nic.Switch != "" {
			one["lldp"] = frame(nic)
			heard[nic.Name] = map[string]any{"switch_system_name": nic.Switch, "switch_port_id": nic.Port}
		}
		interfaces = append(interfaces, one)
	}
	gpus := world.TrayGPUs
	if m.Health["gpus"] == "Critical" {
		gpus--
	}
	devices := []any{map[string]any{"vendor_id": "1a03", "product_id": "2000", "class": "030000", "revision": "41", "bus": "0006:02:00.0"}}
	for i := range gpus {
		devices = append(devices, map[string]any{"vendor_id": "10de", "product_id": "2941", "class": "030200", "revision": "a1", "bus": fmt.Sprintf("%04x:01:00.0", 8+i)})
	}
	return map[string]any{
		"inventory": map[string]any{
			"cpu":           map[string]any{"model_name": "Neoverse-V2", "frequency": "3411.0000", "count": world.TrayCPUs, "architecture": "aarch64", "flags": []any{}},
			"memory":        map[string]any{"physical_mb": world.TrayMemoryMB, "total": int64(world.TrayMemoryMB-18<<10) << 20},
			"interfaces":    interfaces,
			"disks":         []any{map[string]any{"name": "/dev/nvme0n1", "model": "NVMe", "size": int64(3840755982336), "rotational": false, "serial": "S" + m.Serial, "wwn": nil}},
			"bmc_address":   m.Address,
			"system_vendor": map[string]any{"product_name": m.Model, "serial_number": m.Serial, "manufacturer": m.Vendor},
			"boot":          map[string]any{"current_boot_mode": "uefi", "pxe_interface": nil},
		},
		"plugin_data": map[string]any{"parsed_lldp": heard, "pci_devices": devices},
	}
}

// frame is the LLDP that a switch sends, as pairs of a type and the value's
// digits: its chassis, the port, how long that holds, its name.
func frame(nic world.NIC) []any {
	chassis, _ := net.ParseMAC(nic.MAC) // any will do
	return []any{
		[]any{1, "04" + hex.EncodeToString(chassis)}, []any{2, "05" + hex.EncodeToString([]byte(nic.Port))}, []any{3, "0078"},
		[]any{5, hex.EncodeToString([]byte(nic.Switch))},
	}
}
