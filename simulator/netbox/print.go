package netbox

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// instant is how NetBox writes instants: with microseconds unless there are none.
const instant = "2006-01-02T15:04:05.999999Z"

// view is what an answer is printed from: the objects that others refer to, as
// they were at one instant.
type view struct {
	generation int
	base       string // http://HOST/PREFIX
	kinds      map[string]*kind
	related    map[string]*world.Object
	customs    []*world.Object // the custom fields of devices, by name
	counts     map[string]int  // KIND/ID.MEMBER → how many refer to it

	briefs map[string][]byte // KIND/ID → as others show it
	only   map[string]bool   // nil: all members
	omit   map[string]bool

	uncounted bool // what others refer to comes without its counts, as up to 4.4 after a change
}

func (v *view) get(kind string, id int) *world.Object {
	if id == 0 {
		return nil
	}
	return v.related[world.ObjectKey(kind, id)]
}

// print appends an object with the given members.
func (v *view) print(b []byte, k *kind, list []member, o *world.Object) []byte {
	b = append(b, '{')
	first := true
	for i := range list {
		m := &list[i]
		if v.only != nil && !v.only[m.name] || v.omit[m.name] {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), m.name...), `":`...)
		b = v.form(b, k, m, o)
	}
	return append(b, '}')
}

// brief appends an object as others refer to it, null where there is none.
func (v *view) brief(b []byte, kindName string, id int) []byte {
	o := v.get(kindName, id)
	if o == nil {
		return append(b, "null"...)
	}
	key := o.Key()
	made := v.briefs[key]
	if made == nil {
		k := v.kindNamed(kindName)
		plain := *v
		plain.only, plain.omit = nil, nil
		made = plain.print(nil, k, v.briefly(k), o)
		v.briefs[key] = made
	}
	return append(b, made...)
}

// briefly gives the members by which others refer to an object.
func (v *view) briefly(k *kind) []member {
	if !v.uncounted {
		return k.brief
	}
	return slices.DeleteFunc(slices.Clone(k.brief), func(m member) bool { return strings.HasSuffix(m.name, "_count") })
}

func (v *view) kindNamed(name string) *kind {
	for _, k := range v.kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// form appends a member in its form.
func (v *view) form(b []byte, k *kind, m *member, o *world.Object) []byte {
	switch m.form {
	case "":
		return append(b, "null"...)
	case "0", "1", "100", "1000", "true", "false", "[]", "{}":
		return append(b, m.form...)
	case "id":
		return strconv.AppendInt(b, int64(o.ID), 10)
	case "url":
		return wire.Quote(b, fmt.Sprintf("%s/api/%s/%d/", v.base, k.path, o.ID))
	case "web":
		return wire.Quote(b, fmt.Sprintf("%s/%s/%d/", v.base, k.path, o.ID))
	case "display":
		return wire.Quote(b, v.display(o))
	case "name":
		return wire.Quote(b, o.Name)
	case "nullname":
		return nullText(b, o.Name)
	case "slug":
		return wire.Quote(b, o.Slug)
	case "text":
		return wire.Quote(b, o.Text(m.name))
	case "nulltext":
		if text, ok := o.Fields[m.name].(string); ok {
			return wire.Quote(b, text)
		}
		return append(b, "null"...)
	case "any":
		return wire.Value(b, o.Fields[m.name])
	case "ref":
		return v.brief(b, references[m.name], o.Int(m.name))
	case "role":
		return v.brief(b, world.KindRole, o.Int("role"))
	case "primary":
		return v.brief(b, world.KindIP, o.Int("primary_ip4"))
	case "choice":
		return choice(b, o.Kind+"."+m.name, o.Text(m.name))
	case "created":
		return wire.Time(b, o.Created.UTC(), instant)
	case "updated":
		return wire.Time(b, o.Updated.UTC(), instant)
	case "tags":
		return v.tags(b, o)
	case "custom":
		return v.custom(b, o)
	case "count":
		return strconv.AppendInt(b, int64(v.counts[o.Key()+"."+m.name]), 10)
	}
	return v.oddForm(b, m, o)
}

// oddForm appends what few kinds have.
func (v *view) oddForm(b []byte, m *member, o *world.Object) []byte {
	switch m.form {
	case "height":
		height, ok := number(o.Fields[m.name])
		if !ok {
			return append(b, "null"...)
		}
		return strconv.AppendFloat(b, height, 'f', 1, 64)
	case "u":
		height, _ := number(o.Fields[m.name])
		return strconv.AppendInt(b, int64(height), 10)
	case "width":
		return append(b, `{"value":19,"label":"19 inches"}`...)
	case "active":
		return labelled(b, "active", "Active")
	case "loose":
		return labelled(b, "loose", "Loose")
	case "always":
		return labelled(b, "always", "Always")
	case "yes":
		return labelled(b, "yes", "Yes")
	case "context":
		return append(b, `{"ntp":["10.0.0.1"]}`...)
	case "family":
		return append(b, `{"value":4,"label":"IPv4"}`...)
	case "familybrief":
		if v.generation < 40 {
			return append(b, '4')
		}
		return append(b, `{"value":4,"label":"IPv4"}`...)
	case "interface":
		if o.Int("device") == 0 {
			return append(b, "null"...)
		}
		return append(b, `"dcim.interface"`...)
	case "device":
		if o.Int("device") == 0 {
			return append(b, "null"...)
		}
		return strconv.AppendInt(b, int64(interfaceID(o.Int("device"), 0)), 10)
	case "assigned":
		return v.assigned(b, o)
	}
	return v.customForm(b, m, o)
}

// assigned appends the interface that an address is on: the BMC's.
func (v *view) assigned(b []byte, o *world.Object) []byte {
	if o.Int("device") == 0 {
		return append(b, "null"...)
	}
	id := interfaceID(o.Int("device"), 0)
	b = fmt.Appendf(b, `{"id":%d,"url":%s,"display":"BMC","device":`, id, wire.Quote(nil, fmt.Sprintf("%s/api/dcim/interfaces/%d/", v.base, id)))
	b = v.brief(b, world.KindDevice, o.Int("device"))
	b = append(b, `,"name":"BMC",`...)
	if v.generation >= 40 {
		b = append(b, `"description":"",`...)
	}
	return append(b, `"cable":null,"_occupied":false}`...)
}

func nullText(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return wire.Quote(b, text)
}

func number(value any) (float64, bool) {
	switch n := value.(type) {
	case float64:
		return n, true
	case int:
		return float64(n), true
	}
	return 0, false
}

func labelled(b []byte, value, label string) []byte {
	b = wire.Quote(append(b, `{"value":`...), value)
	b = wire.Quote(append(b, `,"label":`...), label)
	return append(b, '}')
}

// choice appends the value of a choice with its label.
func choice(b []byte, name, value string) []byte {
	for _, c := range choiceLabels[name] {
		if c[0] == value {
			return labelled(b, c[0], c[1])
		}
	}
	return append(b, "null"...)
}

// display is what people read of an object.
func (v *view) display(o *world.Object) string {
	switch o.Kind {
	case world.KindDevice:
		tag := o.Text("asset_tag")
		switch {
		case o.Name == "":
			model := v.get(world.KindDeviceType, o.Int("device_type"))
			if model == nil {
				return strconv.Itoa(o.ID)
			}
			name := model.Name
			if maker := v.get(world.KindManufacturer, model.Int("manufacturer")); maker != nil {
				name = maker.Name + " " + name
			}
			return fmt.Sprintf("%s (%d)", name, o.ID)
		case tag != "":
			return o.Name + " (" + tag + ")"
		}
	case world.KindCustomField:
		return label(o.Name)
	}
	return o.Name
}

// tags appends an object's tags by their names.
func (v *view) tags(b []byte, o *world.Object) []byte {
	ids := slices.Clone(o.Tags)
	slices.SortFunc(ids, func(x, y int) int {
		return strings.Compare(v.nameOf(world.KindTag, x), v.nameOf(world.KindTag, y))
	})
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.brief(b, world.KindTag, id)
	}
	return append(b, ']')
}

func (v *view) nameOf(kind string, id int) string {
	if o := v.get(kind, id); o != nil {
		return o.Name
	}
	return ""
}

// etag is the weak tag of one object; "" where the generation has none.
func (v *view) etag(o *world.Object) string {
	if v.generation < 46 {
		return ""
	}
	return etag(o)
}

func etag(o *world.Object) string {
	layout := "2006-01-02T15:04:05.000000"
	if o.Updated.Nanosecond() == 0 {
		layout = time.DateTime[:10] + "T15:04:05"
	}
	return `W/"` + o.Updated.UTC().Format(layout) + `+00:00"`
}

// whole reports a number without a fraction.
func whole(n float64) bool { return n == math.Trunc(n) && math.Abs(n) < 1<<53 }
