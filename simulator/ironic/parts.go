package ironic

import (
	"net/http"
	"slices"
	"sort"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// empty answers a list of what the simulated nodes have none of.
func empty(name string) func(*call, string) error {
	return func(c *call, ident string) error {
		if c.Method != http.MethodGet {
			return c.notAllowed("GET")
		}
		if _, err := c.look(ident); err != nil {
			return err
		}
		return c.send(http.StatusOK, map[string]any{name: []any{}})
	}
}

func (c *call) maintenance(ident string) error {
	switch c.Method {
	case http.MethodPut:
		args, err := c.arguments("reason")
		if err != nil {
			return err
		}
		reason, _ := args["reason"].(string)
		_, err = c.change(ident, "set maintenance", reason, func(s *world.State, n *world.Node) error {
			n.Maintenance, n.Reason, n.Updated = true, reason, s.Now
			return locked(n)
		})
		if err != nil {
			return err
		}
	case http.MethodDelete:
		_, err := c.change(ident, "clear maintenance", "", func(s *world.State, n *world.Node) error {
			if err := locked(n); err != nil {
				return err
			}
			if !n.Maintenance && n.Reason == "" && n.Fault == "" {
				return errUnchanged
			}
			n.Maintenance, n.Reason, n.Fault, n.Updated = false, "", "", s.Now
			n.SyncAt = s.Now.Add(world.PowerSync)
			return nil
		})
		if err != nil {
			return err
		}
	default:
		return c.notAllowed("DELETE, PUT")
	}
	return c.accepted(http.StatusAccepted, "")
}

// maxTraits are the most that a node may have.
const maxTraits = 50

// traits are all of a node's at once.
func (c *call) traits(ident string) error {
	if c.minor < 37 {
		return unacceptable
	}
	var wanted []string
	switch c.Method {
	case http.MethodGet:
		n, err := c.look(ident)
		if err != nil {
			return err
		}
		c.write(http.StatusOK, append(wire.QuoteAll([]byte(`{"traits": `), n.Traits), '}'))
		return nil
	case http.MethodPut:
		args, err := c.arguments("traits")
		if err != nil {
			return err
		}
		if wanted, err = traitsIn(args["traits"]); err != nil {
			return err
		}
	case http.MethodDelete:
	default:
		return c.notAllowed("DELETE, GET, PUT")
	}
	return c.setTraits(ident, "set traits", func(*world.Node) ([]string, error) { return slices.Clone(wanted), nil })
}

func traitsIn(raw any) ([]string, error) {
	if raw == nil {
		return nil, refuse(http.StatusBadRequest, "A single node trait may be added via PUT /v1/nodes/<node identifier>/traits/<trait> with no body, or all node traits "+
			"may be replaced via PUT /v1/nodes/<node identifier>/traits with the list of traits specified in the request body.")
	}
	elements, ok := raw.([]any)
	if !ok {
		return nil, schemaError("body", "%s is not of type 'array'", python(raw))
	}
	var traits []string
	for _, element := range elements {
		trait, _ := element.(string)
		if err := checkTrait("body", trait); err != nil {
			return nil, err
		}
		traits = append(traits, trait)
	}
	return traits, nil
}

// standard are the traits that the simulated Ironic knows of the many that
// OpenStack has names for.
var standard = []string{"HW_CPU_X86_VMX", "HW_CPU_X86_AVX2", "HW_GPU_CUDA_SDK", "HW_NIC_SRIOV", "HW_BOOT_MODE_UEFI", "COMPUTE_TRUSTED_CERTS"}

func checkTrait(what, trait string) error {
	if world.CustomTrait(trait) || slices.Contains(standard, trait) {
		return nil
	}
	return schemaError(what, "%s is not valid under any of the given schemas. Possible root cause: %s does not match '^CUSTOM_[A-Z0-9_]+$'", python(trait), python(trait))
}

// trait adds or removes one.
func (c *call) trait(ident, trait string) error {
	if c.minor < 37 {
		return unacceptable
	}
	switch c.Method {
	case http.MethodPut:
		if err := checkTrait("trait", trait); err != nil {
			return err
		}
		c.Header().Set("Location", c.base+"/v1/nodes/"+ident+"/traits/"+trait)
		return c.setTraits(ident, "add trait "+trait, func(n *world.Node) ([]string, error) { return append(slices.Clone(n.Traits), trait), nil })
	case http.MethodDelete:
		return c.setTraits(ident, "remove trait "+trait, func(n *world.Node) ([]string, error) {
			if !slices.Contains(n.Traits, trait) {
				return nil, refuse(http.StatusNotFound, "Node %s doesn't have a trait '%s'", n.UUID, trait)
			}
			return slices.DeleteFunc(slices.Clone(n.Traits), func(t string) bool { return t == trait }), nil
		})
	}
	return c.notAllowed("DELETE, GET, PUT")
}

func (c *call) setTraits(ident, op string, wanted func(*world.Node) ([]string, error)) error {
	_, err := c.change(ident, op, "", func(s *world.State, n *world.Node) error {
		if err := locked(n); err != nil {
			return err
		}
		traits, err := wanted(n)
		if err != nil {
			return err
		}
		sort.Strings(traits)
		traits = slices.Compact(traits)
		if len(traits) > maxTraits {
			return refuse(http.StatusBadRequest, "Could not modify traits for node %d as it would exceed the maximum number of traits per node (%d vs. %d)", n.ID, len(traits), maxTraits)
		}
		if slices.Equal(traits, n.Traits) {
			return errUnchanged
		}
		n.Traits, n.Updated = traits, s.Now
		return nil
	})
	if err != nil {
		return err
	}
	return c.accepted(http.StatusNoContent, "")
}

// validate tells which interfaces could work.
func (c *call) validate(ident string) error {
	if c.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	answer := map[string]any{}
	for _, kind := range []string{"boot", "deploy", "management", "network", "power", "bios", "console", "inspect", "raid", "rescue", "storage"} {
		answer[kind] = verdict(n, kind)
	}
	return c.send(http.StatusOK, answer)
}

func verdict(n *world.Node, kind string) map[string]any {
	say := func(reason string) map[string]any { return map[string]any{"result": false, "reason": reason} }
	name := n.Interfaces[kind]
	switch {
	case name == "no-"+kind:
		return map[string]any{"result": nil, "reason": "Driver " + n.Driver + " does not support " + kind + " (disabled or not implemented)."}
	case name == "redfish" && n.DriverInfo["redfish_address"] == nil:
		return say("Missing the following Redfish properties in node's driver_info: ['redfish_address']")
	case kind == "deploy" && name == "direct" && n.InstanceInfo["image_source"] == nil:
		return say("Cannot validate image information for node " + n.UUID + " because one or more parameters are missing from its instance_info and " +
			"insufficient information is present to boot from a remote volume. Missing are: ['instance_info.image_source']")
	}
	return map[string]any{"result": true}
}

// devices are what a simulated node boots from.
func devices(n *world.Node) []string {
	if n.Interfaces["management"] == "redfish" {
		return []string{"pxe", "disk", "cdrom", "bios"}
	}
	return []string{"pxe"}
}

func (c *call) bootDevices(ident string) error {
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"supported_boot_devices": devices(n)})
}

func (c *call) bootDevice(ident string) error {
	switch c.Method {
	case http.MethodGet:
		n, err := c.look(ident)
		if err != nil {
			return err
		}
		device := n.BootDevice
		if device == "" {
			device = devices(n)[0]
		}
		return c.send(http.StatusOK, map[string]any{"boot_device": device, "persistent": n.BootPersistent})
	case http.MethodPut:
		args, err := c.arguments("boot_device", "persistent")
		if err != nil {
			return err
		}
		device, _ := args["boot_device"].(string)
		persistent, err := flag("persistent", args["persistent"])
		if err != nil {
			return err
		}
		_, err = c.change(ident, "set boot device "+device, "", func(s *world.State, n *world.Node) error {
			if !slices.Contains(devices(n), device) {
				return refuse(http.StatusBadRequest, "Invalid boot device %s specified.", device)
			}
			if err := locked(n); err != nil {
				return err
			}
			n.BootDevice, n.BootPersistent, n.Updated = device, persistent, s.Now
			return nil
		})
		if err != nil {
			return err
		}
		return c.accepted(http.StatusNoContent, "")
	}
	return c.notAllowed("GET, PUT")
}
