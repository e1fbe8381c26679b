package devices

import (
	"maps"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// inventoryWriter is the writer whose unread are axes. No policy names it.
const inventoryWriter = "inventory"

// Reasons of an axis or a type that was not read.
const (
	ReasonRoleUnmapped   = "RoleUnmapped"
	ReasonStatusUnmapped = "StatusUnmapped"
	ReasonFieldNotServed = "FieldNotServed"
	ReasonDecodeFailed   = "DecodeFailed"
	ReasonMissing        = "MissingUnconfirmed"
	ReasonAmbiguous      = "JoinAmbiguous"
	ReasonNoLonger       = "NoLongerObserved"
	ReasonSiteMove       = "SiteMovePending" // its record is of another of our sites, and work here holds it

	// A new class that would take the device out of a scope waits until the end
	// of the sweep that brought it, and for a person where that sweep would take
	// too many at once.
	ReasonClassUnconfirmed = "ClassUnconfirmed"
)

// inventoryAxes takes the axes that the site's inventory source gives. What it
// does not give keeps its last value and is unread.
func (r *round) inventoryAxes(s *subject) error {
	source := r.site.Spec.InventorySource()
	stored := s.stored[source]
	if stored == nil {
		return nil
	}
	d := &s.device
	unread := map[string]string{}
	s.inventoryRung = ""
	switch {
	case gone(stored) && stored.Trouble.Reason == "":
		if d.AbsentSince.IsZero() {
			d.AbsentSince = stored.SeenAt
		}
		if d.Inventory != facts.InventoryStatusUnknown {
			d.Inventory, s.inventoryRung = facts.InventoryStatusUnknown, "absent"
		}
		if err := r.retire(s, source); err != nil {
			return err
		}
	case stored.Trouble.Reason != "":
		for _, axis := range axesOf(source) {
			unread[axis] = stored.Trouble.Reason
		}
	default:
		d.AbsentSince, d.RetiredAt = zero, zero
		r.readAxes(s, source, stored, unread)
		if err := s.otherBMC(); err != nil {
			return err
		}
	}
	r.putAxes(s, unread)
	return nil
}

// gone tells whether a source was read to its end without the device.
func gone(stored *fleet.Stored) bool { return stored.RefGone }

// otherBMC ends what was read at an address that is not the device's any more:
// another machine may answer there.
func (s *subject) otherBMC() error {
	stored := s.stored["bmc"]
	if stored == nil || stored.RefGone || fleet.AddressKey(stored.Ref) == s.device.BMCAddress {
		return nil
	}
	err := s.lose(stored, stored.SeenAt)
	s.assemble()
	return err
}

// retire takes a device out of everything that has been absent for too long, or
// that a person says is really gone. The other sources' refs are let go: the
// machine that takes its place may have the same host name.
func (r *round) retire(s *subject, inventory string) error {
	d := &s.device
	if d.RetiredAt.IsZero() {
		at := d.AbsentSince.Add(r.limits.InventoryGrace)
		if r.now.Before(at) && !s.confirmedGone {
			s.due = fleet.Earlier(s.due, at)
			return nil
		}
		d.RetiredAt = r.now
	}
	for source, stored := range s.stored {
		if source == inventory || stored.RefGone {
			continue
		}
		if err := s.lose(stored, stored.SeenAt); err != nil {
			return err
		}
	}
	s.assemble()
	return nil
}

func axesOf(source string) []string {
	axes := []string{"name", "serial", "bmc_address", "resource_class", "device_class", "inventory_status"}
	if source != "ironic" {
		axes = append(axes, "rack", "position")
	}
	return axes
}

// readAxes maps a record that was read. unread gets the axes that it left out.
func (r *round) readAxes(s *subject, source string, stored *fleet.Stored, unread map[string]string) {
	d := &s.device
	n, i := &s.facts.Netbox, &s.facts.Ironic
	take := func(axis string, value facts.Text, into *string) {
		if value.Known {
			*into = value.Value
			return
		}
		unread[axis] = ReasonFieldNotServed
	}
	name, address, class, broken := n.Name, n.OobIP, n.ResourceClass, n.Unreadable
	if source == "ironic" {
		name, address, class, broken = i.Name, i.BMCAddress, i.ResourceClass, i.Unreadable
		take("serial", facts.Text{Value: stored.Serial, Known: stored.Serial != ""}, &d.Serial)
	} else {
		take("serial", facts.Text{Value: stored.Serial, Known: stored.Serial != "" || n.Serial.Known}, &d.Serial)
		take("position", n.Position, &d.Position)
		r.takeRack(s, n.Rack, unread)
	}
	if name.Value != "" { // a node may have none: it keeps the name it was born with
		d.Name = name.Value
	}
	address.Value = fleet.AddressKey(address.Value)
	take("bmc_address", address, &d.BMCAddress)
	if source != "ironic" && !joined(s.stored["ironic"]) || source == "ironic" {
		take("resource_class", class, &d.ResourceClass)
	}
	r.mapped(s, source, unread)
	for axis := range unread {
		if broken[axisFact(source, axis)] != "" {
			unread[axis] = ReasonDecodeFailed
		}
	}
}

// axisFact names the fact of a source that an axis is read from.
func axisFact(source, axis string) string {
	if source == "ironic" {
		return axis
	}
	switch axis {
	case "device_class":
		return "role"
	case "inventory_status":
		return "status"
	case "bmc_address":
		return "oob_ip"
	}
	return axis
}

func (r *round) takeRack(s *subject, rack facts.Text, unread map[string]string) {
	switch id := r.rackIDs[rack.Value]; {
	case !rack.Known:
		unread["rack"] = ReasonFieldNotServed
	case rack.Value == "":
		s.device.RackID = 0
	case r.rackNames[s.device.RackID] != rack.Value && id != 0:
		s.device.RackID = id
	}
}

// mapped takes what the policy makes of role and status.
func (r *round) mapped(s *subject, source string, unread map[string]string) {
	r.complete(s)
	class, status, _, rung := r.bundle.Inventory(source, &s.facts, &s.codes)
	switch {
	case class.Null():
		unread["device_class"] = ReasonRoleUnmapped
	case class != s.device.Class && r.heldBack(s, source, class):
		unread["device_class"] = ReasonClassUnconfirmed
	default:
		s.device.Class = class
	}
	if status.Null() {
		unread["inventory_status"] = ReasonStatusUnmapped
	} else {
		s.device.Inventory, s.inventoryRung = status, rung
	}
}

// heldBack tells whether a class that a record has brought would take the device
// out of a scope, and nobody has said yet that it may. What a new policy or site
// makes of the same record is its author's will and waits for nobody.
func (r *round) heldBack(s *subject, source string, class facts.DeviceClass) bool {
	waits := s.writers[inventoryWriter].Unread["device_class"].Reason == ReasonClassUnconfirmed
	if s.born || s.reclassify || !waits && !s.newFacts[source] {
		return false
	}
	return r.scopeAs(s, s.device.Class)&^r.scopeAs(s, class) != 0
}

// scopeAs gives the writers whose scope the device would be in by another class.
func (r *round) scopeAs(s *subject, class facts.DeviceClass) uint64 {
	was := s.device.Class
	s.device.Class = class
	r.complete(s)
	scope := r.observe(s)
	s.device.Class = was
	return scope
}

// joined tells whether an Ironic node is at hand.
func joined(stored *fleet.Stored) bool { return stored != nil && !stored.RefGone && stored.Ref != "" }

// putAxes writes inventory's row where it changes.
func (r *round) putAxes(s *subject, reasons map[string]string) {
	old, had := s.writers[inventoryWriter]
	unread := r.since(old.Unread, reasons, nil)
	in := s.device.RetiredAt.IsZero()
	if had && old.InScope == in && sameUnread(old.Unread, unread) {
		return
	}
	s.writers[inventoryWriter] = fleet.DeviceWriter{DeviceID: s.device.ID, Writer: inventoryWriter, InScope: in, Unread: unread}
	s.newWriters[inventoryWriter] = true
}

// since dates reasons: what was unread already is so since then.
func (r *round) since(old map[string]fleet.Unread, reasons map[string]string, known map[string]fleet.Unread) map[string]fleet.Unread {
	unread := make(map[string]fleet.Unread, len(reasons))
	for name, reason := range reasons {
		u := fleet.Unread{Reason: reason, Since: r.now}
		if was, ok := old[name]; ok {
			u.Since = was.Since
		} else if k, ok := known[name]; ok {
			u.Since = k.Since
		}
		unread[name] = u
	}
	return unread
}

func sameUnread(a, b map[string]fleet.Unread) bool {
	return maps.EqualFunc(a, b, func(x, y fleet.Unread) bool { return x.Reason == y.Reason && x.Since.Equal(y.Since) })
}

// mirrors copies what the sources said last into the device's row. A fact that
// was not read keeps the mirror.
func (r *round) mirrors(s *subject) {
	d := &s.device
	if node := s.stored["ironic"]; node != nil {
		if gone(node) {
			d.InfrastructureRef, d.IronicProvisionState, d.FailureReason = "", 0, ""
		} else {
			d.InfrastructureRef = node.Ref
			if !s.facts.Ironic.ProvisionState.Null() {
				d.IronicProvisionState = s.facts.Ironic.ProvisionState
			}
			if class := s.facts.Ironic.ResourceClass; class.Value != "" {
				d.ResourceClass = class.Value
			}
		}
	}
	if node := s.stored["slurm"]; node != nil {
		if gone(node) {
			d.SlurmStates = 0
		} else if s.facts.Slurm.States != 0 {
			d.SlurmStates = s.facts.Slurm.States
		}
	}
	if bmc := s.stored["bmc"]; bmc != nil && (gone(bmc) || tellsChassis(&s.facts.BMC)) {
		d.ChassisHealth = s.facts.BMC.ChassisHealth
	}
	if s.swapped || d.InventoryOnly || !d.RetiredAt.IsZero() || !enrolled(d.Class) {
		d.Proof = fleet.Proof{Source: proofNone}
	}
}

// proofNone is the source of a proof that is not there.
const proofNone = "none"

// enrolled are the classes whose identity an enrolment proves.
func enrolled(class facts.DeviceClass) bool {
	switch class {
	case facts.DeviceClassGpuCompute, facts.DeviceClassCpuBaremetal, facts.DeviceClassCpuHypervisor:
		return true
	}
	return false
}
