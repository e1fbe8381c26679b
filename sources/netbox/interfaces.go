package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/musterhq/muster/sources"
)

// Interface is a network interface of a device.
type Interface struct {
	Name      string
	Type      string // NetBox's word, such as 400gbase-x-osfp; "" where it cannot be read
	MAC       string // six pairs of lower case between colons; "" for none
	SpeedKbps int64  // as NetBox was told; 0: it was not
	MgmtOnly  bool   // of the BMC or another that no operating system sees
	Enabled   bool
	Peer      *Peer // at the other end of its cable; nil: none, more than one, or no interface
}

// Peer is an interface of another device.
type Peer struct {
	Device string // its name
	Port   string // the interface's
}

// rawInterface holds what is read of an interface, each field undecoded.
type rawInterface struct {
	Device             json.RawMessage `json:"device"`
	Name               json.RawMessage `json:"name"`
	Type               json.RawMessage `json:"type"`
	MAC                json.RawMessage `json:"mac_address"`
	PrimaryMAC         json.RawMessage `json:"primary_mac_address"` // from 4.2 on
	Speed              json.RawMessage `json:"speed"`
	MgmtOnly           json.RawMessage `json:"mgmt_only"`
	Enabled            json.RawMessage `json:"enabled"`
	LinkPeers          json.RawMessage `json:"link_peers"`
	LinkPeersType      json.RawMessage `json:"link_peers_type"`
	ConnectedEndpoints json.RawMessage `json:"connected_endpoints"`
	ConnectedType      json.RawMessage `json:"connected_endpoints_type"`
}

// Interfaces reads the interfaces of a device, in the order of their ids. It is
// all of them or an error: one whose name, MAC or kind cannot be read fails the
// reading, since it might be taken for what it is not. The device itself is not
// looked at: read it before.
//
// Refused is an id that NetBox has not; forbidden a token that may not see
// interfaces. One that may see some of them only is given these: NetBox does not
// say that there are others.
func (c *Client) Interfaces(ctx context.Context, id string) ([]Interface, error) {
	op := "read the interfaces of NetBox device " + sources.CleanText(id, 32)
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil || number <= 0 || strconv.FormatInt(number, 10) != id {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: "the id of a device is a whole number"}
	}
	walk := c.walk(op, "dcim/interfaces/", url.Values{"device_id": {id}, "ordering": {"id"}, "limit": {strconv.Itoa(c.pageSize)}})
	interfaces := []Interface{}
	for walk.more() {
		_, elements, err := walk.page(ctx)
		if errors.Is(err, errMoved) || err == nil && walk.odd > 0 {
			return nil, walk.broken(errors.New("the list changed while it was read, or has elements without an id: read it again"))
		}
		if err != nil {
			return nil, err
		}
		for _, element := range elements {
			one, err := decodeInterface(element, number)
			if err != nil {
				return nil, walk.broken(err)
			}
			interfaces = append(interfaces, one)
		}
	}
	return interfaces, nil
}

// decodeInterface reads one interface, which must be of the device: NetBox
// ignores a filter that it does not know.
func decodeInterface(raw json.RawMessage, device int64) (Interface, error) {
	var r rawInterface
	var of struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(raw, &r) != nil || json.Unmarshal(r.Device, &of) != nil {
		return Interface{}, errors.New("an interface cannot be read")
	}
	if owner, ok := integer(of.ID); !ok || owner != device {
		return Interface{}, errors.New("NetBox answers with interfaces of other devices: it does not know the filter device_id")
	}
	read := reader{lost: map[string]string{}}
	i := Interface{Name: read.text("name", r.Name).Value, Type: read.status(r.Type).Value, Peer: peerOf(r)}
	if i.Name == "" {
		return Interface{}, errors.New("an interface has no name that can be read")
	}
	if json.Unmarshal(r.MgmtOnly, &i.MgmtOnly) != nil || json.Unmarshal(r.Enabled, &i.Enabled) != nil || !present(r.MgmtOnly) || !present(r.Enabled) {
		return Interface{}, fmt.Errorf("whether interface %q is enabled and of management alone cannot be read", i.Name)
	}
	var err error
	if i.MAC, err = macOf(r); err != nil {
		return Interface{}, fmt.Errorf("the MAC address of interface %q cannot be read", i.Name)
	}
	if speed, ok := integer(r.Speed); ok && speed > 0 {
		i.SpeedKbps = speed
	}
	return i, nil
}

// macOf reads the MAC address: a text, and from 4.2 on an object of its own
// beside.
func macOf(r rawInterface) (string, error) {
	raw := r.MAC
	if present(r.PrimaryMAC) {
		var primary struct {
			MAC json.RawMessage `json:"mac_address"`
		}
		if err := json.Unmarshal(r.PrimaryMAC, &primary); err != nil {
			return "", err
		}
		raw = primary.MAC
	}
	var text string
	if !present(raw) {
		return "", nil
	}
	if err := json.Unmarshal(raw, &text); err != nil || text == "" {
		return "", err
	}
	mac, err := net.ParseMAC(text)
	return mac.String(), err
}

// peerOf gives the interface at the far end, through panels where NetBox traced
// it, else at the end of the cable.
func peerOf(r rawInterface) *Peer {
	for _, end := range []struct{ list, kind json.RawMessage }{{r.ConnectedEndpoints, r.ConnectedType}, {r.LinkPeers, r.LinkPeersType}} {
		var kind string
		var peers []json.RawMessage
		if json.Unmarshal(end.kind, &kind) != nil || kind != "dcim.interface" || json.Unmarshal(end.list, &peers) != nil || len(peers) == 0 {
			continue
		}
		var far struct {
			Name   json.RawMessage `json:"name"`
			Device json.RawMessage `json:"device"`
		}
		if len(peers) > 1 || json.Unmarshal(peers[0], &far) != nil {
			return nil
		}
		read := reader{lost: map[string]string{}}
		p := &Peer{Device: read.nested("device", far.Device, "name").Value, Port: read.text("name", far.Name).Value}
		if p.Device == "" || p.Port == "" {
			return nil
		}
		return p
	}
	return nil
}
