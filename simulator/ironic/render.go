package ironic

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// field is one field of a node's document.
type field struct {
	name   string
	since  int  // the version that has it
	hidden bool // shown, but not to be asked for by name
	put    func(b []byte, n *world.Node) []byte
}

// fields are those of a node, in the order of Ironic's answers.
var fields = []field{
	{"uuid", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.UUID) }},
	{"created_at", 1, true, func(b []byte, n *world.Node) []byte { return instant(b, n.Created) }},
	{"updated_at", 1, true, func(b []byte, n *world.Node) []byte { return instant(b, n.Updated) }},
	{"automated_clean", 47, false, func(b []byte, n *world.Node) []byte {
		if n.AutomatedClean == nil {
			return append(b, "null"...)
		}
		return strconv.AppendBool(b, *n.AutomatedClean)
	}},
	{"bios_interface", 40, false, iface("bios")},
	{"boot_interface", 31, false, iface("boot")},
	{"boot_mode", 75, false, constant(`null`)},
	{"clean_step", 7, false, step(world.WorkClean)},
	{"conductor_group", 46, false, func(b []byte, n *world.Node) []byte { return wire.Quote(b, n.ConductorGroup) }},
	{"console_enabled", 1, false, constant(`false`)},
	{"console_interface", 31, false, iface("console")},
	{"deploy_interface", 31, false, iface("deploy")},
	{"deploy_step", 44, false, step(world.WorkDeploy)},
	{"description", 51, false, func(b []byte, n *world.Node) []byte { return text(b, n.Description) }},
	{"driver", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.Driver) }},
	{"driver_info", 1, false, func(b []byte, n *world.Node) []byte { return object(b, masked(n.DriverInfo)) }},
	{"driver_internal_info", 3, false, constant(`{}`)},
	{"extra", 1, false, func(b []byte, n *world.Node) []byte { return object(b, n.Extra) }},
	{"fault", 42, false, func(b []byte, n *world.Node) []byte { return text(b, n.Fault) }},
	{"inspection_finished_at", 6, false, func(b []byte, n *world.Node) []byte { return instant(b, n.InspectFinished) }},
	{"inspection_started_at", 6, false, func(b []byte, n *world.Node) []byte { return instant(b, n.InspectStarted) }},
	{"inspect_interface", 31, false, iface("inspect")},
	{"instance_info", 1, false, func(b []byte, n *world.Node) []byte { return object(b, masked(n.InstanceInfo)) }},
	{"instance_uuid", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.InstanceUUID) }},
	{"last_error", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.LastError) }},
	{"lessee", 65, false, func(b []byte, n *world.Node) []byte { return text(b, n.Lessee) }},
	{"maintenance", 1, false, func(b []byte, n *world.Node) []byte { return strconv.AppendBool(b, n.Maintenance) }},
	{"maintenance_reason", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.Reason) }},
	{"management_interface", 31, false, iface("management")},
	{"name", 5, false, func(b []byte, n *world.Node) []byte { return text(b, n.Name) }},
	{"network_data", 66, false, func(b []byte, n *world.Node) []byte { return object(b, n.NetworkData) }},
	{"network_interface", 20, false, iface("network")},
	{"owner", 50, false, func(b []byte, n *world.Node) []byte { return text(b, n.Owner) }},
	{"power_interface", 31, false, iface("power")},
	{"power_state", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.PowerState) }},
	{"properties", 1, false, func(b []byte, n *world.Node) []byte { return object(b, n.Properties) }},
	{"protected", 48, false, func(b []byte, n *world.Node) []byte { return strconv.AppendBool(b, n.Protected) }},
	{"protected_reason", 48, false, func(b []byte, n *world.Node) []byte { return text(b, n.ProtectedReason) }},
	{"provision_state", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.ProvisionState) }},
	{"provision_updated_at", 1, false, func(b []byte, n *world.Node) []byte { return instant(b, n.Provisioned) }},
	{"raid_config", 12, false, constant(`{}`)},
	{"raid_interface", 31, false, iface("raid")},
	{"rescue_interface", 38, false, iface("rescue")},
	{"reservation", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.Reservation) }},
	{"resource_class", 21, false, func(b []byte, n *world.Node) []byte { return text(b, n.ResourceClass) }},
	{"retired", 61, false, func(b []byte, n *world.Node) []byte { return strconv.AppendBool(b, n.Retired) }},
	{"retired_reason", 61, false, func(b []byte, n *world.Node) []byte { return text(b, n.RetiredReason) }},
	{"secure_boot", 75, false, constant(`null`)},
	{"shard", 82, false, func(b []byte, n *world.Node) []byte { return text(b, n.Shard) }},
	{"storage_interface", 33, false, iface("storage")},
	{"target_power_state", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.TargetPower) }},
	{"target_provision_state", 1, false, func(b []byte, n *world.Node) []byte { return text(b, n.TargetProvision) }},
	{"target_raid_config", 12, false, constant(`{}`)},
	{"traits", 37, false, func(b []byte, n *world.Node) []byte { return wire.QuoteAll(b, n.Traits) }},
	{"vendor_interface", 31, false, iface("vendor")},
	{"conductor", 49, false, func(b []byte, n *world.Node) []byte { return text(b, world.Conductor(n.Site)) }},
	{"allocation_uuid", 52, false, constant(`null`)},
	{"chassis_uuid", 1, false, constant(`null`)},
}

// summary are the fields of a listing that asks for none.
var summary = []string{"instance_uuid", "maintenance", "power_state", "provision_state", "uuid", "name"}

func fieldNamed(name string) *field {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &fields[i]
}

func constant(value string) func([]byte, *world.Node) []byte {
	return func(b []byte, _ *world.Node) []byte { return append(b, value...) }
}

func iface(kind string) func([]byte, *world.Node) []byte {
	return func(b []byte, n *world.Node) []byte { return text(b, n.Interfaces[kind]) }
}

// step shows the step that a work is at, as far as a step is known.
func step(work string) func([]byte, *world.Node) []byte {
	return func(b []byte, n *world.Node) []byte {
		if n.Work != work || len(n.Ahead) > 0 {
			return append(b, `{}`...)
		}
		if len(n.Steps) > 0 {
			return object(b, map[string]any{"interface": n.Steps[0].Interface, "step": n.Steps[0].Step, "priority": 0, "abortable": false})
		}
		if work == world.WorkDeploy {
			return append(b, `{"interface": "deploy", "step": "write_image", "priority": 80}`...)
		}
		return append(b, `{"interface": "deploy", "step": "erase_devices_metadata", "priority": 99, "abortable": true}`...)
	}
}

// text writes a text, null where it is empty.
func text(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return wire.Quote(b, s)
}

func object(b []byte, m map[string]any) []byte {
	if len(m) == 0 {
		return append(b, "{}"...)
	}
	return wire.Value(b, m)
}

func instant(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return append(b, "null"...)
	}
	return wire.Time(b, at.UTC(), "2006-01-02T15:04:05.000000-07:00")
}

// masked hides what Ironic shows to nobody.
func masked(info map[string]any) map[string]any {
	var shown map[string]any
	for key := range info {
		if !secret(key) {
			continue
		}
		if shown == nil {
			shown = make(map[string]any, len(info))
			for k, v := range info {
				shown[k] = v
			}
		}
		shown[key] = "******"
	}
	if shown == nil {
		return info
	}
	return shown
}

func secret(key string) bool {
	for _, part := range []string{"password", "secret", "token", "configdrive", "image_url"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return false
}

// document writes a node: all of it that the version has, or the named fields.
func (c *call) document(b []byte, n *world.Node, names []*field, whole bool) []byte {
	b = append(b, '{')
	for i, f := range names {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '"')
		b = append(b, f.name...)
		b = append(b, `": `...)
		b = f.put(b, n)
	}
	if len(names) > 0 {
		b = append(b, ", "...)
	}
	b = c.links(append(b, `"links": `...), "nodes/"+n.UUID)
	if whole {
		for _, part := range [...]string{"ports", "states", "portgroups", "volume"} {
			b = append(b, `, "`...)
			b = append(b, part...)
			b = c.links(append(b, `": `...), "nodes/"+n.UUID+"/"+part)
		}
	}
	return append(b, '}')
}

func (c *call) links(b []byte, path string) []byte {
	b = append(b, `[{"href": "`...)
	b = append(append(append(b, c.base...), "/v1/"...), path...)
	b = append(b, `", "rel": "self"}, {"href": "`...)
	b = append(append(append(b, c.base...), '/'), path...)
	return append(b, `", "rel": "bookmark"}]`...)
}

// served are the fields that the call's version has.
func (c *call) served() []*field {
	var at []*field
	for i := range fields {
		if fields[i].since <= c.minor {
			at = append(at, &fields[i])
		}
	}
	return at
}

// sendNode answers with a whole node.
func (c *call) sendNode(status int, n *world.Node) error {
	c.write(status, c.document(nil, n, c.served(), true))
	return nil
}
