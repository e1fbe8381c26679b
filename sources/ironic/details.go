package ironic

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// Details are what facts do not carry of a node, as Ironic shows it: what is
// secret it shows as asterisks. A map is nil where its field cannot be read.
type Details struct {
	Driver         string
	ConductorGroup string
	Interfaces     map[string]string // deploy_interface → direct
	DriverInfo     map[string]any
	Properties     map[string]any
	Extra          map[string]any
	InstanceInfo   map[string]any
	Inspected      time.Time // when the last inspection ended well; zero: none did
}

// detailed are the fields of Details, with the versions that brought them.
var detailed = []struct {
	field string
	since int
}{
	{"uuid", 1}, {"driver", 1}, {"driver_info", 1}, {"properties", 1}, {"extra", 1}, {"instance_info", 1}, {"conductor_group", 46}, {"inspection_finished_at", 6},
	{"boot_interface", 31}, {"console_interface", 31}, {"deploy_interface", 31}, {"inspect_interface", 31}, {"management_interface", 31},
	{"network_interface", 20}, {"power_interface", 31}, {"raid_interface", 31}, {"vendor_interface", 31}, {"storage_interface", 33},
	{"rescue_interface", 38}, {"bios_interface", 40},
}

// Details reads them. ErrGone: there is no such node.
func (c *Client) Details(ctx context.Context, ref string) (Details, error) {
	const op = "read the details of an ironic node"
	if !validRef(ref) {
		return Details{}, refused(sources.KindRefused, op, "%q is no uuid of a node", sources.CleanText(ref, 64))
	}
	s, err := c.session(ctx)
	if err != nil {
		return Details{}, err
	}
	var fields []string
	for _, d := range detailed {
		if s.minor >= d.since {
			fields = append(fields, d.field)
		}
	}
	body, _, err := c.read(ctx, s, s.sc.ServiceURL("nodes", url.PathEscape(ref))+"?fields="+strings.Join(fields, ","), op)
	if err != nil {
		return Details{}, keystone.Gone(err)
	}
	var raw map[string]json.RawMessage
	r := &reader{}
	if json.Unmarshal(body, &raw) != nil || r.text(raw["uuid"], "uuid", shortText).Value != ref {
		return Details{}, foreign(op, body)
	}
	object := func(field string) map[string]any { return r.properties(r.object(raw[field], field)) }
	d := Details{
		Driver: r.text(raw["driver"], "driver", shortText).Value, ConductorGroup: r.text(raw["conductor_group"], "conductor_group", shortText).Value,
		Interfaces: map[string]string{}, DriverInfo: object("driver_info"), Properties: object("properties"), Extra: object("extra"),
		InstanceInfo: object("instance_info"), Inspected: r.instant(raw["inspection_finished_at"], "inspection_finished_at"),
	}
	for _, field := range fields {
		if value := r.text(raw[field], field, shortText); strings.HasSuffix(field, "_interface") && value.Known {
			d.Interfaces[field] = value.Value
		}
	}
	return d, nil
}
