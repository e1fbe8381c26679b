package netbox

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// check judges an object as a whole, against the others.
func (c *change) check(o *world.Object) {
	if o.Kind != world.KindDevice {
		c.checkSlug(o)
		return
	}
	c.checkName(o)
	c.checkTag(o)
	c.checkPlace(o)
	c.checkAddresses(o)
}

// checkSlug wants slugs to be nobody else's.
func (c *change) checkSlug(o *world.Object) {
	if o.Slug == "" {
		return
	}
	for _, other := range c.s.Objects.Of(o.Kind) {
		if other.ID != o.ID && other.Slug == o.Slug {
			c.problem("slug", strings.ToLower(spaced(c.k.model))+" with this slug already exists.")
			return
		}
	}
}

// spaced takes DeviceRole apart into Device Role.
func spaced(model string) string {
	var b strings.Builder
	for i, r := range model {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// checkName wants a device's name to be its own within site and tenant, in
// whatever letters. How the tenant enters is told differently.
func (c *change) checkName(o *world.Object) {
	if o.Name == "" {
		return
	}
	for _, other := range c.s.Objects.Of(world.KindDevice) {
		if other.ID == o.ID || !strings.EqualFold(other.Name, o.Name) || other.Int("site") != o.Int("site") || other.Int("tenant") != o.Int("tenant") {
			continue
		}
		switch {
		case c.generation >= 47:
			c.problem("__all__", "Device name must be unique per site and tenant.")
		case o.Int("tenant") == 0:
			c.problem("__all__", "Device name must be unique per site.")
		default:
			c.problem("__all__", "Constraint “dcim_device_unique_name_site_tenant” is violated.")
		}
		return
	}
}

func (c *change) checkTag(o *world.Object) {
	tag := o.Text("asset_tag")
	if tag == "" {
		return
	}
	for _, other := range c.s.Objects.Of(world.KindDevice) {
		if other.ID != o.ID && other.Text("asset_tag") == tag {
			c.problem("asset_tag", "device with this asset tag already exists.")
			return
		}
	}
}

// checkPlace wants the rack to be in the site and its units to be free.
func (c *change) checkPlace(o *world.Object) {
	site, rack := c.s.Object(world.KindSite, o.Int("site")), c.s.Object(world.KindRack, o.Int("rack"))
	if rack == nil {
		return
	}
	if site != nil && rack.Int("site") != site.ID {
		c.problem("rack", fmt.Sprintf("Rack %s does not belong to site %s.", rack.Name, site.Name))
		return
	}
	position, placed := number(o.Fields["position"])
	if !placed {
		return
	}
	height := c.height(o)
	for _, other := range c.s.Objects.Of(world.KindDevice) {
		theirs, ok := number(other.Fields["position"])
		if other.ID == o.ID || !ok || other.Int("rack") != rack.ID || theirs >= position+max(height, 1) || position >= theirs+max(c.height(other), 1) {
			continue
		}
		if c.generation == 40 && theirs == position && other.Text("face") == o.Text("face") {
			c.problem("non_field_errors", "The fields rack, position, face must make a unique set.")
			return
		}
		model := ""
		if t := c.s.Object(world.KindDeviceType, o.Int("device_type")); t != nil {
			model = t.Name
		}
		c.problem("position", fmt.Sprintf("U%.1f is already occupied or does not have sufficient space to accommodate this device type: %s (%.1fU)", position, model, height))
		return
	}
}

func (c *change) height(o *world.Object) float64 {
	if t := c.s.Object(world.KindDeviceType, o.Int("device_type")); t != nil {
		height, _ := number(t.Fields["u_height"])
		return height
	}
	return 0
}

// checkAddresses wants a device's addresses to be on its own interfaces.
func (c *change) checkAddresses(o *world.Object) {
	for _, member := range []string{"primary_ip4", "oob_ip"} {
		ip := c.s.Object(world.KindIP, o.Int(member))
		if ip != nil && ip.Int("device") != o.ID {
			c.problem(member, fmt.Sprintf("The specified IP address (%s) is not assigned to this device.", ip.Name))
		}
	}
}
