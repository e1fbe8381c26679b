package engine

import (
	"github.com/musterhq/muster/facts"
)

// Health derives the health status from the BMC's reading and from the status
// before. The caller sets bmc.chassis_health to null when it is older than
// Limits.HealthHold.
func (b *Bundle) Health(f *facts.Facts, c *facts.Codes) (status facts.HealthStatus, rung string) {
	in := input{facts: f, codes: c}
	i := b.health.first(&in)
	return b.healthGives[i], b.health.RungName(i)
}

// Frozen says whether the operational status is left as it is, and by which
// rung.
func (b *Bundle) Frozen(f *facts.Facts, c *facts.Codes) (rung string, frozen bool) {
	in := input{facts: f, codes: c}
	i := b.freeze.first(&in)
	return b.freeze.RungName(i), b.freezes[i]
}

// CustomerReady gives the column of that name from the axes of a device.
func (b *Bundle) CustomerReady(f *facts.Facts, c *facts.Codes) bool {
	in := input{facts: f, codes: c}
	return b.customerReadyYes[b.customerReady.first(&in)]
}

// CleanRemovesTrait says whether a clean takes the customers' trait off the node
// of a device, and by which rung. The device and its site are all that it is
// judged by. A bundle that says nothing of it leaves the trait alone, by no rung.
func (b *Bundle) CleanRemovesTrait(f *facts.Facts, c *facts.Codes) (rung string, removes bool) {
	if b.cleanTrait == nil {
		return "", false
	}
	in := input{facts: f, codes: c}
	i := b.cleanTrait.first(&in)
	return b.cleanTrait.RungName(i), b.cleanTraitYes[i]
}

// EntersService says whether a device that first has this status enters
// service by it.
func (b *Bundle) EntersService(status facts.OperationalStatus) bool {
	var f facts.Facts
	var c facts.Codes
	f.Device.OperationalStatus = status
	f.Intern(&c)
	in := input{facts: &f, codes: &c}
	return b.enteredYes[b.entered.first(&in)]
}

// Inventory maps what an inventory source (netbox, ironic, file) says of a
// machine. A null class or status is unmapped: the device keeps its own. An
// unknown source maps nothing and names no rung.
func (b *Bundle) Inventory(source string, f *facts.Facts, c *facts.Codes) (class facts.DeviceClass, status facts.InventoryStatus, classRung, statusRung string) {
	axes, ok := b.inventory[source]
	if !ok {
		return class, status, "", ""
	}
	in := input{facts: f, codes: c}
	i, j := axes.class.first(&in), axes.status.first(&in)
	return axes.classes[i], axes.statusGives[j], axes.class.RungName(i), axes.status.RungName(j)
}
