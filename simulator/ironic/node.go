package ironic

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// node is what is done with one node as a whole.
func (c *call) node(ident string) error {
	switch c.Method {
	case http.MethodGet:
		n, err := c.look(ident)
		if err != nil {
			return err
		}
		if !c.URL.Query().Has("fields") {
			return c.sendNode(http.StatusOK, n)
		}
		show, err := c.wanted(c.URL.Query(), true)
		if err != nil {
			return err
		}
		c.write(http.StatusOK, c.document(nil, n, show, false))
		return nil
	case http.MethodPatch:
		return c.patch(ident)
	case http.MethodDelete:
		return c.remove(ident)
	}
	return c.notAllowed("DELETE, GET, PATCH, POST")
}

func (c *call) remove(ident string) error {
	n, err := c.look(ident)
	if err != nil {
		return err
	}
	err = c.world.Do(world.Effect{Face: world.FaceIronic, Site: c.site, Op: "delete node", Subject: n.Subject(), Detail: n.UUID}, func(s *world.State) error {
		now := s.Nodes.Get(n.Key())
		if now == nil {
			return noNode(ident)
		}
		if err := removable(now); err != nil {
			return err
		}
		s.DropNode(now)
		return nil
	})
	if err != nil {
		return err
	}
	return c.accepted(http.StatusNoContent, "")
}

func removable(n *world.Node) error {
	if err := locked(n); err != nil {
		return err
	}
	allowed := []string{world.Manageable, world.Enroll, world.AdoptFailed, world.Available}
	switch {
	case n.InstanceUUID != "" && !n.Maintenance:
		return refuse(http.StatusConflict, "Node %s is associated with instance %s.", n.UUID, n.InstanceUUID)
	case n.Protected:
		return protected(n)
	case !n.Maintenance && !slices.Contains(allowed, n.ProvisionState):
		return refuse(http.StatusConflict, "Can not delete node \"%s\" while it is in provision state \"%s\". Valid provision states to perform deletion are: "+
			"\"('manageable', 'enroll', 'adopt failed', 'available')\", or set the node into maintenance mode", n.UUID, n.ProvisionState)
	}
	return nil
}

func protected(n *world.Node) error {
	return refuse(http.StatusForbidden, "Node %s is protected and cannot be undeployed, rebuilt or deleted", n.UUID)
}

// schemaError is a document that is not what Ironic's schema wants.
func schemaError(what, format string, args ...any) error {
	return refuse(http.StatusBadRequest, "Schema error for %s: %s", what, fmt.Sprintf(format, args...))
}

// create makes a node.
func (c *call) create() error {
	if c.URL.RawQuery != "" {
		return refuse(http.StatusBadRequest, "Unexpected arguments: %s", strings.SplitN(c.URL.RawQuery, "=", 2)[0])
	}
	var doc map[string]any
	if err := c.read(&doc); err != nil {
		return err
	}
	n, err := c.newNode(doc)
	if err != nil {
		return err
	}
	err = c.world.Do(world.Effect{Face: world.FaceIronic, Site: c.site, Op: "create node", Subject: n.Subject(), Detail: n.UUID}, func(s *world.State) error {
		if s.Nodes.Get(n.Key()) != nil {
			return refuse(http.StatusConflict, "A node with UUID %s already exists.", n.UUID)
		}
		if err := unique(s, n); err != nil {
			return err
		}
		n.Created = s.Now
		s.AddNode(n)
		return nil
	})
	if err != nil {
		return err
	}
	c.Header().Set("Location", c.base+"/v1/nodes/"+n.UUID)
	return c.sendNode(http.StatusCreated, n)
}

// newNode reads the document of a new node.
func (c *call) newNode(doc map[string]any) (*world.Node, error) {
	if doc["driver"] == nil {
		return nil, schemaError("node", "'driver' is a required property")
	}
	n := &world.Node{
		UUID: newUUID(), Site: c.site, ProvisionState: world.Enroll,
		DriverInfo: map[string]any{}, Properties: map[string]any{}, InstanceInfo: map[string]any{}, Extra: map[string]any{}, NetworkData: map[string]any{},
	}
	if c.minor < 11 {
		n.ProvisionState = world.Available
	}
	driver, _ := doc["driver"].(string)
	n.Driver, n.Interfaces = driver, world.DefaultInterfaces(driver)
	if err := checkDriver(driver); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(doc))
	for name := range doc {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case name == "uuid":
			uuid, _ := doc[name].(string)
			if !isUUID(uuid) {
				return nil, refuse(http.StatusBadRequest, "Expected UUID for uuid: %v", doc[name])
			}
			n.UUID = uuid
		case setters[name] == nil || name == "maintenance":
			return nil, schemaError("node", "Additional properties are not allowed ('%s' was unexpected)", name)
		default:
			if err := c.set(n, "node", name, doc[name]); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// unique refuses what another node has already.
func unique(s *world.State, n *world.Node) error {
	for _, other := range s.Nodes.Of(n.Site) {
		switch {
		case other.UUID == n.UUID:
		case n.Name != "" && other.Name == n.Name:
			return refuse(http.StatusConflict, "A node with name %s already exists.", n.Name)
		case n.InstanceUUID != "" && other.InstanceUUID == n.InstanceUUID:
			return refuse(http.StatusConflict, "Instance %s is already associated with a node, it cannot be associated with this other node %s", n.InstanceUUID, n.UUID)
		}
	}
	return nil
}

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9-._~]+$`)

func validName(name string) bool {
	return nameForm.MatchString(name) && !isUUID(name) && name != "detail" && len(name) <= 255
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// enabled are the interfaces that both drivers may use, by their kind.
var enabled = map[string][]string{
	"bios": {"fake", "no-bios", "redfish"}, "boot": {"fake", "pxe", "redfish-virtual-media"}, "console": {"fake", "no-console"},
	"deploy": {"direct", "fake", "ramdisk"}, "inspect": {"fake", "inspector", "no-inspect", "redfish"}, "management": {"fake", "noop", "redfish"},
	"network": {"noop"}, "power": {"fake", "redfish"}, "raid": {"agent", "fake", "no-raid", "redfish"}, "rescue": {"fake", "no-rescue"},
	"storage": {"fake", "noop"}, "vendor": {"fake", "no-vendor", "redfish"},
}

func checkDriver(driver string) error {
	if driver != "fake-hardware" && driver != "redfish" {
		return refuse(http.StatusBadRequest, "No valid host was found. Reason: No conductor service registered which supports driver %s for conductor group \"\".", driver)
	}
	return nil
}

// checkInterfaces refuses interfaces that the driver cannot have.
func checkInterfaces(n *world.Node) error {
	for kind, name := range n.Interfaces {
		if !slices.Contains(enabled[kind], name) {
			return refuse(http.StatusBadRequest, "Could not find the following interface in the 'ironic.hardware.interfaces.%s' entrypoint: %s. Valid interfaces are ['%s'].",
				kind, name, strings.Join(enabled[kind], "', '"))
		}
		if n.Driver == "redfish" && name == "fake" {
			return refuse(http.StatusBadRequest, "%s interface implementation '%s' is not supported by hardware type %s.", kind, name, n.Driver)
		}
	}
	return nil
}
