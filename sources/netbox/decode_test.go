package netbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// recording is one recorded answer of a real NetBox.
type recording struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Body   json.RawMessage   `json:"body"`
}

// bytes gives the body as it was sent; what is no JSON was recorded as a text.
func (r recording) bytes() []byte {
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		return []byte(text)
	}
	return r.Body
}

func (r recording) answer() *answer {
	a := &answer{status: r.Status, header: map[string][]string{}, body: r.bytes()}
	for name, value := range r.Header {
		a.header.Set(name, value)
	}
	return a
}

// recordings gives the recorded answers by version and name.
func recordings(t testing.TB) map[string]map[string]recording {
	t.Helper()
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d versions are recorded, %v", len(files), err)
	}
	all := map[string]map[string]recording{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var answers map[string]recording
		if err := json.Unmarshal(text, &answers); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = answers
	}
	return all
}

func known(s string) facts.Text { return facts.TextOf(s) }

func TestEveryGenerationSaysTheSameOfADevice(t *testing.T) {
	t.Parallel()
	want := facts.Netbox{
		Listed: facts.True, Name: known("r01-compute-02"), Status: known("active"), Role: known("compute"), Tenant: known("Infra"), Site: known("site-a"),
		Location: known("Hall 1"), Rack: known("R01"), Position: known("2"), Serial: known("SN000001"), AssetTag: known("A00001"), OobIP: known("10.1.0.2"),
		Tags: []string{"gpu"},
		CustomFields: map[string]any{
			"blob": map[string]any{"a": []any{float64(1), nil}}, "doc": "https://example.invalid/x", "features": []any{"ib", "nvme"}, "gpu_ready": false,
			"last_check": "2026-01-02T03:04:05Z", "owner_team": "team-1", "peers": nil, "power_kw": 10.5, "slot": float64(1),
			"spare_site": map[string]any{"id": float64(2), "name": "Site B", "slug": "site-b"}, "stage": "burn_in", "warranty_end": "2029-01-31",
		},
	}
	for version, answers := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d, ok := decode(answers["device"].Body)
			delete(d.facts.CustomFields, "with_default") // 4.7 filled it in when the device was made
			if !ok || d.id != "2" || d.rackID != 1 || d.updated == "" || d.serial != "SN000001" || !reflect.DeepEqual(d.facts, want) {
				t.Errorf("%+v %+v", d, d.facts)
			}
			p, err := decodePage(answers["devices"].Body)
			if err != nil || p.count != 40 || p.next == "" || len(p.results) != 4 {
				t.Fatalf("%+v %v", p, err)
			}
			for _, element := range p.results {
				if d, ok := decode(element); !ok || len(d.facts.Unreadable) > 0 || d.site != "site-a" || !d.facts.Role.Known || !d.facts.Tenant.Known {
					t.Errorf("%+v", d)
				}
			}
			nameless, ok := decode(answers["post-nameless"].Body)
			if f := nameless.facts; !ok || f.Name != known("") || f.Rack != known("") || f.OobIP != known("") || f.Position != known("") || f.Serial != known("") || nameless.serial != "" {
				t.Errorf("nameless: %+v", f)
			}
			racks, err := decodePage(answers["racks"].Body)
			if err != nil {
				t.Fatal(err)
			}
			for _, element := range racks.results {
				if r, ok := decodeRack(element); !ok || r.id == 0 || r.name == "" || r.site == "" || r.location == "" {
					t.Errorf("rack: %+v", r)
				}
			}
		})
	}
}

func TestEveryGenerationsRefusalsHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	type meaning struct {
		kind  sources.Kind
		token bool
		text  string
	}
	token := meaning{sources.KindForbidden, true, "check the token"}
	permission := meaning{sources.KindForbidden, false, "lacks the permission"}
	all := map[string]meaning{
		"auth-none": token, "auth-unknown-v1": token, "auth-unknown-v2": token, "auth-expired": token, "auth-malformed": token,
		"auth-no-permission-list": permission, "p-none-get": permission, "p-ro-patch": permission,
		"device-404":                {sources.KindMissing, false, "404"},
		"p-limited-patch-forbidden": {sources.KindMissing, false, "404"}, // Update knows better
		"wrong-api-path":            {sources.KindTransient, false, "check the url"},
		"filter-site-unknown":       {sources.KindRefused, false, "site: Select a valid choice. nosuch is not one of the available choices."},
		"w-status-bad-choice":       {sources.KindRefused, false, "status: bogus is not a valid choice."},
		"w-cf-select-bogus":         {sources.KindRefused, false, "Invalid value for custom field 'stage'"},
		"w-tags-unknown":            {sources.KindRefused, false, "nosuch"},
		"media-type":                {sources.KindRefused, false, "text/plain"},
	}
	for version, answers := range recordings(t) {
		for name, want := range all {
			if _, has := answers[name]; !has && name == "auth-expired" {
				continue // 4.4 and 4.5 were not asked
			}
			fault := answers[name].answer().judge("do", time.Now())
			if fault == nil || fault.Kind != want.kind || (fault.Err == ErrToken) != want.token || !strings.Contains(fault.Message, want.text) {
				t.Errorf("%s %s: %v", version, name, fault)
			}
		}
	}
	newest := recordings(t)["4.7.3"]
	if fault := newest["w-if-match-stale"].answer().judge("do", time.Now()); fault == nil || fault.Kind != sources.KindConflict || fault.Err != ErrChanged {
		t.Errorf("a stale If-Match: %v", fault)
	}
	if fault := newest["host-unknown"].answer().judge("do", time.Now()); fault == nil || fault.Kind != sources.KindRefused || !strings.Contains(fault.Message, "text/html") {
		t.Errorf("a host that NetBox does not answer to: %v", fault)
	}
	if fault := recordings(t)["3.7.8"]["w-cf-multi-objects"].answer().judge("do", time.Now()); fault == nil || fault.Kind != sources.KindTransient || !strings.Contains(fault.Message, "unhashable") {
		t.Errorf("NetBox's own failure: %v", fault)
	}
}

func TestOddFormsCostTheirFieldOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		device string
		lost   string // fact, "" for none
		ok     func(device) bool
	}{
		"role of 3.6":               {`"device_role":{"slug":"compute"}`, "", func(d device) bool { return d.facts.Role == known("compute") }},
		"both roles":                {`"device_role":{"slug":"old"},"role":{"slug":"new"}`, "", func(d device) bool { return d.facts.Role == known("new") }},
		"no role":                   {`"role":null`, "", func(d device) bool { return !d.facts.Role.Known }},
		"a role without its slug":   {`"role":{"id":3,"display":"Compute"}`, "role", func(d device) bool { return !d.facts.Role.Known }},
		"a status as text":          {`"status":"active"`, "", func(d device) bool { return d.facts.Status == known("active") }},
		"a status as number":        {`"status":3`, "", func(d device) bool { return d.facts.Status == known("staged") }},
		"a status as object number": {`"status":{"value":1,"label":"Active"}`, "", func(d device) bool { return d.facts.Status == known("active") }},
		"a status without label":    {`"status":{"value":"rma"}`, "", func(d device) bool { return d.facts.Status == known("rma") }},
		"an unknown number":         {`"status":17`, "status", func(d device) bool { return !d.facts.Status.Known }},
		"an empty status":           {`"status":""`, "status", func(d device) bool { return !d.facts.Status.Known }},
		"no status":                 {`"status":null`, "", func(d device) bool { return !d.facts.Status.Known }},
		"nothing but an id":         {`"x":1`, "", func(d device) bool { f := d.facts; f.Listed = facts.Null; return reflect.DeepEqual(f, facts.Netbox{}) }},
		"explicit nothing": {`"tenant":null,"rack":null,"oob_ip":null,"position":null,"location":null,"asset_tag":null,"name":null`, "", func(d device) bool {
			f, none := d.facts, known("")
			return f.Tenant == none && f.Rack == none && f.OobIP == none && f.Position == none && f.Location == none && f.AssetTag == none && f.Name == none
		}},
		"a name that is no text":      {`"name":17`, "name", func(d device) bool { return !d.facts.Name.Known }},
		"a name with a NUL":           {`"name":"a\u0000b"`, "", func(d device) bool { return d.facts.Name == known("ab") }},
		"a serial of null":            {`"serial":null`, "", func(d device) bool { return !d.facts.Serial.Known && d.serial == "" }},
		"a placeholder serial":        {`"serial":" 00000000 "`, "", func(d device) bool { return d.facts.Serial.Known && d.serial == "" }},
		"a position as text":          {`"position":"12.50"`, "", func(d device) bool { return d.facts.Position == known("12.5") }},
		"a position of a word":        {`"position":"top"`, "position", func(d device) bool { return !d.facts.Position.Known }},
		"an address as text":          {`"oob_ip":"fd00::A/64"`, "", func(d device) bool { return d.facts.OobIP == known("fd00::a") }},
		"an address that is none":     {`"oob_ip":{"address":"10.1.0"}`, "oob_ip", func(d device) bool { return !d.facts.OobIP.Known }},
		"an address by id":            {`"oob_ip":7`, "oob_ip", func(d device) bool { return !d.facts.OobIP.Known }},
		"tags as texts":               {`"tags":["b","a","b"]`, "", func(d device) bool { return reflect.DeepEqual(d.facts.Tags, []string{"a", "b"}) }},
		"no tags":                     {`"tags":[]`, "", func(d device) bool { return d.facts.Tags != nil && len(d.facts.Tags) == 0 }},
		"one odd tag":                 {`"tags":[{"slug":"a"},{"id":4}]`, "tags", func(d device) bool { return d.facts.Tags == nil }},
		"custom fields as a list":     {`"custom_fields":[]`, "custom_fields", func(d device) bool { return d.facts.CustomFields == nil }},
		"a resource class":            {`"custom_fields":{"resource_class":"gb200"}`, "", func(d device) bool { return d.facts.ResourceClass == known("gb200") }},
		"a resource class of null":    {`"custom_fields":{"resource_class":null}`, "", func(d device) bool { return !d.facts.ResourceClass.Known }},
		"a chosen resource class":     {`"custom_fields":{"resource_class":{"value":"gb200","label":"GB200"}}`, "", func(d device) bool { return d.facts.ResourceClass == known("gb200") }},
		"a custom field without end":  {`"custom_fields":{"big":"` + strings.Repeat("x", maxField) + `","a":1}`, "custom_fields.big", func(d device) bool { return len(d.facts.CustomFields) == 1 }},
		"a rack by its name":          {`"rack":"R01"`, "", func(d device) bool { return d.facts.Rack == known("R01") && d.rackID == 0 }},
		"a rack by its id":            {`"rack":7`, "rack", func(d device) bool { return !d.facts.Rack.Known }},
		"a site without its slug":     {`"site":{"id":1,"name":"Site A"}`, "site", func(d device) bool { return d.site == "" }},
		"choices among custom fields": {`"custom_fields":{"g":[{"value":"a","label":"A"},{"value":"b","label":"B"}]}`, "", func(d device) bool { return reflect.DeepEqual(d.facts.CustomFields["g"], []any{"a", "b"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, ok := decode(json.RawMessage(`{"id":5,` + c.device + `}`))
			if !ok || d.id != "5" || !c.ok(d) {
				t.Errorf("%+v %+v", d, d.facts)
			}
			if c.lost == "" && len(d.facts.Unreadable) > 0 || c.lost != "" && (len(d.facts.Unreadable) != 1 || d.facts.Unreadable[c.lost] != sources.ReasonDecodeFailed) {
				t.Errorf("unreadable: %v, want %q", d.facts.Unreadable, c.lost)
			}
		})
	}
	for _, text := range []string{`null`, `[]`, `7`, `{}`, `{"id":null}`, `{"id":0}`, `{"id":-4}`, `{"id":1.5}`, `{"id":"x"}`, `{"id":{}}`} {
		if d, ok := decode(json.RawMessage(text)); ok {
			t.Errorf("%s is taken for device %s", text, d.id)
		}
	}
}

func TestRacksOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		racks []rack
		want  map[int64]string
	}{
		"names of their own":        {[]rack{{1, "R1", "A", "s"}, {2, "R2", "A", "s"}}, map[int64]string{1: "", 2: ""}},
		"in two locations":          {[]rack{{1, "R1", "A", "s"}, {2, "R1", "B", "s"}, {3, "R2", "A", "s"}}, map[int64]string{1: "R1 (A)", 2: "R1 (B)", 3: ""}},
		"in two sites":              {[]rack{{1, "R1", "A", "s"}, {2, "R1", "A", "t"}}, map[int64]string{1: "R1 (s A)", 2: "R1 (t A)"}},
		"one without a location":    {[]rack{{1, "R1", "", "s"}, {2, "R1", "A", "s"}}, map[int64]string{1: "R1 (s)", 2: "R1 (s A)"}},
		"alike but for the id":      {[]rack{{1, "R1", "A", "s"}, {2, "R1", "A", "s"}}, map[int64]string{1: "R1 (id 1)", 2: "R1 (id 2)"}},
		"locations of one name too": {[]rack{{1, "R1", "A", "s"}, {2, "R1", "A", "s"}, {3, "R1", "B", "s"}}, map[int64]string{1: "R1 (id 1)", 2: "R1 (id 2)", 3: "R1 (id 3)"}},
	} {
		if got := qualify(c.racks); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func FuzzPage(f *testing.F) {
	for _, answers := range recordings(f) {
		for _, name := range []string{"devices", "devices-fields", "racks", "device-404"} {
			f.Add(answers[name].bytes())
		}
	}
	for _, text := range []string{`{"count":1,"next":"http://x/","results":[{"id":1,"status":3,"custom_fields":{"a":[{"value":[],"label":{}}]},"rack":{"id":"7"}}]}`, `{"count":-1,"results":[]}`, `[]`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := decodePage(body)
		if err != nil {
			return
		}
		if p.count < 0 || p.results == nil {
			t.Fatalf("%+v", p)
		}
		for _, element := range p.results {
			decodeRack(element)
			d, ok := decode(element)
			if !ok {
				continue
			}
			if d.id == "" || strings.ContainsRune(d.facts.Name.Value, 0) || len(d.facts.Name.Value) > maxName || d.facts.OobIP.Value != "" && strings.Contains(d.facts.OobIP.Value, "/") {
				t.Fatalf("%+v", d)
			}
			text, err := json.Marshal(d.facts)
			var again facts.Netbox
			if err != nil || json.Unmarshal(text, &again) != nil {
				t.Fatalf("the facts cannot be stored: %v", err)
			}
		}
	})
}
