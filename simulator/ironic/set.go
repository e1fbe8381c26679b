package ironic

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// setter puts a value into a field of a node; nil removes it.
type setter func(n *world.Node, value any) error

// setters are the fields that may be written, in a new node or by a patch.
var setters = map[string]setter{
	"name":             setName,
	"driver":           setDriver,
	"instance_uuid":    setInstance,
	"lessee":           setText(func(n *world.Node) *string { return &n.Lessee }),
	"owner":            setText(func(n *world.Node) *string { return &n.Owner }),
	"description":      setText(func(n *world.Node) *string { return &n.Description }),
	"resource_class":   setText(func(n *world.Node) *string { return &n.ResourceClass }),
	"conductor_group":  setText(func(n *world.Node) *string { return &n.ConductorGroup }),
	"shard":            setText(func(n *world.Node) *string { return &n.Shard }),
	"protected_reason": setText(func(n *world.Node) *string { return &n.ProtectedReason }),
	"retired_reason":   setText(func(n *world.Node) *string { return &n.RetiredReason }),
	"chassis_uuid":     func(*world.Node, any) error { return nil },
	"protected":        setFlag("protected", func(n *world.Node) *bool { return &n.Protected }),
	"retired":          setFlag("retired", func(n *world.Node) *bool { return &n.Retired }),
	"maintenance":      setMaintenance,
	"automated_clean":  setAutomatedClean,
	"driver_info":      setObject(func(n *world.Node) *map[string]any { return &n.DriverInfo }),
	"properties":       setObject(func(n *world.Node) *map[string]any { return &n.Properties }),
	"instance_info":    setObject(func(n *world.Node) *map[string]any { return &n.InstanceInfo }),
	"extra":            setObject(func(n *world.Node) *map[string]any { return &n.Extra }),
	"network_data":     setObject(func(n *world.Node) *map[string]any { return &n.NetworkData }),

	"bios_interface": setInterface("bios"), "boot_interface": setInterface("boot"), "console_interface": setInterface("console"),
	"deploy_interface": setInterface("deploy"), "inspect_interface": setInterface("inspect"), "management_interface": setInterface("management"),
	"network_interface": setInterface("network"), "power_interface": setInterface("power"), "raid_interface": setInterface("raid"),
	"rescue_interface": setInterface("rescue"), "storage_interface": setInterface("storage"), "vendor_interface": setInterface("vendor"),
}

// set writes a field that the version must have; what is the kind of document
// that an error names.
func (c *call) set(n *world.Node, what, name string, value any) error {
	if f := fieldNamed(name); f != nil && f.since > c.minor {
		return unacceptable
	}
	err := setters[name](n, value)
	if wrong, ok := err.(wrongType); ok { //nolint:errorlint // it is never wrapped
		return schemaError(what, "%s is not of type %s", python(value), string(wrong))
	}
	return err
}

// wrongType says which types a field may have.
type wrongType string

func (w wrongType) Error() string { return "it is not of type " + string(w) }

func setText(of func(*world.Node) *string) setter {
	return func(n *world.Node, value any) error {
		s, ok := value.(string)
		if value != nil && !ok {
			return wrongType("'string', 'null'")
		}
		*of(n) = s
		return nil
	}
}

func setObject(of func(*world.Node) *map[string]any) setter {
	return func(n *world.Node, value any) error {
		m, ok := value.(map[string]any)
		if value != nil && !ok {
			return wrongType("'object', 'null'")
		}
		if m == nil {
			m = map[string]any{}
		}
		*of(n) = m
		return nil
	}
}

// flag reads a boolean as Ironic does, which takes words too.
func flag(name string, value any) (bool, error) {
	switch v := value.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "1", "t", "true", "on", "y", "yes":
			return true, nil
		case "0", "f", "false", "off", "n", "no":
			return false, nil
		}
	}
	return false, refuse(http.StatusBadRequest, "Invalid %s: Unrecognized value %s, acceptable values are: '0', '1', 'f', 'false', 'n', 'no', 'off', 'on', 't', 'true', 'y', 'yes'", name, python(value))
}

func setFlag(name string, of func(*world.Node) *bool) setter {
	return func(n *world.Node, value any) (err error) {
		*of(n), err = flag(name, value)
		return err
	}
}

func setMaintenance(n *world.Node, value any) (err error) {
	n.Maintenance, err = flag("maintenance", value)
	if !n.Maintenance {
		n.Reason, n.Fault = "", ""
	}
	return err
}

func setAutomatedClean(n *world.Node, value any) error {
	if value == nil {
		n.AutomatedClean = nil
		return nil
	}
	wanted, err := flag("automated_clean", value)
	n.AutomatedClean = &wanted
	return err
}

func setName(n *world.Node, value any) error {
	name, ok := value.(string)
	switch {
	case value == nil:
		n.Name = ""
		return nil
	case !ok:
		return wrongType("'string', 'null'")
	case !validName(name) && n.Created.IsZero():
		return refuse(http.StatusBadRequest, "Cannot create node with invalid name '%s'", name)
	case !validName(name):
		return refuse(http.StatusBadRequest, "Node %s: Cannot change name to invalid name '%s'", n.UUID, name)
	}
	n.Name = name
	return nil
}

func setDriver(n *world.Node, value any) error {
	driver, ok := value.(string)
	if !ok {
		return wrongType("'string'")
	}
	n.Driver = driver
	return checkDriver(driver)
}

func setInstance(n *world.Node, value any) error {
	uuid, ok := value.(string)
	switch {
	case value == nil:
	case !ok:
		return wrongType("'string', 'null'")
	case !isUUID(uuid):
		return refuse(http.StatusBadRequest, "Expected UUID for instance_uuid: %s", uuid)
	case n.InstanceUUID != "":
		return refuse(http.StatusConflict, "Node %s is associated with instance %s.", n.UUID, n.InstanceUUID)
	}
	n.InstanceUUID = uuid
	return nil
}

func setInterface(kind string) setter {
	return func(n *world.Node, value any) error {
		name, ok := value.(string)
		switch {
		case value == nil:
			name = world.DefaultInterfaces(n.Driver)[kind]
		case !ok:
			return wrongType("'string', 'null'")
		}
		n.Interfaces[kind] = name
		return checkInterfaces(n)
	}
}

// python writes a value as Python's repr does, as far as errors show one.
func python(value any) string {
	switch v := value.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return "'" + v + "'"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = python(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, key := range sortedKeys(v) {
			parts = append(parts, python(key)+": "+python(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(value)
}
