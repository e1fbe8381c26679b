package world

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// trayClass is the resource class of compute trays.
const trayClass = "gb200"

// seedNode puts a machine into Ironic as its use wants it, and into Nova and
// Placement where the site has them.
func (s *State) seedNode(r *rand.Rand, site *Site, m *Machine, use Use) {
	if use == UseNone || use == UseNew {
		return
	}
	created := s.Now.Add(-time.Duration(30+r.IntN(300)) * 24 * time.Hour).Truncate(time.Microsecond)
	n := &Node{
		UUID: newUUID(r), Site: site.Name, Name: m.Name, Machine: m.Name, Driver: "redfish", ResourceClass: trayClass,
		Interfaces: DefaultInterfaces("redfish"), Created: created, ProvisionState: Available, PowerState: PowerOff,
		DriverInfo: map[string]any{
			"redfish_address": "https://" + m.Address, "redfish_system_id": "/redfish/v1/Systems/System_0", "redfish_username": "admin",
			"redfish_password": "secret", "redfish_verify_ca": false,
		},
		Properties:   map[string]any{"cpu_arch": "aarch64", "capabilities": "boot_mode:uefi", "serial_number": m.Serial},
		InstanceInfo: map[string]any{}, Extra: map[string]any{"rack": m.Rack}, Lessee: site.Lessees.Enrol,
	}
	n.Provisioned = s.Now.Add(-time.Duration(1+r.IntN(20*24)) * time.Hour).Truncate(time.Microsecond)
	n.Updated = n.Provisioned
	m.Node, m.On, m.Deployed = n.UUID, false, false
	s.seedUseOfNode(r, site, m, n, use)
	if use != UseEnrolling {
		s.inspected(n, m)
		p := portOf(n, m, s.Ports.Len()+1)
		s.Ports.Put(p.key(), p)
		n.InspectStarted, n.InspectFinished = created.Add(time.Hour), created.Add(time.Hour+inspectTime)
	}
	n.ID = s.Nodes.Len() + 1
	s.Nodes.Put(n.Key(), n)
	s.seedNova(site, n)
}

// seedUseOfNode makes a node what its use says.
func (s *State) seedUseOfNode(r *rand.Rand, site *Site, m *Machine, n *Node, use Use) {
	switch use {
	case UseCustomer:
		n.Lessee = site.Customers[r.IntN(len(site.Customers))]
		n.deployed(m, newUUID(r))
	case UseFree:
		n.Lessee = site.freeLessee()
		if site.FastTrack {
			n.PowerState, m.On = PowerOn, true
		}
	case UseBurnIn, UseDrained:
		n.Lessee = site.Lessees.Slurm
		n.deployed(m, newUUID(r))
		if !site.Placement {
			n.Extra["muster"] = fmt.Sprintf("muster:seed-%s:%s", m.Name, n.InstanceUUID)
		}
	case UseRepair:
		n.Lessee, n.Maintenance = site.Lessees.Maintenance, true
		n.Reason = [...]string{"waiting for a NIC", "RMA 4711", "cable swap in the rack", "do not touch: firmware team"}[r.IntN(4)]
	case UseFailed:
		n.ProvisionState, n.TargetProvision, n.Maintenance, n.Fault = CleanFailed, Available, true, FaultClean
		n.LastError = failureText(n, WorkClean, "Failed to execute clean step: the ramdisk reported an I/O error on /dev/nvme3n1")
		n.Reason, n.PowerState, m.On = n.LastError, PowerOn, true
	case UseEnrolling:
		n.ProvisionState, n.PowerState, m.On = Manageable, PowerOn, true
		if r.IntN(3) == 0 {
			n.ProvisionState, n.PowerState, n.Provisioned = Enroll, "", time.Time{}
		}
	}
	if site.TraitBased && (use == UseCustomer || use == UseFree) {
		n.Traits = []string{site.Trait}
	}
}

// deployed makes a node one with a running instance.
func (n *Node) deployed(m *Machine, instance string) {
	n.ProvisionState, n.PowerState, n.InstanceUUID, m.On, m.Deployed = Active, PowerOn, instance, true, true
	n.InstanceInfo = map[string]any{"display_name": "i-" + instance[:8], "image_source": "http://images.example/ubuntu-24.04.raw", "image_checksum": "d41d8cd98f00b204e9800998ecf8427e"}
}

// inspected puts what an inspection finds in a machine into its node: its size.
func (s *State) inspected(n *Node, m *Machine) {
	n.InspectFinished = s.Now
	if m == nil {
		return
	}
	n.Properties["cpus"], n.Properties["memory_mb"], n.Properties["local_gb"], n.Properties["cpu_arch"] = TrayCPUs, TrayMemoryMB, 3575, "aarch64"
}

// What a compute tray has.
const (
	TrayCPUs     = 144
	TrayMemoryMB = 983040
	TrayGPUs     = 4
)

// portOf is the port that an inspection finds.
func portOf(n *Node, m *Machine, id int) *Port {
	return &Port{ID: id, UUID: derivedUUID(n.UUID, "port"), Site: n.Site, Node: n.UUID, Address: hostMAC(m), PXE: true, CreatedAt: n.Created}
}

// hostMAC is the address of a machine's first network port, beside its BMC's.
func hostMAC(m *Machine) string { return "a0" + m.MAC[2:] }

// seedNova gives Placement what nova-compute knows of a node, and Nova the
// server on it.
func (s *State) seedNova(site *Site, n *Node) {
	if !site.Placement || n.ProvisionState == Enroll || n.ProvisionState == Manageable {
		return
	}
	p := s.publish(n)
	if n.InstanceUUID == "" {
		return
	}
	v := &Server{
		UUID: n.InstanceUUID, Site: n.Site, Name: "i-" + n.InstanceUUID[:8], Project: n.Lessee, Node: n.UUID, Status: "ACTIVE",
		Flavor: "baremetal." + trayClass, Created: n.Provisioned, Updated: n.Provisioned,
	}
	s.Servers.Put(v.Key(), v)
	p = cloneProvider(p)
	p.Allocations[v.UUID] = Allocation{Resources: map[string]int{resourceClass(n): 1}, Project: v.Project, User: v.Project, Type: "INSTANCE", Generation: 1}
	s.Providers.Put(p.Key(), p)
}

// derivedUUID makes the identity of what belongs to something.
func derivedUUID(parts ...string) string {
	b := sha256.Sum256([]byte(strings.Join(parts, "/")))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// DefaultInterfaces are what Ironic gives a node of a driver.
func DefaultInterfaces(driver string) map[string]string {
	if driver == "redfish" {
		return map[string]string{
			"bios": "redfish", "boot": "redfish-virtual-media", "console": "no-console", "deploy": "direct", "inspect": "redfish", "management": "redfish",
			"network": "noop", "power": "redfish", "raid": "redfish", "rescue": "no-rescue", "storage": "noop", "vendor": "redfish",
		}
	}
	return map[string]string{
		"bios": "fake", "boot": "fake", "console": "fake", "deploy": "fake", "inspect": "fake", "management": "fake",
		"network": "noop", "power": "fake", "raid": "fake", "rescue": "fake", "storage": "noop", "vendor": "fake",
	}
}
