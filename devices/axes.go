package devices

import (
	"maps"
	"strings"

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
	ReasonNoLonger       = "NoLongerObserved"
)

// inventoryAxes takes the axes that the site's inventory source gives. What it
// does not give keeps its last value and is unread.
func (r *round) inventoryAxes(s *subject) {
	source := r.site.Spec.InventorySource()
	stored := s.stored[source]
	if stored == nil {
		return
	}
	d := &s.device
	unread := map[string]string{}
	s.inventoryRung = ""
	switch {
	case gone(stored):
		if d.AbsentSince.IsZero() {
			d.AbsentSince = stored.SeenAt
		}
		if d.Inventory != facts.InventoryStatusUnknown {
			d.Inventory, s.inventoryRung = facts.InventoryStatusUnknown, "absent"
		}
	case stored.Trouble.Reason != "":
		for _, axis := range axesOf(source) {
			unread[axis] = stored.Trouble.Reason
		}
	default:
		d.AbsentSince, d.RetiredAt = zero, zero
		r.readAxes(s, source, stored, unread)
	}
	r.retire(s)
	r.putAxes(s, unread)
}

// gone tells whether a source was read to its end without the device.
func gone(stored *fleet.Stored) bool { return stored.RefGone }

// retire takes a device out of everything that has been absent for too long.
func (r *round) retire(s *subject) {
	d := &s.device
	if d.AbsentSince.IsZero() || !d.RetiredAt.IsZero() {
		return
	}
	at := d.AbsentSince.Add(r.limits.InventoryGrace)
	if r.now.Before(at) {
		s.due = fleet.Earlier(s.due, at)
		return
	}
	d.RetiredAt = r.now
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
	address.Value, _, _ = strings.Cut(address.Value, "/")
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
	if class.Null() {
		unread["device_class"] = ReasonRoleUnmapped
	} else {
		s.device.Class = class
	}
	if status.Null() {
		unread["inventory_status"] = ReasonStatusUnmapped
	} else {
		s.device.Inventory, s.inventoryRung = status, rung
	}
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
	if s.stored["bmc"] != nil {
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
