package world

import (
	"fmt"
	"strings"
)

// deviceTypeHeight is how many units of a rack a machine takes.
var deviceTypeHeight = map[string]float64{ClassCompute: 1, ClassNVSwitch: 1, ClassPowerShelf: 1, ClassSwitch: 1}

// resourceClasses are what the fleet's custom field resource_class says.
var resourceClasses = map[string]string{ClassCompute: "gb200", ClassNVSwitch: "nvswitch", ClassPowerShelf: "powershelf"}

// named gives the object of a kind with the slug, made if there is none.
func (s *State) named(kind, name, slug string, fields map[string]any) *Object {
	if o := s.ObjectBySlug(kind, slug); o != nil {
		return o
	}
	o := &Object{Kind: kind, Name: name, Slug: slug, Fields: fields}
	if kind == KindRack {
		o.Slug = ""
	}
	return s.AddObject(o)
}

// seedDevice makes the machine a device of NetBox, with all that it refers to.
func (s *State) seedDevice(site *Site, m *Machine, use Use) {
	s.seedCustomFields()
	at := s.named(KindSite, strings.ToUpper(site.Name), site.Name, map[string]any{"status": "active", "time_zone": "Europe/Berlin"})
	hall := s.named(KindLocation, "Hall 1 of "+at.Name, site.Name+"-hall-1", map[string]any{"site": at.ID, "status": "active"})
	rack := s.named(KindRack, m.Rack, m.Rack, map[string]any{"site": at.ID, "location": hall.ID, "status": "active", "u_height": 48})
	maker := s.named(KindManufacturer, m.Vendor, slug(m.Vendor), nil)
	model := s.named(KindDeviceType, m.Model, slug(m.Model), map[string]any{"manufacturer": maker.ID, "u_height": deviceTypeHeight[m.Class]})
	o := &Object{
		Kind: KindDevice, Name: m.Name, Machine: m.Name, Custom: map[string]any{},
		Fields: map[string]any{
			"site": at.ID, "location": hall.ID, "rack": rack.ID, "position": float64(m.Position), "face": "front",
			"role": s.named(KindRole, m.Class, m.Class, map[string]any{"color": "2196f3"}).ID, "device_type": model.ID,
			"tenant": s.named(KindTenant, "Fleet", "fleet", nil).ID, "status": deviceStatus(use), "serial": m.Serial,
		},
	}
	if m.Class == ClassCompute {
		o.Fields["platform"] = s.named(KindPlatform, "Ubuntu 24.04", "ubuntu-2404", nil).ID
		o.Tags = []int{s.named(KindTag, "gpu", "gpu", map[string]any{"color": "ff0000"}).ID}
		o.Custom["stage"] = stageOf(use)
		o.Custom["features"] = []any{"ib", "nvme"}
	}
	if class := resourceClasses[m.Class]; class != "" {
		o.Custom["resource_class"] = class
	}
	o.Custom["slot"] = float64(m.Position)
	s.AddObject(o)
	if m.Address != "" {
		ip := s.AddObject(&Object{Kind: KindIP, Name: m.Address + "/8", Fields: map[string]any{"device": o.ID, "dns_name": m.Name + "-bmc.example.invalid"}})
		o = cloneObject(o)
		o.Fields["oob_ip"] = ip.ID
		s.ChangeObject(o)
	}
	m.NetBox = o.Key()
}

func deviceStatus(use Use) string {
	if use == UseNew {
		return "staged"
	}
	return "active"
}

func stageOf(use Use) string {
	switch use {
	case UseNew, UseEnrolling:
		return "new"
	case UseBurnIn, UseDrained:
		return "burn_in"
	}
	return "production"
}

// customFieldChoices are the choices of the fleet's select fields, value → label.
var customFieldChoices = map[string][][2]string{
	"stage":    {{"new", "New"}, {"burn_in", "Burn-in"}, {"production", "Production"}, {"retired", "Retired"}},
	"features": {{"ib", "InfiniBand"}, {"nvme", "NVMe"}, {"lc", "Liquid cooled"}},
}

// seedCustomFields makes one custom field of every type that a fleet uses.
func (s *State) seedCustomFields() {
	if s.ObjectBySlug(KindCustomField, "resource_class") != nil {
		return
	}
	for _, f := range []struct{ name, kind string }{
		{"resource_class", "text"}, {"owner_team", "text"}, {"stage", "select"}, {"features", "multiselect"}, {"gpu_ready", "boolean"},
		{"slot", "integer"}, {"power_kw", "decimal"}, {"warranty_end", "date"}, {"spare_site", "object"},
	} {
		fields := map[string]any{"type": f.kind}
		if choices := customFieldChoices[f.name]; choices != nil {
			list := make([]any, len(choices))
			for i, c := range choices {
				list[i] = []any{c[0], c[1]}
			}
			fields["choices"], fields["choice_set"] = list, fmt.Sprintf("%ss", strings.TrimSuffix(f.name, "s"))
		}
		if f.kind == "object" {
			fields["related"] = KindSite
		}
		s.AddObject(&Object{Kind: KindCustomField, Name: f.name, Fields: fields})
	}
	for _, tag := range []string{"pilot", "do-not-touch", "dhcp-configured", "bmc-configured", "ironic-enrolled", "provisioned"} {
		s.named(KindTag, tag, tag, map[string]any{"color": "9e9e9e"})
	}
}

// slug is a name as NetBox makes slugs of it.
func slug(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '.' || r == '-':
			return '-'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(name))
}
