package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// Inventory is what a ramdisk found in a machine when it was inspected. What it
// does not tell is 0, "" or nil: nothing is made up for it.
type Inventory struct {
	CPUs     int
	CPUArch  string
	MemoryMB int
	GPUs     []GPU // nil: not told; needs the ramdisk's collector pci-devices
	NICs     []NIC // nil: not told
	Disks    []Disk
}

// GPU is a device on the PCI bus that computes.
type GPU struct {
	Model string // vendor and product in the PCI list's digits: 10de:2941
	Bus   string
}

// NIC is a network interface.
type NIC struct {
	Name      string
	MAC       string // lower case, with colons; "" not told
	SpeedMbps *int
	Carrier   *bool
	LLDP      *Neighbour // nil: the ramdisk heard none
}

// Neighbour is the port of a switch at the cable's other end, as the switch
// itself calls the two.
type Neighbour struct {
	Switch string // its name, else its chassis' identity
	Port   string
}

// Disk is a block device.
type Disk struct {
	Name   string
	Model  string
	Serial string
	Bytes  int64
}

// Bounds of what anybody's ramdisk may have written.
const (
	maxNICs  = 256
	maxDisks = 1024
	maxPCI   = 4096
)

// inventorySince is the version that serves inventories.
const inventorySince = 81

// Inventory reads what the last inspection stored. ErrGone: Ironic has none of
// this node, as after an inspection through Redfish, or is too old to serve
// one; then properties and ports are all there is.
func (c *Client) Inventory(ctx context.Context, ref string) (*Inventory, error) {
	const op = "read the inventory of an ironic node"
	if !validRef(ref) {
		return nil, refused(sources.KindRefused, op, "%q is no uuid of a node", sources.CleanText(ref, 64))
	}
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if s.minor < inventorySince {
		return nil, &sources.Error{Kind: sources.KindMissing, Op: op, Message: "inventories are served from version 1.81 on", Err: sources.ErrGone}
	}
	body, _, err := c.read(ctx, s, s.sc.ServiceURL("nodes", url.PathEscape(ref), "inventory"), op)
	if err != nil {
		return nil, keystone.Gone(err)
	}
	inventory, err := decodeInventory(body)
	if errors.Is(err, errForeign) {
		return nil, foreign(op, body)
	}
	return inventory, err
}

var errForeign = errors.New("no inventory")

type rawInventory struct {
	Inventory *struct {
		CPU struct {
			Count        json.RawMessage `json:"count"`
			Architecture json.RawMessage `json:"architecture"`
		} `json:"cpu"`
		Memory struct {
			Physical json.RawMessage `json:"physical_mb"`
			Total    json.RawMessage `json:"total"` // bytes
		} `json:"memory"`
		Interfaces []json.RawMessage `json:"interfaces"`
		Disks      []json.RawMessage `json:"disks"`
	} `json:"inventory"`
	Plugins struct {
		LLDP map[string]json.RawMessage `json:"parsed_lldp"`
		PCI  []json.RawMessage          `json:"pci_devices"`
	} `json:"plugin_data"`
}

// decodeInventory takes an inventory apart, one part at a time: what cannot be
// read is not told.
func decodeInventory(body []byte) (*Inventory, error) {
	var raw rawInventory
	if json.Unmarshal(body, &raw) != nil || raw.Inventory == nil {
		return nil, errForeign
	}
	in := raw.Inventory
	out := &Inventory{CPUs: int(number(in.CPU.Count)), CPUArch: plain(in.CPU.Architecture), MemoryMB: int(number(in.Memory.Physical))}
	if out.MemoryMB == 0 {
		out.MemoryMB = int(number(in.Memory.Total) >> 20)
	}
	for _, element := range in.Interfaces[:min(len(in.Interfaces), maxNICs)] {
		if nic, ok := decodeNIC(element, raw.Plugins.LLDP); ok {
			out.NICs = append(out.NICs, nic)
		}
	}
	for _, element := range in.Disks[:min(len(in.Disks), maxDisks)] {
		var d struct{ Name, Model, Serial, Size json.RawMessage }
		if json.Unmarshal(element, &d) == nil && plain(d.Name) != "" {
			out.Disks = append(out.Disks, Disk{Name: plain(d.Name), Model: plain(d.Model), Serial: plain(d.Serial), Bytes: number(d.Size)})
		}
	}
	if raw.Plugins.PCI != nil {
		out.GPUs = gpus(raw.Plugins.PCI)
	}
	return out, nil
}

func decodeNIC(element json.RawMessage, parsed map[string]json.RawMessage) (NIC, bool) {
	var raw struct {
		Name    json.RawMessage `json:"name"`
		MAC     json.RawMessage `json:"mac_address"`
		Speed   json.RawMessage `json:"speed_mbps"`
		Carrier *bool           `json:"has_carrier"`
		LLDP    json.RawMessage `json:"lldp"`
	}
	if json.Unmarshal(element, &raw) != nil || plain(raw.Name) == "" {
		return NIC{}, false
	}
	nic := NIC{Name: plain(raw.Name), Carrier: raw.Carrier}
	nic.MAC, _ = macOf(plain(raw.MAC))
	if speed := int(number(raw.Speed)); speed > 0 {
		nic.SpeedMbps = &speed
	}
	if nic.LLDP = parsedNeighbour(parsed[nic.Name]); nic.LLDP == nil {
		nic.LLDP = rawNeighbour(raw.LLDP)
	}
	return nic, true
}

// graphics are the classes on the PCI bus of what computes: VGA and 3D
// controllers, processing accelerators.
var graphics = []string{"0300", "0302", "1200"}

// console are the vendors of the VGA controllers of BMCs, which are none.
var console = []string{"1a03", "102b"}

// gpus picks the GPUs of the PCI devices; not nil. A device that cannot be read
// costs all: it may be one.
func gpus(devices []json.RawMessage) []GPU {
	found := []GPU{}
	for _, element := range devices[:min(len(devices), maxPCI)] {
		var raw struct {
			Vendor  json.RawMessage `json:"vendor_id"`
			Product json.RawMessage `json:"product_id"`
			Class   json.RawMessage `json:"class"`
			Bus     json.RawMessage `json:"bus"`
		}
		if json.Unmarshal(element, &raw) != nil || identifier(raw.Class) == "" {
			return nil
		}
		vendor, class := identifier(raw.Vendor), identifier(raw.Class)
		if slices.ContainsFunc(graphics, func(wanted string) bool { return strings.HasPrefix(class, wanted) }) && !slices.Contains(console, vendor) {
			found = append(found, GPU{Model: vendor + ":" + identifier(raw.Product), Bus: plain(raw.Bus)})
		}
	}
	return found
}

// identifier reads hexadecimal digits, with or without 0x before them.
func identifier(raw json.RawMessage) string {
	return strings.TrimPrefix(strings.ToLower(plain(raw)), "0x")
}

// plain reads a text, "" for anything else.
func plain(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return strings.TrimSpace(sources.CleanText(s, shortText))
}

// number reads a whole number that is not negative, 0 for anything else.
func number(raw json.RawMessage) int64 {
	var n float64
	if absent(raw) || json.Unmarshal(raw, &n) != nil || n < 0 || n > 1<<53 || n != float64(int64(n)) {
		return 0
	}
	return int64(n)
}
