package recording

import (
	"errors"
	"math/bits"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// ErrNoDevice says that a folder has no such device.
var ErrNoDevice = errors.New("no such device")

// Judgement is what a bundle makes of a device's facts, read just now and for
// the first time: nothing is stale, there is no status before.
type Judgement struct {
	Device     *Device
	Facts      facts.Facts // completed
	Standing   engine.Standing
	Derived    bool // some writer that feeds the status has it in its scope
	Status     engine.StatusTrace
	Health     engine.Trace
	Ready      engine.Trace
	Class      engine.Trace
	Inventory  engine.Trace
	Mapped     bool // the policies map the site's inventory
	Scopes     []Scope
	Conditions []Condition // of writers that have the device in their scope, by name
}

// Scope says whether a writer speaks of the device.
type Scope struct {
	Writer string
	In     bool
	Trace  engine.Trace
}

// Condition is what one type's emission gives.
type Condition struct {
	Type  string
	Trace engine.Trace
}

// Judge judges a device by a bundle.
func Judge(b *engine.Bundle, d *Device, now time.Time) *Judgement {
	j := &Judgement{Device: d, Facts: d.Facts}
	f := &j.Facts
	var codes facts.Codes
	complete := func() {
		c := d.Site.Context(fleet.Proof{}, now, b.Limits().OverdueAfter)
		facts.Complete(f, &c)
		f.Intern(&codes)
	}
	f.Site = d.Site.Facts()
	f.Device = d.axes()
	complete()
	j.inventory(b, &codes)
	complete()
	j.observe(b, &codes)
	j.Standing.Status = facts.OperationalStatusUnknown
	if j.Derived = j.feeds(b); j.Derived {
		j.Status = b.ExplainStatus(&j.Standing)
		f.Device.OperationalStatus = j.Status.Verdict.Status
	}
	f.Device.HealthStatus = facts.HealthStatusUnknown
	complete()
	j.Health = b.ExplainHealth(f)
	f.Device.HealthStatus, _ = facts.ParseHealthStatus(j.Health.Outcome)
	complete()
	j.Ready = b.ExplainCustomerReady(f)
	return j
}

// axes gives the device's own facts before any judgement.
func (d *Device) axes() facts.Device {
	known := func(s string) facts.Text { return facts.Text{Value: s, Known: s != ""} }
	a := facts.Device{
		Name: d.Name, DeviceClass: facts.DeviceClassOther, InventoryStatus: facts.InventoryStatusUnknown,
		OperationalStatus: facts.OperationalStatusUnknown, HealthStatus: facts.HealthStatusUnknown,
		InventoryOnly: d.Site.InventoryOnly, Serial: known(d.Serial), BMCAddress: known(d.address()),
		InfrastructureRef: known(d.Refs["ironic"]), Rack: d.Facts.Netbox.Rack, ResourceClass: d.Facts.Netbox.ResourceClass,
	}
	if class := d.Facts.Ironic.ResourceClass; class.Value != "" {
		a.ResourceClass = class
	}
	return a
}

func (j *Judgement) inventory(b *engine.Bundle, codes *facts.Codes) {
	source := j.Device.Site.InventorySource()
	class, status, _, _ := b.Inventory(source, &j.Facts, codes)
	if !class.Null() {
		j.Facts.Device.DeviceClass = class
	}
	if !status.Null() {
		j.Facts.Device.InventoryStatus = status
	}
	j.Class, j.Inventory, j.Mapped = b.ExplainInventory(source, &j.Facts)
}

// observe lets every writer speak that has the device in its scope. A scope may
// rest on what another writer says, so scopes are asked until none changes.
func (j *Judgement) observe(b *engine.Bundle, codes *facts.Codes) {
	writers := b.Writers()
	in := make([]bool, len(writers))
	for changed, rounds := true, 0; changed && rounds <= len(writers); rounds++ {
		changed = false
		for i := range writers {
			if in[i] || writers[i].Scope == nil || !b.InScope(i, &j.Facts, codes, j.Standing.Masks) {
				continue
			}
			in[i], changed = true, true
			var seen engine.Observed
			b.Observe(i, &j.Facts, codes, &seen)
			s := &j.Standing
			s.InScope |= writers[i].Emits
			s.True |= seen.True &^ seen.NotRead
			s.Unknown |= seen.Unknown &^ seen.NotRead
			s.Present |= writers[i].Emits &^ seen.NotRead
			s.Stale |= writers[i].Emits & seen.NotRead
		}
	}
	for i := range writers {
		if trace, ok := b.ExplainScope(i, &j.Facts, j.Standing.Masks); ok {
			j.Scopes = append(j.Scopes, Scope{writers[i].Name, in[i], trace})
		}
	}
	for _, t := range b.Catalogue() {
		if trace, ok := b.ExplainCondition(t.Name, &j.Facts); ok && j.Standing.InScope>>t.Bit&1 == 1 {
			j.Conditions = append(j.Conditions, Condition{t.Name, trace})
		}
	}
}

// feeds tells whether a type in scope has a say in the operational status: of a
// device that nothing feeds none is derived.
func (j *Judgement) feeds(b *engine.Bundle) bool {
	if j.Device.Site.InventoryOnly {
		return false
	}
	for left := j.Standing.InScope; left != 0; left &= left - 1 {
		if t := b.TypeOf(uint8(bits.TrailingZeros64(left))); t != nil && t.Feeds == "operational" {
			return true
		}
	}
	return false
}
