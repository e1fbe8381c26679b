package world

import (
	"maps"
	"slices"
	"time"
)

// Object is one object of NetBox: a device, a rack, a site, a role, a tag, …
type Object struct {
	Kind    string         `json:"kind"` // NetBox's endpoint: devices, racks, sites, device-roles, tags, …
	ID      int            `json:"id"`
	Name    string         `json:"name"`
	Slug    string         `json:"slug,omitempty"`
	Fields  map[string]any `json:"fields,omitempty"` // raw values as they are written; references are ids
	Custom  map[string]any `json:"custom,omitempty"` // custom fields, raw
	Tags    []int          `json:"tags,omitempty"`   // ids
	Machine string         `json:"machine,omitempty"`
	Created time.Time      `json:"created"`
	Updated time.Time      `json:"last_updated"`
}

// The kinds of objects that the world knows of; the faces may hold others.
const (
	KindSite         = "sites"
	KindLocation     = "locations"
	KindRack         = "racks"
	KindRole         = "device-roles"
	KindManufacturer = "manufacturers"
	KindDeviceType   = "device-types"
	KindPlatform     = "platforms"
	KindTenant       = "tenants"
	KindTag          = "tags"
	KindCustomField  = "custom-fields"
	KindIP           = "ip-addresses"
	KindDevice       = "devices"
	KindInterface    = "interfaces" // of a machine they are what NICs says; others may be held

	kindSequence = "sequences" // of a kind's ids: Name is the kind, ID the last one
)

func objectKind() kind[Object] {
	return kind[Object]{clone: cloneObject}
}

func cloneObject(o *Object) *Object {
	c := *o
	c.Fields, c.Custom, c.Tags = deepMap(o.Fields), maps.Clone(o.Custom), slices.Clone(o.Tags)
	return &c
}

// ObjectKey is an object's key: its kind and its id, so padded that keys are in
// the order of ids. An id has nine digits at most.
func ObjectKey(kind string, id int) string {
	var digits [9]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = '0' + byte(id%10)
		id /= 10
	}
	return kind + "/" + string(digits[:])
}

// Key is the object's key in Objects.
func (o *Object) Key() string { return ObjectKey(o.Kind, o.ID) }

// Int gives a field that holds a whole number or the id of another object, 0
// where there is none.
func (o *Object) Int(field string) int {
	switch v := o.Fields[field].(type) {
	case int:
		return v
	case float64: // as the journal gives it back
		return int(v)
	}
	return 0
}

// Text gives a field that holds a text.
func (o *Object) Text(field string) string {
	text, _ := o.Fields[field].(string)
	return text
}

// Object gives an object, not to be changed, or nil.
func (s *State) Object(kind string, id int) *Object {
	if id < 0 || id >= 1_000_000_000 {
		return nil
	}
	return s.Objects.Get(ObjectKey(kind, id))
}

// ObjectBySlug gives the first object of a kind with the slug, or the name where
// the kind has no slugs; nil if there is none.
func (s *State) ObjectBySlug(kind, slug string) *Object {
	for _, o := range s.Objects.Of(kind) {
		if o.Slug == slug || o.Slug == "" && o.Name == slug {
			return o
		}
	}
	return nil
}

// AddObject stores a new object under the next id of its kind: an id is never
// given twice. A device that is called like a machine is that machine's.
func (s *State) AddObject(o *Object) *Object {
	key := kindSequence + "/" + o.Kind
	sequence := s.Objects.Edit(key)
	if sequence == nil {
		sequence = &Object{Kind: kindSequence, Name: o.Kind}
	}
	sequence.ID++
	s.Objects.Put(key, sequence)
	o.ID, o.Created, o.Updated = sequence.ID, s.Now, s.Now
	if o.Kind == KindDevice && o.Machine == "" {
		s.claimMachine(o)
	}
	s.Objects.Put(o.Key(), o)
	return o
}

func (s *State) claimMachine(o *Object) {
	site := s.Object(KindSite, o.Int("site"))
	if site == nil {
		return
	}
	if m := s.Machines.Edit(Key(site.Slug, o.Name)); m != nil {
		o.Machine, m.NetBox = m.Name, o.Key()
		s.Machines.Put(m.Key(), m)
	}
}

// ChangeObject stores a changed object, later than it was last changed.
func (s *State) ChangeObject(o *Object) {
	if o.Updated = o.Updated.Add(time.Microsecond); s.Now.After(o.Updated) {
		o.Updated = s.Now
	}
	s.Objects.Put(o.Key(), o)
}

// DeleteObject removes an object; its addresses go with a device.
func (s *State) DeleteObject(o *Object) {
	if o.Kind == KindDevice {
		if site := s.Object(KindSite, o.Int("site")); site != nil && o.Machine != "" {
			if m := s.Machines.Edit(Key(site.Slug, o.Machine)); m != nil && m.NetBox == o.Key() {
				m.NetBox = ""
				s.Machines.Put(m.Key(), m)
			}
		}
		for _, field := range []string{"oob_ip", "primary_ip4"} {
			s.Objects.Delete(ObjectKey(KindIP, o.Int(field)))
		}
	}
	s.Objects.Delete(o.Key())
}
