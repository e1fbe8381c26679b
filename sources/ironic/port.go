package ironic

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// NewPort is a network port that a node shall have.
type NewPort struct {
	MAC       string
	PXE       bool              // it may boot from here
	LocalLink map[string]string // switch_id, port_id and switch_info, or nothing
}

// Port is a network port of a node.
type Port struct {
	UUID      string
	MAC       string // lower case, with colons
	PXE       bool
	LocalLink map[string]any // nil where it says nothing
	node      string
}

const (
	portFields = "uuid,address,pxe_enabled,local_link_connection,node_uuid"
	maxPorts   = 20 // pages
)

// Ports reads the ports of a node, all or none: a port that cannot be read may
// be the one that is looked for.
func (c *Client) Ports(ctx context.Context, ref string) ([]Port, error) {
	const op = "read the ports of an ironic node"
	if !validRef(ref) {
		return nil, refused(sources.KindRefused, op, "%q is no uuid of a node", sources.CleanText(ref, 64))
	}
	return c.portsAt(ctx, op, url.Values{"limit": {"100"}}, "nodes", url.PathEscape(ref), "ports")
}

// portsAt reads a list of ports to its end.
func (c *Client) portsAt(ctx context.Context, op string, query url.Values, path ...string) ([]Port, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	var all []Port
	for range maxPorts {
		body, _, err := c.read(ctx, s, s.sc.ServiceURL(path...)+"?fields="+portFields+"&"+query.Encode(), op)
		if err != nil {
			return nil, keystone.Gone(err)
		}
		var page struct {
			Ports []rawPort `json:"ports"`
			Next  string    `json:"next"`
		}
		if json.Unmarshal(body, &page) != nil || page.Ports == nil {
			return nil, foreign(op, body)
		}
		for i := range page.Ports {
			port, ok := page.Ports[i].port()
			if !ok {
				return nil, refused(sources.KindTransient, op, "a port of the answer cannot be read")
			}
			all = append(all, port)
		}
		if page.Next == "" || len(page.Ports) == 0 {
			return all, nil
		}
		query.Set("marker", all[len(all)-1].UUID)
	}
	return nil, refused(sources.KindTransient, op, "there are more than %d pages", maxPorts)
}

type rawPort struct {
	UUID    string         `json:"uuid"`
	Address string         `json:"address"`
	PXE     *bool          `json:"pxe_enabled"`
	Link    map[string]any `json:"local_link_connection"`
	Node    string         `json:"node_uuid"`
}

func (r *rawPort) port() (Port, bool) {
	mac, ok := macOf(r.Address)
	if !ok || !validRef(r.UUID) || r.PXE == nil {
		return Port{}, false
	}
	p := Port{UUID: r.UUID, MAC: mac, PXE: *r.PXE, node: sources.CleanText(r.Node, shortText)}
	if len(r.Link) > 0 {
		p.LocalLink, _ = clean(r.Link, 2).(map[string]any)
	}
	return p, true
}

// macOf writes a MAC address as Ironic does. Those of InfiniBand are longer and
// no port's address.
func macOf(address string) (string, bool) {
	mac, err := net.ParseMAC(strings.TrimSpace(address))
	if err != nil || len(mac) != 6 {
		return "", false
	}
	return mac.String(), true
}

// AddPort gives a node a port. One with this address that it has already is the
// port, however it is set; one that another node has is a conflict.
func (c *Client) AddPort(ctx context.Context, ref string, p NewPort) error {
	const op = "add a port to an ironic node"
	mac, ok := macOf(p.MAC)
	if !ok {
		return refused(sources.KindRefused, op, "%q is no MAC address", sources.CleanText(p.MAC, 64))
	}
	if !validRef(ref) {
		return refused(sources.KindRefused, op, "%q is no uuid of a node", sources.CleanText(ref, 64))
	}
	return c.perform(ctx, deed{
		op: op,
		done: func(ctx context.Context) (bool, error) {
			there, err := c.portsAt(ctx, op, url.Values{"address": {mac}}, "ports")
			for _, other := range there {
				switch {
				case other.MAC != mac: // a filter that was not understood
					continue
				case other.node == ref:
					return true, nil
				}
				return false, refused(sources.KindConflict, op, "the address %s is that of a port of the node %s", mac, other.node)
			}
			return false, err
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient) error {
			body := map[string]any{"address": mac, "node_uuid": ref, "pxe_enabled": p.PXE}
			if len(p.LocalLink) > 0 {
				body["local_link_connection"] = p.LocalLink
			}
			_, err := sc.Post(ctx, sc.ServiceURL("ports"), body, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}})
			return err
		},
	})
}
