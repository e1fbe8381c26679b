package netbox

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// interfaceSpan is how far the ids of a device's interfaces are from each other.
// Those of a machine are not stored: a fleet of ten thousand has not sixty
// thousand of them.
const interfaceSpan = 100_000_000

// interfaceID is the id of a device's nth interface. The first is the BMC's, and
// has the device's id.
func interfaceID(device, n int) int { return n*interfaceSpan + device }

// objects gives the objects of a kind in the order of their ids.
func (x *exchange) objects(s *world.State, k *kind) iter.Seq[*world.Object] {
	return func(yield func(*world.Object) bool) {
		for _, o := range s.Objects.Of(k.name) {
			if !yield(o) {
				return
			}
		}
		if k.name != world.KindInterface {
			return
		}
		if ids := x.query["device_id"]; len(ids) == 1 {
			if id, err := strconv.Atoi(ids[0]); err == nil {
				interfacesOf(s, s.Object(world.KindDevice, id), yield)
				return
			}
		}
		var all []*world.Object
		for _, device := range s.Objects.Of(world.KindDevice) {
			interfacesOf(s, device, func(o *world.Object) bool { all = append(all, o); return true })
		}
		slices.SortFunc(all, func(a, b *world.Object) int { return cmp.Compare(a.ID, b.ID) })
		for _, o := range all {
			if !yield(o) {
				return
			}
		}
	}
}

// object gives one object, or nil.
func object(s *world.State, k *kind, id int) (found *world.Object) {
	if found = s.Object(k.name, id); found != nil || k.name != world.KindInterface {
		return found
	}
	interfacesOf(s, s.Object(world.KindDevice, id%interfaceSpan), func(o *world.Object) bool {
		if o.ID == id {
			found = o
		}
		return found == nil
	})
	return found
}

// interfacesOf gives the interfaces of a device that is a machine.
func interfacesOf(s *world.State, device *world.Object, yield func(*world.Object) bool) {
	if device == nil || device.Machine == "" {
		return
	}
	site := s.Object(world.KindSite, device.Int("site"))
	if site == nil {
		return
	}
	m := s.Machines.Get(world.Key(site.Slug, device.Machine))
	if m == nil {
		return
	}
	for n, nic := range m.NICs() {
		o := &world.Object{Kind: world.KindInterface, ID: interfaceID(device.ID, n), Name: nic.Name, Created: device.Created, Updated: device.Created, Fields: map[string]any{
			"device": device.ID, "type": nic.Type, "mac": strings.ToUpper(nic.MAC), "mgmt_only": nic.Management,
		}}
		if peer := s.Machines.Get(world.Key(site.Slug, nic.Switch)); nic.Switch != "" && peer != nil {
			if p := s.Objects.Get(peer.NetBox); p != nil {
				o.Fields["peer_device"], o.Fields["peer_port"] = p.ID, nic.Port
			}
		}
		if !yield(o) {
			return
		}
	}
}

// byInterface are the filters that interfaces have of their own.
func byInterface(name string, values []string) filter {
	yes := strings.EqualFold(values[0], "true")
	if name == "cabled" {
		return func(o *world.Object) bool { return (o.Int("peer_device") != 0) == yes }
	}
	return func(o *world.Object) bool { return (o.Fields[name] == true) == yes }
}

// interfaceForm appends what interfaces alone have.
func (v *view) interfaceForm(b []byte, m *member, o *world.Object) []byte {
	mac, cabled := o.Text("mac"), o.Int("peer_device") != 0
	switch m.form {
	case "iftype":
		return labelled(b, o.Text("type"), strings.ToUpper(o.Text("type")))
	case "flag":
		return strconv.AppendBool(b, o.Fields[m.name] == true)
	case "mac":
		return nullText(b, mac)
	case "macobject":
		return v.macObject(b, o, mac)
	case "maclist":
		if mac == "" {
			return append(b, "[]"...)
		}
		return append(v.macObject(append(b, '['), o, mac), ']')
	case "cable":
		if !cabled {
			return append(b, "null"...)
		}
		return v.cable(b, o)
	case "cableend":
		switch {
		case cabled:
			return append(b, `"A"`...)
		case v.generation < 42:
			return append(b, `""`...)
		}
		return append(b, "null"...)
	case "linkpeers", "endpoints":
		if cabled {
			return v.peer(b, o)
		}
		if m.form == "linkpeers" {
			return append(b, "[]"...)
		}
		return append(b, "null"...)
	case "peertype":
		if !cabled {
			return append(b, "null"...)
		}
		return append(b, `"dcim.interface"`...)
	case "reachable":
		if !cabled && v.generation < 45 {
			return append(b, "null"...)
		}
		return strconv.AppendBool(b, cabled)
	case "occupied":
		return strconv.AppendBool(b, cabled)
	}
	return append(b, "null"...)
}

func (v *view) macObject(b []byte, o *world.Object, mac string) []byte {
	if mac == "" {
		return append(b, "null"...)
	}
	text := wire.Quote(nil, mac)
	return fmt.Appendf(b, `{"id":%d,"url":%s,"display":%s,"mac_address":%s,"description":""}`, o.ID, wire.Quote(nil, fmt.Sprintf("%s/api/dcim/mac-addresses/%d/", v.base, o.ID)), text, text)
}

// cable appends the cable of an interface; each has the interface's id.
func (v *view) cable(b []byte, o *world.Object) []byte {
	b = fmt.Appendf(b, `{"id":%d,"url":%s,"display":"#%d","label":""`, o.ID, wire.Quote(nil, fmt.Sprintf("%s/api/dcim/cables/%d/", v.base, o.ID)), o.ID)
	if v.generation >= 40 {
		b = append(b, `,"description":""`...)
	}
	return append(b, '}')
}

// peer appends the interface at the other end of the cable.
func (v *view) peer(b []byte, o *world.Object) []byte {
	id, name := interfaceID(o.Int("peer_device"), 0), wire.Quote(nil, o.Text("peer_port"))
	b = fmt.Appendf(b, `[{"id":%d,"url":%s,`, id, wire.Quote(nil, fmt.Sprintf("%s/api/dcim/interfaces/%d/", v.base, id)))
	b = fmt.Appendf(b, `"display":%s,"device":`, name)
	b = v.brief(b, world.KindDevice, o.Int("peer_device"))
	b = fmt.Appendf(b, `,"name":%s,`, name)
	if v.generation >= 40 {
		b = append(b, `"description":"",`...)
	}
	b = append(b, `"cable":`...)
	if v.generation < 40 {
		b = strconv.AppendInt(b, int64(o.ID), 10)
	} else {
		b = v.cable(b, o)
	}
	return append(b, `,"_occupied":true}]`...)
}
