package ironic

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/sources"
)

// NewNode is a node that Ironic shall have. UUID, Name and Driver are needed;
// what else is empty is left to Ironic.
type NewNode struct {
	UUID           string // made by the caller, who keeps it: it tells the node from another's after a lost answer
	Name           string
	Driver         string
	ResourceClass  string
	Lessee         string
	ConductorGroup string
	Interfaces     map[string]string // deploy_interface → direct
	DriverInfo     map[string]any    // with secrets: they are in no error and no log
	Properties     map[string]any
	Extra          map[string]any
}

// since are the versions that brought what a new node may say.
var since = map[string]int{
	"rescue_interface": 38, "bios_interface": 40, "conductor_group": 46, "lessee": 65, "firmware_interface": 86,
}

var (
	uuidForm      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	nameForm      = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,255}$`)
	interfaceForm = regexp.MustCompile(`^[a-z]+_interface$`)
)

// document is the body that makes the node.
func (n *NewNode) document() map[string]any {
	doc := map[string]any{"uuid": n.UUID, "name": n.Name, "driver": n.Driver}
	for key, value := range map[string]string{"resource_class": n.ResourceClass, "lessee": n.Lessee, "conductor_group": n.ConductorGroup} {
		if value != "" {
			doc[key] = value
		}
	}
	for key, value := range n.Interfaces {
		if value != "" {
			doc[key] = value
		}
	}
	for key, value := range map[string]map[string]any{"driver_info": n.DriverInfo, "properties": n.Properties, "extra": n.Extra} {
		if len(value) > 0 {
			doc[key] = value
		}
	}
	return doc
}

// check refuses what would be another node, or what a version has no word for.
func (n *NewNode) check(op string, s *session) error {
	switch {
	case !uuidForm.MatchString(n.UUID):
		return refused(sources.KindRefused, op, "%q is no uuid of lower-case digits: one of the caller's own tells the node from another's", sources.CleanText(n.UUID, 64))
	case !nameForm.MatchString(n.Name) || !validRef(n.Name) || uuidForm.MatchString(strings.ToLower(n.Name)):
		return refused(sources.KindRefused, op, "%q can be no name of a node", sources.CleanText(n.Name, 64))
	case n.Driver == "":
		return refused(sources.KindRefused, op, "a node needs a driver")
	}
	for key := range n.Interfaces {
		if !interfaceForm.MatchString(key) {
			return refused(sources.KindRefused, op, "%q is no interface of a node: it must be like deploy_interface", sources.CleanText(key, 64))
		}
	}
	doc := n.document()
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if since[key] > s.minor {
			return refused(sources.KindRefused, op, "this Ironic is spoken to in version 1.%d, and a new node's %s needs 1.%d: upgrade Ironic, or leave it out", s.minor, key, since[key])
		}
	}
	return nil
}

// document as gophercloud takes one.
type document map[string]any

func (d document) ToNodeCreateMap() (map[string]any, error) { return d, nil }

// Create makes a node, which begins in enroll. One that is there under this
// uuid with this name is the node, in whatever state: that is given, and
// whether it is as the caller wants, Details tells. The uuid or the name of
// another node is a conflict.
func (c *Client) Create(ctx context.Context, n NewNode) (*sources.Record, error) {
	const op = "create an ironic node"
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.check(op, s); err != nil {
		return nil, err
	}
	var made *sources.Record
	err = c.perform(ctx, deed{
		op: op,
		done: func(ctx context.Context) (there bool, err error) {
			made, err = c.owned(ctx, op, &n)
			return made != nil, err
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient) error {
			_, err := nodes.Create(ctx, sc, document(n.document())).Extract()
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// owned gives the node of our uuid and name, nil for none; another node with one
// of the two is a conflict.
func (c *Client) owned(ctx context.Context, op string, n *NewNode) (*sources.Record, error) {
	record, err := c.Get(ctx, n.UUID)
	switch {
	case err == nil && strings.EqualFold(record.Name, n.Name):
		return record, nil
	case err == nil:
		return nil, refused(sources.KindConflict, op, "the node %s is there already, with the name %q", n.UUID, record.Name)
	case !errors.Is(err, sources.ErrGone):
		return nil, err
	}
	other, err := c.Find(ctx, n.Name)
	switch {
	case err == nil:
		return nil, refused(sources.KindConflict, op, "the name %s is that of the node %s", n.Name, other.Ref)
	case !errors.Is(err, sources.ErrGone):
		return nil, err
	}
	return nil, nil
}

// Find reads one node by its name. ErrGone: Ironic has none of this name.
func (c *Client) Find(ctx context.Context, name string) (*sources.Record, error) {
	const op = "find an ironic node by its name"
	o, err := c.fetchNode(ctx, op, name)
	switch {
	case err != nil:
		return nil, err
	case !strings.EqualFold(o.record.Name, name): // what was asked for is the uuid of another
		return nil, &sources.Error{Kind: sources.KindMissing, Op: op, Message: "no node has the name " + name, Err: sources.ErrGone}
	}
	return o.record, nil
}
