package ironic

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// rawNode is one node as it came. A field that is not in the body is empty: no
// value of another node, and no zero value, can take its place.
type rawNode struct {
	UUID                 json.RawMessage `json:"uuid"`
	Name                 json.RawMessage `json:"name"`
	ProvisionState       json.RawMessage `json:"provision_state"`
	TargetProvisionState json.RawMessage `json:"target_provision_state"`
	Maintenance          json.RawMessage `json:"maintenance"`
	MaintenanceReason    json.RawMessage `json:"maintenance_reason"`
	Fault                json.RawMessage `json:"fault"`
	LastError            json.RawMessage `json:"last_error"`
	PowerState           json.RawMessage `json:"power_state"`
	TargetPowerState     json.RawMessage `json:"target_power_state"`
	InstanceUUID         json.RawMessage `json:"instance_uuid"`
	Lessee               json.RawMessage `json:"lessee"`
	Owner                json.RawMessage `json:"owner"`
	ResourceClass        json.RawMessage `json:"resource_class"`
	Driver               json.RawMessage `json:"driver"`
	DriverInfo           json.RawMessage `json:"driver_info"`
	Reservation          json.RawMessage `json:"reservation"`
	Extra                json.RawMessage `json:"extra"`
	Properties           json.RawMessage `json:"properties"`
	Traits               json.RawMessage `json:"traits"`
	ProvisionUpdatedAt   json.RawMessage `json:"provision_updated_at"`

	ref string
}

// decodeNode takes one element apart; false if it has no readable identity.
func decodeNode(element []byte) (*rawNode, bool) {
	var raw rawNode
	if json.Unmarshal(element, &raw) != nil || absent(raw.UUID) || json.Unmarshal(raw.UUID, &raw.ref) != nil {
		return nil, false
	}
	return &raw, validRef(raw.ref)
}

// validRef accepts what can be a node's uuid and, in an address, nothing but a
// node: never the name of another resource.
func validRef(ref string) bool {
	if ref == "" || len(ref) > 64 || ref == "detail" || strings.Trim(ref, ".") == "" {
		return false
	}
	for _, b := range []byte(ref) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.') {
			return false
		}
	}
	return true
}

// record maps a node to facts. at is the instant before the request that
// brought it.
func (c *Client) record(raw *rawNode, s *session, at time.Time) *sources.Record {
	f, serial, state := mapNode(raw, s)
	if f.Unmodelled {
		c.warnUnmodelled(raw.ref, state)
	}
	return &sources.Record{Ref: raw.ref, Name: f.Name.Value, Serial: serial, At: at, Ironic: f}
}

// mapNode is the pure mapping. state is Ironic's word for the provision state.
func mapNode(raw *rawNode, s *session) (f *facts.Ironic, serialNumber, state string) {
	r := &reader{}
	f = &facts.Ironic{
		Listed:               facts.True,
		Name:                 r.text(raw.Name, "name", shortText),
		TargetProvisionState: r.text(raw.TargetProvisionState, "target_provision_state", shortText),
		Maintenance:          r.flag(raw.Maintenance, "maintenance"),
		MaintenanceReason:    r.text(raw.MaintenanceReason, "maintenance_reason", longText),
		LastError:            r.text(raw.LastError, "last_error", longText),
		PowerState:           r.text(raw.PowerState, "power_state", shortText),
		TargetPowerState:     r.text(raw.TargetPowerState, "target_power_state", shortText),
		ResourceClass:        r.text(raw.ResourceClass, "resource_class", shortText),
		Driver:               r.text(raw.Driver, "driver", shortText),
		Reservation:          r.textOrNone(raw.Reservation, "reservation"),
		Traits:               r.traits(raw.Traits),
		ProvisionUpdatedAt:   r.instant(raw.ProvisionUpdatedAt, "provision_updated_at"),
	}
	if s.has("fault") {
		f.Fault = r.text(raw.Fault, "fault", shortText)
	}
	if s.has("owner") {
		f.Owner = r.text(raw.Owner, "owner", shortText)
	}
	if s.has("lessee") {
		f.Lessee = r.textOrNone(raw.Lessee, "lessee")
	}
	state = r.text(raw.ProvisionState, "provision_state", shortText).Value
	if state != "" {
		var known bool
		f.ProvisionState, known = facts.ParseProvisionState(state)
		f.Unmodelled = !known
	}
	f.BMCAddress = r.bmcAddress(raw.DriverInfo, f.Driver.Value)
	r.instance(raw, f)
	properties := r.object(raw.Properties, "properties")
	f.Properties = r.properties(properties)
	f.Unreadable = r.unreadable
	return f, serial(properties, (&reader{}).object(raw.Extra, "extra")), state
}

// instance reads the binding and whether it is ours. Only null in a field that
// is served says that there is none.
func (r *reader) instance(raw *rawNode, f *facts.Ironic) {
	if string(raw.InstanceUUID) == "null" {
		f.InstanceBound = facts.False
	} else if f.InstanceUUID = r.text(raw.InstanceUUID, "instance_uuid", shortText); f.InstanceUUID.Known {
		f.InstanceBound = facts.True
	} else if len(raw.InstanceUUID) > 0 {
		r.lose("instance_uuid", sources.ReasonDecodeFailed)
		r.lose("instance_bound", sources.ReasonDecodeFailed)
	}
	extra := r.object(raw.Extra, "our_mark")
	if extra == nil || f.InstanceBound == facts.Null {
		return
	}
	mark := r.text(extra["muster"], "our_mark", longText)
	if _, lost := r.unreadable["our_mark"]; lost {
		return
	}
	_, bound, ok := ParseMark(mark.Value)
	f.OurMark = facts.BoolOf(ok && f.InstanceBound == facts.True && strings.EqualFold(bound, f.InstanceUUID.Value))
}

// Mark is what a node's extra carries under "muster" while an instance that
// the job made is bound to it.
func Mark(job, instance string) string { return "muster:" + job + ":" + instance }

// ParseMark takes a mark apart; false if it is none.
func ParseMark(mark string) (job, instance string, ok bool) {
	rest, ours := strings.CutPrefix(mark, "muster:")
	at := strings.LastIndexByte(rest, ':')
	if !ours || at <= 0 || at == len(rest)-1 {
		return "", "", false
	}
	return rest[:at], rest[at+1:], true
}

// warnUnmodelled warns once of each provision state that is not in the table,
// up to a bound: what Ironic sends next may be anything.
func (c *Client) warnUnmodelled(node, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unmodelled[state] || len(c.unmodelled) >= 100 {
		return
	}
	c.unmodelled[state] = true
	c.log.Warn("ironic shows a provision state that muster does not know", "node", node, "state", state)
}
