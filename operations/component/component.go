package component

import (
	"context"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

// Part is one component as its manager is given it.
type Part struct {
	Device int64
	Name   string
	Type   string // compute, nvswitch or powershelf
	Class  facts.DeviceClass
	BMC    string // its address, "" none
	Health facts.RedfishHealth
	Node   string // its UUID in Ironic, "" where that does not manage it
	NetBox string // its id there, "" none
}

func (p *Part) target() redfish.Target {
	return redfish.Target{Address: p.BMC, Name: p.Name, Class: p.Class, Health: p.Health}
}

// PartOf makes a Part of a device that counts as a component of a type.
func PartOf(d *fleet.Device, kind string) Part {
	p := Part{Device: d.ID, Name: d.Name, Type: kind, Class: d.Class, BMC: d.BMCAddress, Health: d.ChassisHealth}
	if kind == "compute" {
		p.Node = d.InfrastructureRef
	}
	return p
}

// Systems are what the managers of one site work with.
type Systems struct {
	BMC    func(ctx context.Context) (BMC, func(), error)
	Ironic func(ctx context.Context) (Ironic, func(), error)
	NetBox func(ctx context.Context) (Inventory, func(), error)

	// Resets gives the kinds of reset that carry an operation out on a type.
	Resets func(ctx context.Context, operation, kind string) ([]string, error)

	// Site reads the site as it is now.
	Site func(ctx context.Context) (fleet.Site, error)

	Images *Images
	Clock  sources.Clock
	Poll   time.Duration // between two looks
}

// At gives the systems of a site.
func At(s *act.Site) *Systems {
	return &Systems{
		BMC:    func(ctx context.Context) (BMC, func(), error) { return act.Use[BMC](ctx, s, "bmc") },
		Ironic: func(ctx context.Context) (Ironic, func(), error) { return act.Use[Ironic](ctx, s, "ironic") },
		NetBox: func(ctx context.Context) (Inventory, func(), error) { return act.Use[Inventory](ctx, s, "netbox") },
		Resets: func(ctx context.Context, operation, kind string) ([]string, error) {
			b, err := s.Bundle(ctx)
			if err != nil {
				return nil, err
			}
			o, ok := b.Operation(operation)
			if !ok {
				return nil, act.Final(codes.PowerRefused, "the active policies have no operation %s", operation)
			}
			return o.Resets[kind], nil
		},
		Site:   s.Row,
		Images: NewImages(s.Clock), Clock: s.Clock, Poll: s.Poll,
	}
}

// Find gives a component of a site as it is now.
func Find(ctx context.Context, s *act.Site, device int64, kind string) (Part, error) {
	d, err := s.Device(ctx, device)
	if err != nil {
		return Part{}, err
	}
	return PartOf(&d, kind), nil
}

// InNetBox gives a component its id in NetBox, "" where that has not been seen to
// list it.
func (p *Part) InNetBox(ctx context.Context, s *act.Site) error {
	stored, err := store.FactsOf(ctx, s.DB, []int64{p.Device})
	if err != nil {
		return err
	}
	for i := range stored {
		if stored[i].Source == "netbox" && !stored[i].RefGone {
			p.NetBox = stored[i].Ref
		}
	}
	return nil
}

// Manager is what can be done with the components of one type. A capability that it
// lacks is nil.
type Manager struct {
	Power        Power
	Reachability Reachability
	Firmware     Firmware
	Decommission Decommission
}

// Managers gives the managers of a site by component type.
func Managers(s *Systems) map[string]Manager {
	plain, through := &bmcs{s}, &nodes{bmcs{s}}
	inventory := &inventory{s}
	return map[string]Manager{
		"compute":    {Power: through, Reachability: through, Firmware: through, Decommission: inventory},
		"nvswitch":   {Power: plain, Reachability: plain, Firmware: plain, Decommission: inventory},
		"powershelf": {Power: plain, Reachability: plain, Firmware: plain, Decommission: inventory},
	}
}

// Capabilities lists what a manager can do.
func (m *Manager) Capabilities() []rule.Capability {
	var all []rule.Capability
	for _, one := range []struct {
		has  bool
		name rule.Capability
	}{{m.Power != nil, rule.Power}, {m.Firmware != nil, rule.Firmware}, {m.Reachability != nil, rule.Reachability}, {m.Decommission != nil, rule.Decommission}} {
		if one.has {
			all = append(all, one.name)
		}
	}
	return all
}

// unit gives the client of a component's BMC.
func (s *Systems) unit(ctx context.Context, p *Part) (BMC, func(), error) {
	if p.BMC == "" {
		return nil, nil, act.Final(codes.BMCAddressMissing, "the inventory gives %s no BMC address", p.Name)
	}
	client, release, err := s.BMC(ctx)
	switch {
	case err == nil:
		return client, release, nil
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	}
	return nil, nil, act.Final(codes.BMCUnreachable, "%v", err)
}
