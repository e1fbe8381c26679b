package ironic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// operation is one step of a JSON patch.
type operation struct {
	op    string
	path  []string
	value any
	text  string // as errors show it
}

var pathForm = regexp.MustCompile(`^(/[\w-]+)+$`)

// operations reads a JSON patch.
func (c *call) operations() ([]operation, error) {
	var raw any
	if err := c.read(&raw); err != nil {
		return nil, err
	}
	elements, ok := raw.([]any)
	if !ok {
		return nil, schemaError("patch", "%s is not of type 'array'", python(raw))
	}
	patch := make([]operation, 0, len(elements))
	for _, element := range elements {
		o, err := operationOf(element)
		if err != nil {
			return nil, err
		}
		patch = append(patch, o)
	}
	return patch, nil
}

func operationOf(element any) (o operation, err error) {
	m, ok := element.(map[string]any)
	if !ok {
		return o, schemaError("patch", "%s is not of type 'object'", python(element))
	}
	for _, key := range []string{"op", "path"} {
		if m[key] == nil {
			return o, schemaError("patch", "'%s' is a required property", key)
		}
	}
	path, _ := m["path"].(string)
	o.op, _ = m["op"].(string)
	if !pathForm.MatchString(path) {
		return o, schemaError("patch", "%s does not match '^(/[\\\\w-]+)+$'", python(m["path"]))
	}
	if !slices.Contains([]string{"add", "replace", "remove"}, o.op) {
		return o, schemaError("patch", "%s is not one of ['add', 'replace', 'remove']", python(m["op"]))
	}
	o.path, o.value = strings.Split(path[1:], "/"), m["value"]
	o.text = fmt.Sprintf("{'op': '%s', 'path': '%s'", o.op, path)
	if o.op != "remove" {
		o.text += ", 'value': " + python(o.value)
	}
	o.text += "}"
	return o, nil
}

// checkPatch refuses what no patch may write, before the node is looked at.
func (c *call) checkPatch(patch []operation) error {
	for _, o := range patch {
		if setters[o.path[0]] == nil {
			return refuse(http.StatusBadRequest, "Cannot patch /%s. Only the following can be updated: %s", strings.Join(o.path, "/"),
				strings.Join(slices.Sorted(maps.Keys(setters)), ", "))
		}
		if f := fieldNamed(o.path[0]); f != nil && f.since > c.minor {
			return unacceptable
		}
		if o.path[0] == "driver" && o.op == "remove" {
			return schemaError("patch", "'driver' is a required property")
		}
	}
	return nil
}

// patch changes a node's fields.
func (c *call) patch(ident string) error {
	patch, err := c.operations()
	if err != nil {
		return err
	}
	if err := c.checkPatch(patch); err != nil {
		return err
	}
	n, err := c.change(ident, "patch node", patchText(patch), func(s *world.State, n *world.Node) error {
		if err := patchable(c, n, patch); err != nil {
			return err
		}
		if err := locked(n); err != nil {
			return err
		}
		if err := c.apply(n, patch); err != nil {
			return err
		}
		if err := unique(s, n); err != nil {
			return err
		}
		n.Updated = s.Now
		s.Bind(n)
		return nil
	})
	if err != nil {
		return err
	}
	return c.sendNode(http.StatusOK, n)
}

// patchText tells a patch in an effect, without the secrets in it.
func patchText(patch []operation) string {
	parts := make([]string, 0, len(patch))
	for _, o := range patch {
		part := o.op + " /" + strings.Join(o.path, "/")
		if body, err := json.Marshal(o.value); err == nil && o.op != "remove" && o.path[0] != "driver_info" && !secret(strings.Join(o.path, "/")) {
			part += " " + string(body)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// patchable refuses what a node's state does not let be patched.
func patchable(c *call, n *world.Node, patch []operation) error {
	unbinds := len(patch) == 1 && patch[0].op == "remove" && len(patch[0].path) == 1 && patch[0].path[0] == "instance_uuid"
	meanwhile := []string{
		world.DeployFailed, world.Inspecting, world.InspectFailed, world.InspectWait, world.CleanFailed, world.Failed, world.Verifying,
		world.AdoptFailed, world.RescueFailed, world.UnrescueFailed,
	}
	switch {
	case n.Maintenance && unbinds:
	case n.TargetProvision != "" && !slices.Contains(meanwhile, n.ProvisionState):
		return refuse(http.StatusConflict, "Node %s can not be updated while a state transition is in progress.", n.UUID)
	case n.ProvisionState == world.Inspecting && c.minor >= 39:
		return refuse(http.StatusConflict, "Cannot update node \"%s\" while it is in state \"%s\".", n.UUID, n.ProvisionState)
	}
	return nil
}

// settled are the states in which what shapes a node may change.
var settled = []string{world.Enroll, world.Inspecting, world.InspectWait, world.Manageable, world.Available}

// apply carries out the operations on a copy of a node.
func (c *call) apply(n *world.Node, patch []operation) error {
	before := *n
	before.Interfaces = maps.Clone(n.Interfaces)
	for _, o := range patch {
		if err := c.operate(n, o); err != nil {
			return err
		}
	}
	if n.Driver != before.Driver && is(c.URL.Query().Get("reset_interfaces")) {
		n.Interfaces = world.DefaultInterfaces(n.Driver)
	}
	if err := checkInterfaces(n); err != nil {
		return err
	}
	free := slices.Contains(settled, n.ProvisionState)
	for _, kind := range slices.Sorted(maps.Keys(n.Interfaces)) {
		if n.Interfaces[kind] != before.Interfaces[kind] && !free && !n.Maintenance {
			return refuse(http.StatusConflict, "Node %s can not have %s_interface updated unless it is in one of allowed (%s) states or in maintenance mode.",
				n.UUID, kind, strings.Join(settled, ", "))
		}
	}
	if before.ResourceClass != "" && n.ResourceClass != before.ResourceClass && !free {
		return refuse(http.StatusConflict, "Node %s can not have resource_class updated unless it is in one of allowed (%s) states.", n.UUID, strings.Join(settled, ", "))
	}
	return nil
}

func (c *call) operate(n *world.Node, o operation) error {
	if len(o.path) == 1 {
		value := o.value
		if o.op == "remove" {
			value = nil
		}
		return c.set(n, "patch", o.path[0], value)
	}
	objects := map[string]*map[string]any{
		"driver_info": &n.DriverInfo, "properties": &n.Properties, "instance_info": &n.InstanceInfo, "extra": &n.Extra, "network_data": &n.NetworkData,
	}
	root := objects[o.path[0]]
	if root == nil {
		return refuse(http.StatusBadRequest, "Couldn't apply patch '%s'. Reason: member '%s' not found in None", o.text, o.path[1])
	}
	if *root == nil {
		*root = map[string]any{}
	}
	return o.within(*root)
}

// within carries out an operation on a path inside an object.
func (o *operation) within(at map[string]any) error {
	last := len(o.path) - 1
	for _, key := range o.path[1:last] {
		inner, ok := at[key].(map[string]any)
		if !ok {
			return refuse(http.StatusBadRequest, "Couldn't apply patch '%s'. Reason: member '%s' not found in %s", o.text, key, python(at))
		}
		at = inner
	}
	key := o.path[last]
	if _, there := at[key]; !there && o.op != "add" {
		return refuse(http.StatusBadRequest, "Couldn't apply patch '%s'. Reason: can't %s a non-existent object '%s'", o.text, o.op, key)
	}
	if o.op == "remove" {
		delete(at, key)
		return nil
	}
	at[key] = o.value
	return nil
}
