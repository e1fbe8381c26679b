package netbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Bounds of texts, in bytes.
const (
	maxName  = 255
	maxField = 8 << 10 // one custom field, as JSON
)

// wanted is what is asked for of a device. From 4.0 on an answer holds nothing
// else; older servers give everything.
const wanted = "id,name,status,role,tenant,site,location,rack,position,serial,asset_tag,oob_ip,tags,custom_fields,last_updated"

// resourceClassField is the custom field that names a device's resource class;
// NetBox has nothing of its own for it.
const resourceClassField = "resource_class"

// page is the frame of a list.
type page struct {
	count   int
	next    string // "" after the last one
	results []json.RawMessage
}

// decodePage reads a page. An answer without its count or its list is none:
// only with them can a listing be told complete.
func decodePage(body []byte) (page, error) {
	var p struct {
		Count   *int             `json:"count"`
		Next    *string          `json:"next"`
		Results *json.RawMessage `json:"results"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return page{}, fmt.Errorf("the answer is no page of a list: %w", err)
	}
	if p.Count == nil || *p.Count < 0 || p.Results == nil {
		return page{}, errors.New("the answer is no page of a list: it has no count or no results")
	}
	out := page{count: *p.Count}
	if err := json.Unmarshal(*p.Results, &out.results); err != nil || out.results == nil {
		return page{}, errors.New("the answer is no page of a list: its results are no list")
	}
	if p.Next != nil {
		out.next = *p.Next
	}
	return out, nil
}

// rawDevice holds what is read of a device, each field undecoded: a field of an
// unexpected form costs itself only.
type rawDevice struct {
	ID           json.RawMessage `json:"id"`
	Name         json.RawMessage `json:"name"`
	Status       json.RawMessage `json:"status"`
	Role         json.RawMessage `json:"role"`
	DeviceRole   json.RawMessage `json:"device_role"` // up to 3.7
	Tenant       json.RawMessage `json:"tenant"`
	Site         json.RawMessage `json:"site"`
	Location     json.RawMessage `json:"location"`
	Rack         json.RawMessage `json:"rack"`
	Position     json.RawMessage `json:"position"`
	Serial       json.RawMessage `json:"serial"`
	AssetTag     json.RawMessage `json:"asset_tag"`
	OobIP        json.RawMessage `json:"oob_ip"`
	Tags         json.RawMessage `json:"tags"`
	CustomFields json.RawMessage `json:"custom_fields"`
	LastUpdated  json.RawMessage `json:"last_updated"`
}

// device is one device as read.
type device struct {
	id      string
	serial  string // "" where it names no machine
	site    string // slug, "" where it could not be read
	rackID  int64  // 0 for none
	updated string // last_updated as it is written; "" where not served
	facts   facts.Netbox
}

// decode reads one device. ok is false without a readable id.
func decode(raw json.RawMessage) (d device, ok bool) {
	var r rawDevice
	if json.Unmarshal(raw, &r) != nil {
		return device{}, false
	}
	id, ok := integer(r.ID)
	if !ok || id <= 0 {
		return device{}, false
	}
	d.id = strconv.FormatInt(id, 10)
	f := &d.facts
	f.Listed = facts.True
	read := reader{lost: map[string]string{}}

	f.Name = read.text("name", r.Name)
	f.Status = read.status(r.Status)
	role := r.Role
	if !present(role) {
		role = r.DeviceRole
	}
	f.Role = notNull(role, read.nested("role", role, "slug"))
	f.Site = notNull(r.Site, read.nested("site", r.Site, "slug"))
	f.Tenant = read.nested("tenant", r.Tenant, "name")
	f.Location = read.nested("location", r.Location, "name")
	f.Rack = read.nested("rack", r.Rack, "name")
	f.Position = read.position(r.Position)
	f.Serial = notNull(r.Serial, read.text("serial", r.Serial))
	f.AssetTag = read.text("asset_tag", r.AssetTag)
	f.OobIP = read.address("oob_ip", r.OobIP)
	f.Tags = read.slugs("tags", r.Tags)
	f.CustomFields = read.customFields(r.CustomFields)
	if class, isText := f.CustomFields[resourceClassField].(string); isText {
		f.ResourceClass = facts.Text{Value: class, Known: true}
	}

	d.site = f.Site.Value
	d.serial = strings.TrimSpace(f.Serial.Value)
	if sources.PlaceholderSerial(d.serial) {
		d.serial = ""
	}
	var rack struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(r.Rack, &rack) == nil {
		d.rackID, _ = integer(rack.ID)
	}
	_ = json.Unmarshal(r.LastUpdated, &d.updated) // null and other forms: not served
	if len(read.lost) > 0 {
		f.Unreadable = read.lost
	}
	return d, true
}

// reader decodes fields and notes what it cannot read. Absent is not known. A
// null is NetBox's word that there is none: known and empty, where a device may
// have none.
type reader struct {
	lost map[string]string // fact → reason
}

func (r *reader) lose(fact string) facts.Text {
	r.lost[fact] = sources.ReasonDecodeFailed
	return facts.Text{}
}

// notNull takes the null of what every device has for not known.
func notNull(raw json.RawMessage, t facts.Text) facts.Text {
	if !present(raw) {
		return facts.Text{}
	}
	return t
}
