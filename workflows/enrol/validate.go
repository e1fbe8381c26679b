package enrol

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// validate compares the machine, as Ironic's inspection found it, now or long ago,
// with what its resource class says.
func (e *enrolling) validate(ctx context.Context, in work) error {
	d, err := e.site.Device(ctx, in.Device)
	if err != nil {
		return err
	}
	bundle, err := e.site.Bundle(ctx)
	if err != nil {
		return err
	}
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	class := d.ResourceClass
	if class == "" { // the inventory says none: the node's own
		f, err := node.Read(ctx, client, in.Node)
		if err != nil {
			return err
		}
		class = f.ResourceClass.Value
	}
	profile, has := bundle.Hardware(class)
	if !has {
		return act.Final(codes.EnrollmentHardwareProfileMissing, "policies/hardware does not describe the resource class %q of %s", class, d.Name)
	}
	m, err := machine(ctx, client, in)
	if err != nil {
		return err
	}
	if profile.Cabling == engine.CablingLLDP {
		if m.Cables, err = e.cables(ctx, in); err != nil {
			return err
		}
	}
	return differences(profile, profile.Judge(m))
}

// machine gives what Ironic knows of the node's machine: its inventory, else its
// properties and its ports. Those of a node that was never inspected are what
// somebody wrote there: they show nothing.
func machine(ctx context.Context, client enroller, in work) (engine.Machine, error) {
	inventory, err := client.Inventory(ctx, in.Node)
	if err == nil {
		return inventoried(inventory), nil
	}
	if !errors.Is(err, sources.ErrGone) {
		return engine.Machine{}, node.Failed(ctx, err)
	}
	if !in.Inspected {
		d, err := client.Details(ctx, in.Node)
		switch {
		case err != nil:
			return engine.Machine{}, node.Failed(ctx, err)
		case d.Inspected.IsZero():
			return engine.Machine{}, act.Final(codes.EnrollmentInventoryIncomplete, "Ironic has no inventory of the node, and no inspection of it has ended well: nobody found what its properties say")
		}
	}
	f, err := node.Read(ctx, client, in.Node)
	if err != nil {
		return engine.Machine{}, err
	}
	ports, err := client.Ports(ctx, in.Node)
	if err != nil {
		return engine.Machine{}, node.Failed(ctx, err)
	}
	m := engine.Machine{CPUs: whole(f.Properties["cpus"]), MemoryMB: whole(f.Properties["memory_mb"])}
	m.CPUArch, _ = f.Properties["cpu_arch"].(string)
	for i := range ports {
		m.NICs = append(m.NICs, engine.NIC{MAC: ports[i].MAC})
	}
	return m, nil
}

// whole reads a number as Ironic's drivers write it, as one or as a text; nil for
// anything else and for none.
func whole(value any) *int {
	n := 0
	switch v := value.(type) {
	case float64:
		n = int(v)
	case int:
		n = v
	case string:
		n, _ = strconv.Atoi(strings.TrimSpace(v))
	}
	return told(n)
}

// told gives what an inspection tells, nil for 0.
func told(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

const gigabyte = 1_000_000_000

func inventoried(in *ironic.Inventory) engine.Machine {
	m := engine.Machine{CPUs: told(in.CPUs), CPUArch: in.CPUArch, MemoryMB: told(in.MemoryMB)}
	if in.GPUs != nil {
		m.GPUs = []engine.GPU{}
	}
	for _, gpu := range in.GPUs {
		m.GPUs = append(m.GPUs, engine.GPU{Model: gpu.Model})
	}
	if in.NICs != nil {
		m.NICs = []engine.NIC{}
	}
	for _, nic := range in.NICs {
		one := engine.NIC{Name: nic.Name, MAC: nic.MAC, SpeedMbps: nic.SpeedMbps, Carrier: nic.Carrier}
		if nic.LLDP != nil {
			one.Switch, one.Port = nic.LLDP.Switch, nic.LLDP.Port
		}
		m.NICs = append(m.NICs, one)
	}
	if in.Disks != nil {
		m.Disks = []engine.Disk{}
	}
	for _, disk := range in.Disks {
		m.Disks = append(m.Disks, engine.Disk{SizeGB: told(int(disk.Bytes / gigabyte))})
	}
	return m
}

// cables gives the cables that NetBox records of the device's interfaces.
func (e *enrolling) cables(ctx context.Context, in work) ([]engine.Cable, error) {
	if in.NetBox == "" {
		return nil, nil
	}
	all, err := e.interfaces(ctx, in.NetBox)
	if err != nil {
		return nil, err
	}
	var cables []engine.Cable
	for i := range all {
		if nic := &all[i]; nic.Peer != nil && !nic.MgmtOnly {
			cables = append(cables, engine.Cable{Interface: nic.Name, MAC: nic.MAC, Switch: nic.Peer.Device, Port: nic.Peer.Port})
		}
	}
	return cables, nil
}

// worst orders the kinds of differences by what is to be told first.
var worst = []struct {
	kind engine.Kind
	code codes.Failure
}{
	{engine.Mismatch, codes.EnrollmentHardwareMismatch},
	{engine.Wrong, codes.EnrollmentCableMismatch},
	{engine.Link, codes.EnrollmentLinkMismatch},
	{engine.Incomplete, codes.EnrollmentInventoryIncomplete},
}

// differences fails with the code of the worst of what differs, and tells all.
func differences(p *engine.HardwareProfile, all []engine.Difference) error {
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	kinds := map[engine.Kind]bool{}
	for i, d := range all {
		texts[i], kinds[d.Kind] = d.String(), true
	}
	for _, w := range worst {
		if kinds[w.kind] {
			return act.Final(w.code, "%s (by %s)", strings.Join(texts, "; "), p.Pos)
		}
	}
	return act.Final(codes.EnrollmentHardwareMismatch, "%s (by %s)", strings.Join(texts, "; "), p.Pos)
}
