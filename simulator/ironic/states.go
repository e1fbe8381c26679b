package ironic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// stateFields are what a node's states say.
var stateFields = []string{
	"console_enabled", "last_error", "power_state", "provision_state", "target_power_state", "target_provision_state", "provision_updated_at",
	"raid_config", "target_raid_config", "boot_mode", "secure_boot",
}

func (c *call) states(ident string) error {
	if c.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	b := []byte{'{'}
	for _, name := range stateFields {
		f := fieldNamed(name)
		if f.since > c.minor {
			continue
		}
		if len(b) > 1 {
			b = append(b, ", "...)
		}
		b = f.put(append(append(append(b, '"'), name...), `": `...), n)
	}
	c.write(http.StatusOK, append(b, '}'))
	return nil
}

// sinceVerb are the versions that brought the verbs.
var sinceVerb = map[string]int{
	"manage": 4, "provide": 4, "inspect": 6, "abort": 13, "clean": 15, "adopt": 17, "rescue": 38, "unrescue": 38, "deploy": 73, "undeploy": 73,
}

// other names of verbs
var aliases = map[string]string{"deploy": "active", "undeploy": "deleted"}

// order is what is asked of a node's provision state.
type order struct {
	target    string // as it was asked for
	verb      string
	steps     []world.Step
	hasSteps  bool
	password  *string
	configure any // the config drive
}

func (c *call) provision(ident string) error {
	if c.Method != http.MethodPut {
		return c.notAllowed("PUT")
	}
	o, err := c.order()
	if err != nil {
		return err
	}
	_, err = c.change(ident, "set provision "+o.verb, stepsText(o.steps), func(s *world.State, n *world.Node) error {
		if err := c.orderable(n, o); err != nil {
			return err
		}
		if err := deployable(n, o); err != nil {
			return err
		}
		o.prepare(n)
		s.Verb(n, o.verb)
		return nil
	})
	if err != nil {
		return err
	}
	return c.accepted(http.StatusAccepted, "/v1/nodes/"+ident+"/states")
}

func (c *call) order() (*order, error) {
	args, err := c.arguments("target", "configdrive", "clean_steps", "deploy_steps", "rescue_password", "disable_ramdisk")
	if err != nil {
		return nil, err
	}
	target, ok := args["target"].(string)
	if !ok {
		return nil, refuse(http.StatusBadRequest, "Missing mandatory parameter: target")
	}
	if sinceVerb[target] > c.minor {
		return nil, unacceptable
	}
	if err := c.checkDrive(target, args["configdrive"]); err != nil {
		return nil, err
	}
	o := &order{target: target, verb: target, configure: args["configdrive"]}
	if alias := aliases[target]; alias != "" {
		o.verb = alias
	}
	if password, given := args["rescue_password"].(string); given {
		o.password = &password
	}
	if o.steps, err = cleanSteps(args["clean_steps"]); err != nil {
		return nil, err
	}
	steps, _ := args["clean_steps"].([]any)
	o.hasSteps = len(steps) > 0
	return o, nil
}

// checkDrive refuses a config drive that has no place or no form.
func (c *call) checkDrive(target string, drive any) error {
	if drive == nil {
		return nil
	}
	_, isText := drive.(string)
	m, isObject := drive.(map[string]any)
	odd := !isText && !isObject
	for key := range m {
		odd = odd || !slices.Contains([]string{"meta_data", "network_data", "user_data", "vendor_data"}, key)
	}
	switch {
	case target != "active" && (target != "rebuild" || c.minor < 35):
		return refuse(http.StatusBadRequest, "Adding a config drive is only supported when setting provision state to active, rebuild")
	case odd:
		return refuse(http.StatusBadRequest, "Invalid configdrive format: %s is not valid under any of the given schemas", python(drive))
	case isObject && c.minor < 56:
		return refuse(http.StatusBadRequest, "Providing a JSON object for configdrive is only supported starting with API version 1.56")
	}
	return nil
}

// orderable refuses what a node's state or the order's form does not allow, in
// the order in which Ironic finds out.
func (c *call) orderable(n *world.Node, o *order) error {
	bad := http.StatusBadRequest
	switch {
	case n.Maintenance && (o.target == "active" || o.target == "rebuild"):
		return maintained(n, "provisioning")
	case !n.CanVerb(o.verb) && n.Reservation != "":
		return locked(n)
	case !n.CanVerb(o.verb):
		return forbidden(n, o.target, n.ProvisionState)
	case o.hasSteps && o.verb != "clean":
		return refuse(bad, `"clean_steps" is only valid when setting target provision state to clean`)
	case o.password != nil && o.verb != "rescue":
		return refuse(bad, `"rescue_password" is only valid when setting target provision state to rescue`)
	case o.verb == "rescue" && (o.password == nil || strings.TrimSpace(*o.password) == ""):
		return refuse(bad, `A non-empty "rescue_password" is required when setting target provision state to rescue`)
	case o.verb == "clean" && !o.hasSteps:
		return refuse(bad, `"clean_steps" is required when setting target provision state to clean`)
	}
	if err := locked(n); err != nil {
		return err
	}
	doing := map[string]string{"clean": "cleaning", "rescue": "rescuing", "unrescue": "unrescuing", "active": "provisioning"}[o.verb]
	switch {
	case n.Maintenance && doing != "":
		return maintained(n, doing)
	case n.Protected && (o.verb == "rebuild" || o.verb == "deleted"):
		return protected(n)
	case n.Retired && o.verb == "provide":
		return refuse(bad, "The providing operation can't be performed on node %s because it is retired.", n.UUID)
	}
	return nil
}

func maintained(n *world.Node, doing string) error {
	return refuse(http.StatusBadRequest, "The %s operation can't be performed on node %s because it's in maintenance mode.", doing, n.UUID)
}

func forbidden(n *world.Node, action, state string) error {
	return refuse(http.StatusBadRequest, `The requested action "%s" can not be performed on node "%s" while it is in state "%s".`, action, n.UUID, state)
}

// deployable refuses a deployment that lacks what it needs.
func deployable(n *world.Node, o *order) error {
	if o.verb != "active" && o.verb != "rebuild" {
		return nil
	}
	wanted, _ := n.InstanceInfo["traits"].([]any)
	var lacking []string
	for _, trait := range wanted {
		if !slices.Contains(n.Traits, fmt.Sprint(trait)) {
			lacking = append(lacking, fmt.Sprint(trait))
		}
	}
	if len(lacking) > 0 {
		return refuse(http.StatusBadRequest, "Failed to validate deploy or power info for node %s: Cannot specify instance traits that are not also set on the node. "+
			"Node %s is missing traits %s", n.UUID, n.UUID, strings.Join(lacking, ", "))
	}
	if source, _ := n.InstanceInfo["image_source"].(string); n.Interfaces["deploy"] == "direct" && source == "" {
		return refuse(http.StatusBadRequest, "Failed to validate deploy or power info for node %s: Cannot validate image information for node %s because one or more "+
			"parameters are missing from its instance_info and insufficient information is present to boot from a remote volume. Missing are: ['instance_info.image_source']", n.UUID, n.UUID)
	}
	return nil
}

// prepare puts into the node what the order brings along.
func (o *order) prepare(n *world.Node) {
	n.Steps = o.steps
	if n.InstanceInfo == nil {
		n.InstanceInfo = map[string]any{}
	}
	if o.configure != nil {
		n.InstanceInfo["configdrive"] = o.configure
	}
	if o.password != nil {
		n.InstanceInfo["rescue_password"], n.InstanceInfo["hashed_rescue_password"] = *o.password, "$5$"+*o.password
	}
}

// cleanSteps reads the steps of a manual clean.
func cleanSteps(raw any) ([]world.Step, error) {
	elements, _ := raw.([]any)
	var steps []world.Step
	for i, element := range elements {
		m, ok := element.(map[string]any)
		if !ok {
			return nil, refuse(http.StatusBadRequest, "Invalid clean_steps: %s is not of type 'object'\n\nOn instance[%d]", python(element), i)
		}
		for _, key := range []string{"interface", "step"} {
			if m[key] == nil {
				return nil, refuse(http.StatusBadRequest, "Invalid clean_steps: '%s' is a required property\n\nFailed validating 'required' in schema['items']\n\nOn instance[%d]:\n    %s", key, i, python(m))
			}
		}
		kinds := []string{"power", "management", "deploy", "bios", "raid"}
		kind, _ := m["interface"].(string)
		if !slices.Contains(kinds, kind) {
			return nil, refuse(http.StatusBadRequest, "Invalid clean_steps: %s is not one of ['%s']\n\nFailed validating 'enum' in schema['items']['properties']['interface']\n\nOn instance[%d]['interface']:\n    %s",
				python(m["interface"]), strings.Join(kinds, "', '"), i, python(m["interface"]))
		}
		name, _ := m["step"].(string)
		args, _ := m["args"].(map[string]any)
		steps = append(steps, world.Step{Interface: kind, Step: name, Args: args})
	}
	return steps, nil
}

func stepsText(steps []world.Step) string {
	if len(steps) == 0 {
		return ""
	}
	body, err := json.Marshal(steps)
	if err != nil {
		return ""
	}
	return string(body)
}

// power changes a node's power.
func (c *call) power(ident string) error {
	if c.Method != http.MethodPut {
		return c.notAllowed("PUT")
	}
	args, err := c.arguments("target", "timeout")
	if err != nil {
		return err
	}
	target, ok := args["target"].(string)
	if !ok {
		return refuse(http.StatusBadRequest, "Missing mandatory parameter: target")
	}
	if err := timeout(args["timeout"]); err != nil {
		return err
	}
	if strings.HasPrefix(target, "soft") && c.minor < 27 || args["timeout"] != nil && c.minor < 27 {
		return unacceptable
	}
	_, err = c.change(ident, "set power "+target, "", func(s *world.State, n *world.Node) error {
		on, reboot := target == "power on", false
		switch target {
		case "power on", "power off", "soft power off":
		case "rebooting", "soft rebooting":
			on, reboot = true, true
		default:
			state := n.PowerState
			if state == "" {
				state = "None"
			}
			return forbidden(n, target, state)
		}
		if n.ProvisionState == world.Cleaning || n.ProvisionState == world.CleanWait {
			return forbidden(n, target, n.ProvisionState)
		}
		if err := locked(n); err != nil {
			return err
		}
		s.RequestPower(n, on, reboot)
		return nil
	})
	if err != nil {
		return err
	}
	return c.accepted(http.StatusAccepted, "/v1/nodes/"+ident+"/states")
}

func timeout(value any) error {
	if value == nil {
		return nil
	}
	n, ok := value.(float64)
	switch {
	case !ok:
		return refuse(http.StatusBadRequest, "Expected an integer for timeout: %v", value)
	case n <= 0:
		return refuse(http.StatusBadRequest, "timeout has to be positive integer")
	}
	return nil
}
