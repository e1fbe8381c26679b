package redfish

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// document is one JSON object, decoded field by field: a field of an odd type
// costs that field. A nil document has no fields.
type document map[string]json.RawMessage

// parse reads an object; nil where the body is none.
func parse(body []byte) document {
	var d document
	if json.Unmarshal(body, &d) != nil {
		return nil
	}
	return d
}

func null(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// text gives a text; a number counts as its spelling, anything else as none.
func (d document) text(name string) string {
	raw := d[name]
	if null(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return sources.CleanText(strings.TrimSpace(s), 256)
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// boolean gives a boolean, also one that is spelled as a text.
func (d document) boolean(name string) (value, known bool) {
	raw := d[name]
	if json.Unmarshal(raw, &value) == nil && !null(raw) {
		return value, true
	}
	switch strings.ToLower(d.text(name)) {
	case "true", "on":
		return true, true
	case "false", "off":
		return false, true
	}
	return false, false
}

// number gives a number, also one that is spelled as a text; fractions are cut.
func (d document) number(name string) (int, bool) {
	text := strings.TrimSuffix(d.text(name), "%")
	f, err := json.Number(text).Float64()
	if text == "" || err != nil || f < -1<<53 || f > 1<<53 {
		return 0, false
	}
	return int(f), true
}

func (d document) object(name string) document {
	if null(d[name]) {
		return nil
	}
	return parse(d[name])
}

// objects gives the objects of a list, without its elements of other types; one
// object alone counts as a list of it.
func (d document) objects(name string) []document {
	var raws []json.RawMessage
	if json.Unmarshal(d[name], &raws) != nil {
		if one := d.object(name); one != nil {
			return []document{one}
		}
		return nil
	}
	found := make([]document, 0, len(raws))
	for _, raw := range raws {
		if one := parse(raw); one != nil {
			found = append(found, one)
		}
	}
	return found
}

// texts gives the texts of a list; a single text counts as a list of it.
func (d document) texts(name string) []string {
	var raws []json.RawMessage
	if json.Unmarshal(d[name], &raws) != nil {
		if one := d.text(name); one != "" {
			return []string{one}
		}
		return nil
	}
	var found []string
	for _, raw := range raws {
		if one := (document{"x": raw}).text("x"); one != "" {
			found = append(found, one)
		}
	}
	return found
}

// link gives the URI that a field names, as an object or as a bare text.
func (d document) link(name string) string {
	if o := d.object(name); o != nil {
		return o.text("@odata.id")
	}
	if text := d.text(name); strings.HasPrefix(text, "/") || strings.HasPrefix(text, "http") {
		return text
	}
	return ""
}

// links gives the URIs of a list of links.
func (d document) links(name string) []string {
	var found []string
	for _, one := range d.objects(name) {
		if uri := one.text("@odata.id"); uri != "" {
			found = append(found, uri)
		}
	}
	return found
}

// only reports that the document says nothing beyond where it is.
func (d document) only() bool {
	for name := range d {
		if !strings.HasPrefix(name, "@") {
			return false
		}
	}
	return true
}

// id gives the last part of where a resource is, the name that its service
// gave it.
func id(uri string) string {
	uri = strings.TrimRight(uri, "/")
	return uri[strings.LastIndexByte(uri, '/')+1:]
}

// reading is what one resource says of its health.
type reading struct {
	health facts.RedfishHealth // the worse of its own and its parts'; null where it says none
	absent bool                // the part is not there
	odd    string              // a health that muster does not know
}

func (d document) health() reading { return statusOf(d, "Status") }

func statusOf(d document, name string) reading {
	var r reading
	status := d.object(name)
	if status == nil {
		if !null(d[name]) {
			r.odd = "a Status that is no object"
		}
		return r
	}
	r.absent = strings.EqualFold(status.text("State"), "Absent")
	for _, field := range []string{"Health", "HealthRollup", "HealthRollUp"} { // the last as DMTF once spelled it
		text := status.text(field)
		if text == "" {
			if !null(status[field]) && text == "" && !bytes.Equal(status[field], []byte(`""`)) {
				r.odd = field + " that is no text"
			}
			continue
		}
		health, known := healthOf(text)
		if !known {
			r.odd = text
		}
		r.health = max(r.health, health)
	}
	return r
}

func healthOf(text string) (facts.RedfishHealth, bool) {
	switch strings.ToLower(text) {
	case "ok":
		return facts.RedfishHealthOK, true
	case "warning":
		return facts.RedfishHealthWarning, true
	case "critical":
		return facts.RedfishHealthCritical, true
	}
	return 0, false
}

// verdict gathers the readings of the parts of a subsystem. The worst counts.
// Parts that say nothing do not: many have no health of their own. A part that
// could not be read leaves the subsystem unread, unless another is bad already.
type verdict struct {
	worst  facts.RedfishHealth
	unread string
	parts  int // that say something
}

func (v *verdict) add(r reading) {
	if r.absent {
		return
	}
	if r.odd != "" && r.health == 0 {
		v.fail("unmodelled health " + r.odd)
	}
	if r.health != 0 {
		v.parts++
	}
	v.worst = max(v.worst, r.health)
}

func (v *verdict) fail(why string) {
	if v.unread == "" {
		v.unread = why
	}
}

// failed notes an error of a collection. One that a link names and that is not
// there has nothing in it.
func (v *verdict) failed(err error) {
	if class := ClassOf(err); class != ClassMissing && class != ClassUnable {
		v.fail(reason(err))
	}
}

func (v *verdict) member(m member) {
	if m.err != nil {
		v.fail(id(m.uri) + ": " + reason(m.err))
		return
	}
	r := m.doc.health()
	if r.health == 0 && !r.absent { // older storage says it of its controllers
		for _, controller := range m.doc.objects("StorageControllers") {
			v.add(controller.health())
		}
	}
	v.add(r)
}

// Power states as facts.BMC has them.
const (
	PowerOn          = "On"
	PowerOff         = "Off"
	PowerPoweringOn  = "PoweringOn"
	PowerPoweringOff = "PoweringOff"
	PowerPaused      = "Paused"
)

// powerOf reads a power state, whatever its case. odd is a value that muster
// does not know; both are "" where the BMC says none.
func powerOf(d document) (state, odd string) {
	text := d.text("PowerState")
	if text == "" {
		if !null(d["PowerState"]) && string(d["PowerState"]) != `""` {
			return "", "a PowerState that is no text"
		}
		return "", ""
	}
	for _, known := range []string{PowerOn, PowerOff, PowerPoweringOn, PowerPoweringOff, PowerPaused} {
		if strings.EqualFold(text, known) {
			return known, ""
		}
	}
	return "", text
}

// transitioning reports a state that the machine is only passing through.
func transitioning(state string) bool { return state == PowerPoweringOn || state == PowerPoweringOff }

// switched gathers the power of a shelf's supplies or outlets: on when all
// are, off when none is, else unknown.
type switched struct{ on, off, unknown int }

func (s *switched) add(d document, name string) {
	on, known := d.boolean(name)
	switch {
	case !known:
		s.unknown++
	case on:
		s.on++
	default:
		s.off++
	}
}

func (s switched) state() (state, odd string) {
	switch {
	case s.on+s.off == 0:
		return "", ""
	case s.unknown > 0 || s.on > 0 && s.off > 0:
		return "", "mixed: some supplies are on and some are not"
	case s.on > 0:
		return PowerOn, ""
	}
	return PowerOff, ""
}
