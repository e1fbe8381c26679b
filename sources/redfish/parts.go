package redfish

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// isHost reports that the device's class has a host of its own behind its BMC,
// so that a DPU alone is not it.
func (b *bmc) isHost() bool {
	switch b.target.Class {
	case facts.DeviceClassGpuCompute, facts.DeviceClassCpuBaremetal, facts.DeviceClassCpuHypervisor:
		return true
	}
	return false
}

// thermal reads fans and temperatures: from the one resource that older
// services have them all in, else from the subsystem, by its roll-up where it has
// one.
func (s *scan) thermal(ctx context.Context) {
	v := verdict{unread: s.blind}
	for _, m := range s.ours() {
		switch old, subsystem := m.doc.link("Thermal"), m.doc.link("ThermalSubsystem"); {
		case old != "":
			a, err := s.get(ctx, old)
			if err != nil {
				v.failed(err)
				continue
			}
			for _, list := range []string{"Fans", "Temperatures"} {
				for _, part := range a.doc.objects(list) {
					v.add(part.health())
				}
			}
		case subsystem != "":
			s.thermalSubsystem(ctx, subsystem, &v)
		}
	}
	s.f.Thermal = s.settle("thermal", v)
}

func (s *scan) thermalSubsystem(ctx context.Context, uri string, v *verdict) {
	a, err := s.get(ctx, uri)
	if err != nil {
		v.failed(err)
		return
	}
	v.add(a.doc.health())
	if a.doc.object("Status").text("HealthRollup") != "" {
		return
	}
	for _, list := range []string{"Fans", "Pumps"} {
		part := s.collection(ctx, a.doc.link(list))
		v.merge(part)
	}
}

func (v *verdict) merge(o verdict) {
	v.worst, v.parts = max(v.worst, o.worst), v.parts+o.parts
	if o.unread != "" {
		v.fail(o.unread)
	}
}

// supplies reads the power supplies of the machine.
func (s *scan) supplies(ctx context.Context) {
	v := verdict{unread: s.blind}
	for _, m := range s.ours() {
		found, _ := s.psus(ctx, m.doc)
		v.merge(found)
	}
	s.f.PowerSupplies = s.settle("power_supplies", v)
}

// psus reads the power supplies of a chassis in the three places where services
// have them: all in Power, under PowerSubsystem, linked one by one. The first
// place that has any counts. A subsystem's own health says nothing of its
// supplies unless it is a roll-up.
func (s *scan) psus(ctx context.Context, chassis document) (verdict, []document) {
	var v verdict
	if uri := chassis.link("Power"); uri != "" {
		a, err := s.get(ctx, uri)
		if err != nil {
			v.failed(err)
		} else if parts := a.doc.objects("PowerSupplies"); len(parts) > 0 {
			for _, part := range parts {
				v.add(part.health())
			}
			return v, parts
		}
	}
	var parts []document
	take := func(members []member) {
		for _, m := range members {
			v.member(m)
			parts = append(parts, m.doc)
		}
	}
	if uri := chassis.link("PowerSubsystem"); uri != "" {
		members, err := s.members(ctx, strings.TrimRight(uri, "/")+"/PowerSupplies", nil)
		if err != nil {
			v.failed(err)
		}
		if take(members); len(parts) > 0 {
			return v, parts
		}
	}
	linked := chassis.object("Links").links("PoweredBy")
	linked = append(linked, chassis.object("Links").links("PowerSupplies")...)
	if uri := chassis.link("PowerSupplies"); uri != "" {
		members, err := s.members(ctx, uri, nil)
		if err != nil {
			v.failed(err)
		}
		take(members)
	}
	for i, uri := range linked {
		if i == memberLimit || len(parts) > 0 && i == 0 {
			break
		}
		if strings.Contains(uri, "#") { // an element of a resource that was read above
			continue
		}
		a, err := s.get(ctx, uri)
		if err != nil {
			take([]member{{uri: uri, err: err}})
			continue
		}
		take([]member{{uri: uri, doc: a.doc}})
	}
	return v, parts
}

// adapters reads the network adapters of the main chassis and of those that are
// known to hold some.
func (s *scan) adapters(ctx context.Context) {
	var uris []string
	for _, m := range s.ours() {
		if uri := m.doc.link("NetworkAdapters"); uri != "" {
			uris = append(uris, uri)
		}
	}
	for _, uri := range s.chassis {
		if anyFits(adapterIDs, id(uri)) && !fits("*ERoT*", id(uri)) && !fits("*IRoT*", id(uri)) {
			uris = append(uris, strings.TrimRight(uri, "/")+"/NetworkAdapters")
		}
	}
	slices.Sort(uris)
	v := verdict{unread: s.blind}
	for i, uri := range slices.Compact(uris) {
		if i == chassisLimit {
			break
		}
		v.merge(s.collection(ctx, uri))
	}
	s.f.NetworkAdapters = s.settle("network_adapters", v)
}

// shelf reads a power shelf: its supplies are what it is for. Its power is that
// of its supplies, else of its outlets, else of its chassis.
func (s *scan) shelf(ctx context.Context) {
	var units []member
	var health, supplies verdict
	var power, outlets switched
	unread := "" // a part whose power nobody read: what the others say is not the shelf's
	for i, uri := range s.shelfChassis() {
		if i == chassisLimit {
			break
		}
		a, err := s.get(ctx, uri)
		if err != nil {
			s.blind = id(uri) + ": " + reason(err)
			unread = s.blind
			health.fail(s.blind)
			supplies.fail(s.blind)
			continue
		}
		units = append(units, member{uri: uri, doc: a.doc})
	}
	s.main = units
	equipment, missed := s.shelves(ctx, &health)
	unread = cmp.Or(unread, missed)
	for _, unit := range append(units, equipment...) {
		health.add(unit.doc.health())
		v, parts := s.psus(ctx, unit.doc)
		supplies.merge(v)
		unread = cmp.Or(unread, v.unread)
		for _, part := range append(parts, vendors(unit.doc, "PowerSupplies")...) {
			addPower(&power, part)
		}
		if uri := unit.doc.link("Outlets"); uri != "" && power.on+power.off == 0 {
			members, err := s.members(ctx, uri, nil)
			if err != nil {
				outlets.unknown++
			}
			for _, m := range members {
				outlets.add(m.doc, "PowerState")
			}
		}
	}
	if unread != "" {
		s.lost("power_state", unread)
	} else {
		s.shelfPower(power, outlets, units)
	}
	s.f.ChassisHealth = s.settle("chassis_health", health)
	s.f.PowerSupplies = s.settle("power_supplies", supplies)
}

// shelfChassis gives the chassis that are the shelf.
func (s *scan) shelfChassis() []string {
	named := slices.DeleteFunc(slices.Clone(s.chassis), func(uri string) bool { return !anyFits(wholeIDs, id(uri)) })
	if len(named) > 0 {
		return named
	}
	return s.chassis
}

func (s *scan) shelfPower(power, outlets switched, units []member) {
	for _, of := range []switched{power, outlets} {
		if of.on+of.off > 0 {
			s.power(of.state())
			return
		}
	}
	said, strange := "", ""
	for _, unit := range units {
		switch state, odd := powerOf(unit.doc); {
		case state == "" && odd == "", state == said && strange == "": // it does not say, or the same
		case said == "" && strange == "":
			said, strange = state, odd
		default:
			said, strange = "", "mixed: the chassis of the shelf differ"
		}
	}
	if said != "" || strange != "" {
		s.power(said, strange)
	}
}

// addPower counts one supply, which says whether it is on itself or in its
// vendor's part; one that does not is not counted as long as none does.
func addPower(power *switched, part document) {
	switch o := vendor(part); {
	case !null(part["PowerState"]):
		power.add(part, "PowerState")
	case !null(o["PowerState"]):
		power.add(o, "PowerState")
	default:
		power.unknown++
	}
}

// vendor gives the first object of a resource's Oem.
func vendor(d document) document {
	oem := d.object("Oem")
	for _, name := range slices.Sorted(maps.Keys(oem)) {
		if o := oem.object(name); o != nil {
			return o
		}
	}
	return nil
}

func vendors(d document, list string) []document { return vendor(d).objects(list) }

// shelves reads what PowerEquipment has, where the service has it, and tells what
// of it could not be read.
func (s *scan) shelves(ctx context.Context, health *verdict) (read []member, unread string) {
	uri := s.services.link("PowerEquipment")
	if uri == "" {
		return nil, ""
	}
	members, err := s.members(ctx, strings.TrimRight(uri, "/")+"/PowerShelves", nil)
	var v verdict
	if err != nil {
		v.failed(err)
	}
	members = slices.DeleteFunc(members, func(m member) bool {
		if m.err != nil {
			v.fail(id(m.uri) + ": " + reason(m.err))
		}
		return m.err != nil
	})
	health.merge(v)
	return members, v.unread
}

// versions keeps the inventory of firmware of each BMC between two readings of
// it: it is long and changes rarely.
type versions struct {
	mu sync.Mutex
	by map[string]inventory // address key
}

type inventory struct {
	at time.Time
	of map[string]string
}

func (v *versions) get(key string) inventory {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.by[key]
}

func (v *versions) put(key string, i inventory) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil {
		v.by = map[string]inventory{}
	}
	v.by[key] = i
}

func (v *versions) forget(address string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.by, fleet.AddressKey(address))
}

func (v *versions) keep(keys map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.by, func(key string, _ inventory) bool { return !keys[key] })
}

// firmware gives the versions of the BMC's inventory, read anew when those from
// before are old.
func (s *scan) firmware(ctx context.Context) {
	key, now := fleet.AddressKey(s.target.Address), s.client.clock()
	kept := s.client.firmware.get(key)
	if kept.of != nil && now.Sub(kept.at) < s.client.config.FirmwareEvery && !now.Before(kept.at) {
		s.f.Firmware = kept.of
		return
	}
	of, err := s.bmc.firmware(ctx)
	if err != nil {
		if class := ClassOf(err); class != ClassMissing && class != ClassUnable {
			s.lost("firmware", reason(err))
		}
		s.f.Firmware = kept.of
		return
	}
	s.client.firmware.put(key, inventory{at: now, of: of})
	s.f.Firmware = of
}

const versionLimit = 256 // that are kept of one BMC

// firmware reads the inventory of firmware. A part whose version is not given
// is left out.
func (b *bmc) firmware(ctx context.Context) (map[string]string, error) {
	uri := strings.TrimRight(b.service("UpdateService"), "/") + "/FirmwareInventory"
	members, err := b.members(ctx, uri, func(id string) bool { return !fits("Previous-*", id) && !fits("Available-*", id) })
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(members))
	for _, m := range members {
		if m.err != nil {
			return nil, m.err
		}
		if version := m.doc.text("Version"); version != "" && len(found) < versionLimit {
			found[part(id(m.uri))] = strings.Clone(sources.CleanText(version, 128))
		}
	}
	return found, nil
}

// part names the part of an inventory's entry. Dell's ids carry the version,
// which would make each update another part.
func part(id string) string {
	if fits("Installed-*__*", id) || fits("Current-*__*", id) {
		_, name, _ := strings.Cut(id, "__")
		return strings.Clone(name)
	}
	return strings.Clone(id)
}
