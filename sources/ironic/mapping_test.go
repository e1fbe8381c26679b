package ironic

import (
	"encoding/json"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func at(minor int) *session {
	return &session{minor: minor, fields: fieldsAt(minor), lost: lostAt(minor)}
}

// A node with every field filled in, and the facts that each field feeds.
const fullNode = `{
	"uuid": "3a2c", "name": "n1", "provision_state": "clean failed", "target_provision_state": "available", "maintenance": true,
	"maintenance_reason": "bad", "fault": "clean failure", "last_error": "bad", "power_state": "power on", "target_power_state": "power off",
	"instance_uuid": "i-1", "lessee": "p1", "owner": "o1", "resource_class": "gold", "driver": "ipmi", "reservation": "cond-1",
	"driver_info": {"redfish_address": "https://192.0.2.1", "ipmi_address": "192.0.2.2"}, "extra": {"muster": "muster:7:i-1"},
	"properties": {"cpus": 8}, "traits": ["CUSTOM_A"], "provision_updated_at": "2026-01-02T03:04:05+00:00"}`

var fed = map[string][]string{
	"instance_uuid": {"instance_uuid", "instance_bound", "our_mark"},
	"driver_info":   {"bmc_address"},
	"extra":         {"our_mark"},
	"driver":        {"driver", "bmc_address"}, // which address is the driver's own
}

func mapBody(t *testing.T, body map[string]any) *facts.Ironic {
	t.Helper()
	data, err := json.Marshal(body)
	must(t, err)
	raw, ok := decodeNode(data)
	if !ok {
		t.Fatalf("not decoded: %s", data)
	}
	f, _, _ := mapNode(raw, at(newest))
	return f
}

func full(t *testing.T) map[string]any {
	var body map[string]any
	must(t, json.Unmarshal([]byte(fullNode), &body))
	return body
}

// byName gives each fact under its name, without unreadable.
func byName(f *facts.Ironic) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(*f)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "unreadable" {
			out[name] = v.Field(i).Interface()
		}
	}
	return out
}

// Whatever stands in a field, it costs at most the facts of that field, it
// never becomes false, none or a state, and a wrong type is named as such.
func TestAnOddFieldCostsOnlyItsFacts(t *testing.T) {
	t.Parallel()
	base := byName(mapBody(t, full(t)))
	odd := []struct {
		name  string
		value any
		wrong bool // a wrong type for every field that it is listed for
	}{
		{"absent", nil, false}, {"null", nil, false}, {"a number", 7, true}, {"an object", map[string]any{"a": 1}, true},
		{"a list", []any{1, nil}, true}, {"true", true, true}, {"a text", "true", true}, {"redacted", "** Redacted - requires baremetal:node:get permission. **", true},
	}
	text := []string{"name", "maintenance_reason", "fault", "last_error", "owner", "resource_class"}
	for field := range full(t) {
		if field == "uuid" {
			continue
		}
		for _, o := range odd {
			body := full(t)
			body[field] = o.value
			if o.name == "absent" {
				delete(body, field)
			}
			f := mapBody(t, body)
			own := fed[field]
			if own == nil {
				own = []string{field}
			}
			for name, value := range byName(f) {
				if !slices.Contains(own, name) {
					if name != "unmodelled" && !reflect.DeepEqual(value, base[name]) {
						t.Errorf("%s is %s: fact %s changed from %v to %v", field, o.name, name, base[name], value)
					}
					continue
				}
				fits := fits(field, o.value)
				none := o.name == "null" && slices.Contains([]string{"lessee", "reservation", "instance_uuid", "driver"}, field)
				if !fits && !none && name != "bmc_address" && !reflect.ValueOf(value).IsZero() {
					t.Errorf("%s is %s: fact %s is %v, not null", field, o.name, name, value)
				}
				if !fits && o.wrong && !readable[field+" is "+o.name] && f.Unreadable[name] == "" && field != "instance_uuid" && field != "driver" {
					t.Errorf("%s is %s: fact %s is not named unreadable", field, o.name, name)
				}
			}
		}
	}
	for _, field := range text {
		body := full(t)
		body[field] = ""
		if value := byName(mapBody(t, body))[field]; value != (facts.Text{}) {
			t.Errorf("%s is empty: its fact is %v, not null", field, value)
		}
	}
}

// readable lists the values of the right type that still give no fact.
var readable = map[string]bool{"provision_state is a text": true, "driver_info is an object": true}

// fits says that a value is of the type that the field has.
func fits(field string, value any) bool {
	switch v := value.(type) {
	case string:
		objects := []string{"maintenance", "driver_info", "extra", "properties", "traits", "provision_updated_at", "provision_state"}
		return !redacted(v) && !slices.Contains(objects, field)
	case bool:
		return field == "maintenance"
	case map[string]any:
		return field == "properties" || field == "extra"
	}
	return false
}

func TestNoneIsOnlySaidByIronic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want facts.Ironic
	}{
		"a null says that there is none": {
			`{"uuid": "u", "lessee": null, "reservation": null, "instance_uuid": null, "extra": {}}`,
			facts.Ironic{Lessee: facts.TextOf(""), Reservation: facts.TextOf(""), InstanceBound: facts.False, OurMark: facts.False},
		},
		"what is not there says nothing": {`{"uuid": "u"}`, facts.Ironic{}},
		"every nullable field null": {
			`{"uuid": "u", "name": null, "power_state": null, "provision_state": null, "maintenance": null, "fault": null, "last_error": null,
			  "properties": null, "traits": null, "extra": null, "driver_info": null, "provision_updated_at": null}`,
			facts.Ironic{},
		},
		"no trait is a list of none": {`{"uuid": "u", "traits": []}`, facts.Ironic{Traits: []string{}}},
		"a summary without fault and lock": {
			`{"uuid": "u", "name": "n1", "power_state": "power on", "provision_state": "active", "maintenance": true, "instance_uuid": null}`,
			facts.Ironic{Name: facts.TextOf("n1"), PowerState: facts.TextOf("power on"), ProvisionState: facts.ProvisionStateActive, Maintenance: facts.True, InstanceBound: facts.False},
		},
		"an empty instance is unreadable": {
			`{"uuid": "u", "instance_uuid": ""}`,
			facts.Ironic{Unreadable: map[string]string{"instance_uuid": "DecodeFailed", "instance_bound": "DecodeFailed"}},
		},
		"a redacted value is not served": {
			`{"uuid": "u", "reservation": "** Redacted - requires baremetal:node:get:reservation permission. **",
			  "driver_info": {"content": "** Redacted - requires baremetal:node:get:driver_info permission. **"}}`,
			facts.Ironic{Unreadable: map[string]string{"reservation": "FieldNotServed", "bmc_address": "FieldNotServed"}},
		},
		"the epoch's first second is no instant": {`{"uuid": "u", "provision_updated_at": "0001-01-01T00:00:00+00:00"}`, facts.Ironic{}},
		"an instant without a zone is UTC": {
			`{"uuid": "u", "provision_updated_at": "2026-01-02T03:04:05"}`,
			facts.Ironic{ProvisionUpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		},
		"texts are cleaned": {"{\"uuid\": \"u\", \"last_error\": \"a\\u0000b\"}", facts.Ironic{LastError: facts.TextOf("ab")}},
	} {
		raw, ok := decodeNode([]byte(test.body))
		if !ok {
			t.Fatalf("%s: not decoded", name)
		}
		got, _, _ := mapNode(raw, at(newest))
		test.want.Listed = facts.True
		if diff := cmp.Diff(&test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Any state that is not in the table is no state at all, and said to be unmodelled.
func TestAnUnknownStateIsNoState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"firmware hold", "Available", "available ", "AVAILABLE", "null"})).Draw(t, "state")
		body, _ := json.Marshal(map[string]any{"uuid": "u", "provision_state": state})
		raw, _ := decodeNode(body)
		f, _, word := mapNode(raw, at(newest))
		_, known := facts.ParseProvisionState(word)
		if f.ProvisionState.Null() == known || f.Unmodelled != (word != "" && !known) {
			t.Fatalf("%q became %v, unmodelled %v", state, f.ProvisionState, f.Unmodelled)
		}
	})
}

// The table is Ironic's: every constant of gophercloud is in it and no other
// state is, but for the one that Ironic never stores.
func TestStatesAreThoseOfGophercloud(t *testing.T) {
	t.Parallel()
	pkg, err := build.Import("github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes", ".", 0)
	must(t, err)
	theirs := []string{}
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), pkg.Dir+"/"+name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "ProvisionState" {
					state, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
					theirs = append(theirs, state)
				}
			}
			return true
		})
	}
	theirs = slices.DeleteFunc(theirs, func(s string) bool { return s == "deploy complete" })
	ours := []string{}
	for code := facts.ProvisionState(1); code.String() != ""; code++ {
		ours = append(ours, code.String())
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	equal(t, ours, theirs)
}

func TestPropertiesAndSerial(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node       string
		properties string
		serial     string
	}{
		"numbers and texts alike": {
			`{"uuid": "u", "properties": {"cpus": "64", "memory_mb": 1048576, "capabilities": "boot_mode:uefi,raid_level:1", "local_gb": null}}`,
			`{"cpus": 64, "memory_mb": 1048576, "capabilities": "boot_mode:uefi,raid_level:1", "local_gb": null}`, "",
		},
		"what is no number stays a text": {
			`{"uuid": "u", "properties": {"cpus": "many", "memory_mb": "NaN", "rack": "007", "serial_number": "007"}}`,
			`{"cpus": "many", "memory_mb": "NaN", "rack": "007", "serial_number": "007"}`, "007",
		},
		"a placeholder is no serial":   {`{"uuid": "u", "properties": {"serial_number": "Not Specified"}, "extra": {"serial": " S1 "}}`, `{"serial_number": "Not Specified"}`, "S1"},
		"a serial written as a number": {`{"uuid": "u", "extra": {"serial_number": 12345678901234567890}}`, `null`, "12345678901234567890"},
		"an odd serial is none":        {`{"uuid": "u", "extra": {"serial_number": {"a": 1}}}`, `null`, ""},
	} {
		raw, _ := decodeNode([]byte(test.node))
		f, serial, _ := mapNode(raw, at(newest))
		var want map[string]any
		must(t, json.Unmarshal([]byte(test.properties), &want))
		if diff := cmp.Diff(want, f.Properties); diff != "" || serial != test.serial {
			t.Errorf("%s: serial %q, properties (-want +got):\n%s", name, serial, diff)
		}
	}
}

func TestBMCAddress(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		`"driver_info": {"redfish_address": "https://192.0.2.1:8443/redfish/v1"}`:                                  "192.0.2.1",
		`"driver_info": {"redfish_address": "https://[2001:db8::1]:443"}`:                                          "2001:db8::1",
		`"driver_info": {"redfish_address": "bmc-1.example"}`:                                                      "bmc-1.example",
		`"driver_info": {"ipmi_address": "192.0.2.2"}`:                                                             "192.0.2.2",
		`"driver_info": {"ipmi_address": "2001:db8::2"}`:                                                           "2001:db8::2",
		`"driver": "redfish", "driver_info": {"ipmi_address": "192.0.2.2", "redfish_address": "http://192.0.2.1"}`: "192.0.2.1",
		`"driver": "ipmi", "driver_info": {"ipmi_address": "192.0.2.2", "redfish_address": "http://192.0.2.1"}`:    "192.0.2.2",
		`"driver_info": {"redfish_address": "nonsense:::"}`:                                                        "?",
		`"driver_info": {"redfish_address": "http://a b/"}`:                                                        "?",
		`"driver_info": {"redfish_address": 7}`:                                                                    "?",
		`"driver_info": {}`:                                                                                        "",
	} {
		raw, _ := decodeNode([]byte(`{"uuid": "u", ` + info + `}`))
		f, _, _ := mapNode(raw, at(newest))
		_, lost := f.Unreadable["bmc_address"]
		if lost != (want == "?") || !lost && f.BMCAddress.Value != want {
			t.Errorf("%s gives %v, unreadable %v", info, f.BMCAddress, f.Unreadable)
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job := rapid.StringMatching(`[a-z0-9:-]{1,20}`).Draw(t, "job")
		instance := rapid.StringMatching(`[a-f0-9-]{1,36}`).Draw(t, "instance")
		gotJob, gotInstance, ok := ParseMark(Mark(job, instance))
		if !ok || gotJob != job || gotInstance != instance {
			t.Fatalf("%q, %q, %v", gotJob, gotInstance, ok)
		}
	})
	for _, mark := range []string{"", "muster", "muster:", "muster:7", "muster:7:", "muster::i", "x:7:i"} {
		if _, _, ok := ParseMark(mark); ok {
			t.Errorf("%q passes for a mark", mark)
		}
	}
}

func TestRefsCannotNameAnotherResource(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"", ".", "..", "detail", "a/b", "a?b", "a b", "a%2fb", "ü", strings.Repeat("a", 65)} {
		c := (&peer{config: Config{URL: "http://127.0.0.1:1"}}).client(t)
		_, err := c.Get(t.Context(), ref)
		wantKind(t, err, sources.KindRefused)
	}
}
