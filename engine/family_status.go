package engine

import (
	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// status compiles the ladders of policies/status.
func (c *compiler) status(b *Bundle, values packages) {
	const dir = "policies/status"
	if v, ok := c.family(values, dir, "operational"); ok {
		b.operational = c.ladderOf(v, "operational", func(_ int, then cue.Value) {
			b.operationalGives = append(b.operationalGives, parsed(c, then, facts.ParseOperationalStatus))
		})
		for _, family := range b.operational.Reads {
			if family != "conditions" {
				c.fail(b.operational.Pos, "operational: it may read conditions only, not %s", family)
			}
		}
	}
	if v, ok := c.family(values, dir, "health"); ok {
		b.health = c.ladderOf(v, "health", func(_ int, then cue.Value) {
			b.healthGives = append(b.healthGives, parsed(c, then, facts.ParseHealthStatus))
		})
	}
	b.freeze, b.freezes = c.yesNo(values, "freeze", "frozen")
	b.customerReady, b.customerReadyYes = c.yesNo(values, "customer_ready", "yes")
	b.entered, b.enteredYes = c.yesNo(values, "entered_service", "yes")
}

// yesNo compiles a ladder of policies/status that gives one of two words.
func (c *compiler) yesNo(values packages, field, word string) (*Ladder, []bool) {
	v, ok := c.family(values, "policies/status", field)
	if !ok {
		return nil, nil
	}
	var gives []bool
	l := c.ladderOf(v, field, func(_ int, then cue.Value) { gives = append(gives, wordOf(then) == word) })
	return l, gives
}

// inventoryAxes maps one kind of inventory. Null means unmapped.
type inventoryAxes struct {
	class       *Ladder
	classes     []facts.DeviceClass
	status      *Ladder
	statusGives []facts.InventoryStatus
}

// inventory compiles the mapping of each kind of inventory source.
func (c *compiler) inventory(b *Bundle, v cue.Value) {
	c.each(v, "inventory", func(source string, entry cue.Value) {
		axes := &inventoryAxes{}
		class := entry.LookupPath(cue.ParsePath("device_class"))
		status := entry.LookupPath(cue.ParsePath("inventory_status"))
		if !class.Exists() || !status.Exists() {
			c.fail(c.posOf(entry), "inventory.%s needs the ladders device_class and inventory_status", source)
			return
		}
		axes.class = c.ladderOf(class, "inventory."+source+".device_class", func(_ int, then cue.Value) {
			axes.classes = append(axes.classes, orNull(c, then, facts.ParseDeviceClass))
		})
		axes.status = c.ladderOf(status, "inventory."+source+".inventory_status", func(_ int, then cue.Value) {
			axes.statusGives = append(axes.statusGives, orNull(c, then, facts.ParseInventoryStatus))
		})
		for _, l := range []*Ladder{axes.class, axes.status} {
			for _, family := range l.Reads {
				if family != "site" && family != recordsOf(source) {
					c.fail(l.Pos, "%s: it may read %s and site only, not %s", l.Name, recordsOf(source), family)
				}
			}
		}
		b.inventory[source] = axes
	})
}

// recordsOf is the family of facts that an inventory source fills: a recorded
// listing has NetBox's form.
func recordsOf(source string) string {
	if source == "file" {
		return "netbox"
	}
	return source
}

// orNull is parsed, with null for unmapped.
func orNull[T any](c *compiler, then cue.Value, parse func(string) (T, bool)) T {
	if then.IncompleteKind() == cue.NullKind {
		var null T
		return null
	}
	return parsed(c, then, parse)
}
