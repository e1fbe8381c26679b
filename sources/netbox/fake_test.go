package netbox

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a small NetBox in the forms of one generation, as the recordings under
// testdata show them.
type fake struct {
	generation int // 37, 40, 44, 46 or 47
	server     *httptest.Server

	mu      sync.Mutex
	devices map[int]*fakeDevice
	racks   []map[string]any
	tokens  map[string]fakeToken
	largest int // page
	now     time.Time
	writes  []string                                      // bodies
	before  func(f *fake, r *http.Request)                // happens under the lock before a request is served
	instead func(http.ResponseWriter, *http.Request) bool // answers a request itself when true
}

type fakeToken struct {
	nothing  bool // its user has no permissions
	readOnly bool
	site     string // may change this site only; "" all
}

// fakeDevice holds custom fields and choices raw, as they are written.
type fakeDevice struct {
	id                             int
	name, tenant, oob, position    any // nil for none
	status, role, site, loc, seria string
	rack                           int // 0 for none
	tags                           []string
	fields                         map[string]any
	updated                        time.Time
}

// The choices of the custom fields that the fake knows.
var fakeChoices = map[string][]string{"stage": {"new", "burn_in", "production"}, "features": {"ib", "roce", "nvme"}}

var fakeTags = []string{"gpu", "pilot", "do-not-touch"}

func newFake(t *testing.T, generation int) *fake {
	t.Helper()
	f := &fake{
		generation: generation, devices: map[int]*fakeDevice{}, largest: 1000, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		tokens: map[string]fakeToken{"good": {}, "reader": {readOnly: true}, "limited": {site: "site-a"}, "nobody": {nothing: true}},
	}
	if generation >= 45 {
		f.tokens["nbt_key.good"] = fakeToken{}
	}
	for i, r := range []struct{ name, loc, site string }{{"R01", "Hall 1", "site-a"}, {"R02", "Hall 1", "site-a"}, {"R01", "Hall 2", "site-a"}, {"R09", "Hall 3", "site-b"}} {
		f.racks = append(f.racks, map[string]any{"id": i + 1, "name": r.name, "site": named(1, r.site), "location": named(1, r.loc)})
	}
	for i := 1; i <= 30; i++ {
		d := &fakeDevice{
			id: i, name: fmt.Sprintf("n%02d", i), status: "active", role: "compute", site: "site-a", loc: "Hall 1", seria: fmt.Sprintf("SN%06d", i),
			rack: 1 + i%3, position: float64(i) + 0.5, oob: fmt.Sprintf("10.1.0.%d/16", i), tags: []string{"gpu"}, updated: f.now,
			fields: map[string]any{"resource_class": "gb200", "stage": "new", "features": []any{"ib", "nvme"}, "slot": i, "spare_site": nil, "blob": nil},
		}
		if i > 24 {
			d.site, d.loc, d.rack = "site-b", "Hall 3", 4
		}
		f.devices[i] = d
	}
	f.devices[1].seria, f.devices[2].seria, f.devices[3].oob, f.devices[4].tenant, f.devices[5].name = "", "Not Specified", nil, "Research", nil
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

func named(id int, name string) map[string]any {
	return map[string]any{"id": id, "url": "http://x/", "display": name + " (shown)", "name": name, "slug": strings.ToLower(strings.ReplaceAll(name, " ", "-"))}
}

func choice(value string) map[string]any {
	return map[string]any{"value": value, "label": strings.ToUpper(value)}
}

func (f *fake) wire(d *fakeDevice) map[string]any {
	w := map[string]any{
		"id": d.id, "display": "shown", "name": d.name, "status": choice(d.status), "role": named(1, d.role), "tenant": nil, "site": named(1, d.site),
		"location": named(1, d.loc), "rack": nil, "position": d.position, "serial": d.seria, "asset_tag": nil, "oob_ip": nil,
		"last_updated": d.updated.Format("2006-01-02T15:04:05.000000Z"), "config_context": map[string]any{},
	}
	if f.generation < 40 {
		w["device_role"] = w["role"]
	}
	if d.tenant != nil {
		w["tenant"] = named(1, d.tenant.(string))
	}
	if d.rack > 0 {
		w["rack"] = map[string]any{"id": d.rack, "name": f.racks[d.rack-1]["name"], "display": "shown"}
	}
	if d.oob != nil {
		w["oob_ip"] = map[string]any{"id": d.id, "address": d.oob, "display": d.oob, "family": 4}
	}
	tags := []any{}
	for _, slug := range d.tags {
		tags = append(tags, named(1, slug))
	}
	w["tags"] = tags
	fields := map[string]any{}
	for name, value := range d.fields {
		if list, is := value.([]any); is && f.generation >= 47 {
			shown := []any{}
			for _, v := range list {
				shown = append(shown, choice(v.(string)))
			}
			value = shown
		} else if text, is := value.(string); is && fakeChoices[name] != nil && f.generation >= 47 {
			value = choice(text)
		}
		if id, is := value.(float64); is && name == "spare_site" {
			value = named(int(id), "Site B")
		}
		fields[name] = value
	}
	w["custom_fields"] = fields
	return w
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		f.before(f, r)
	}
	if f.instead != nil && f.instead(w, r) {
		return
	}
	if f.generation >= 40 || r.Method != "GET" {
		w.Header().Set("API-Version", fmt.Sprintf("%d.%d", f.generation/10, f.generation%10))
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, known := f.tokens[secret]
	switch {
	case secret == "" || f.generation < 45 && scheme != "Token":
		detail(w, 403, "Authentication credentials were not provided.")
		return
	case !known:
		detail(w, 403, "Invalid token")
		return
	case token.nothing || token.readOnly && r.Method != "GET":
		detail(w, 403, "You do not have permission to perform this action.")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/dcim/")
	id, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(path, "devices/"), "/"))
	switch {
	case path == "racks/":
		f.list(w, r, func(yield func(map[string]any)) {
			for _, rack := range f.racks {
				yield(rack)
			}
		})
	case path == "devices/":
		f.list(w, r, func(yield func(map[string]any)) {
			for _, id := range slices.Sorted(maps.Keys(f.devices)) {
				yield(f.wire(f.devices[id]))
			}
		})
	case path == "interfaces/":
		f.interfaces(w, r)
	case err != nil:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "<!DOCTYPE html><html></html>")
	case f.devices[id] == nil:
		f.noDevice(w)
	case r.Method == "GET":
		f.show(w, r, f.devices[id])
	case token.site != "" && token.site != f.devices[id].site:
		f.noDevice(w)
	default:
		f.patch(w, r, f.devices[id])
	}
}

func (f *fake) noDevice(w http.ResponseWriter) {
	if f.generation < 40 {
		detail(w, 404, "Not found.")
		return
	}
	detail(w, 404, "No Device matches the given query.")
}

func detail(w http.ResponseWriter, status int, text string) {
	reply(w, status, map[string]any{"detail": text})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fake) trim(r *http.Request, object map[string]any) map[string]any {
	fields := r.URL.Query().Get("fields")
	if fields == "" || f.generation < 40 {
		return object
	}
	kept := map[string]any{}
	for _, field := range strings.Split(fields, ",") {
		if value, has := object[field]; has {
			kept[field] = value
		}
	}
	return kept
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, all func(func(map[string]any))) {
	query := r.URL.Query()
	for _, site := range query["site"] {
		if site != "site-a" && site != "site-b" {
			reply(w, 400, map[string]any{"site": []string{"Select a valid choice. " + site + " is not one of the available choices."}})
			return
		}
	}
	found := []map[string]any{}
	all(func(o map[string]any) {
		if sites := query["site"]; len(sites) == 0 || slices.Contains(sites, o["site"].(map[string]any)["slug"].(string)) {
			found = append(found, o)
		}
	})
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		limit = 50
	}
	limit = min(limit, f.largest)
	offset, _ := strconv.Atoi(query.Get("offset"))
	results := []map[string]any{}
	for _, o := range found[min(offset, len(found)):min(offset+limit, len(found))] {
		results = append(results, f.trim(r, o))
	}
	var next any
	if offset+limit < len(found) {
		query.Set("limit", strconv.Itoa(limit))
		query.Set("offset", strconv.Itoa(offset+limit))
		next = (&url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawQuery: query.Encode()}).String()
	}
	reply(w, 200, map[string]any{"count": len(found), "next": next, "previous": nil, "results": results})
}

func (d *fakeDevice) etag() string {
	return `W/"` + d.updated.Format("2006-01-02T15:04:05.000000+00:00") + `"`
}

func (f *fake) show(w http.ResponseWriter, r *http.Request, d *fakeDevice) {
	if f.generation >= 46 {
		w.Header().Set("ETag", d.etag())
	}
	reply(w, 200, f.trim(r, f.wire(d)))
}

func (f *fake) patch(w http.ResponseWriter, r *http.Request, d *fakeDevice) {
	if match := r.Header.Get("If-Match"); f.generation >= 46 && match != "" && match != d.etag() {
		detail(w, 412, "Precondition failed.")
		return
	}
	text, _ := io.ReadAll(r.Body)
	f.writes = append(f.writes, string(text))
	var body struct {
		Status *string              `json:"status"`
		Tags   *[]map[string]string `json:"tags"`
		Fields map[string]any       `json:"custom_fields"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		detail(w, 400, "JSON parse error - "+err.Error())
		return
	}
	if body.Status != nil && !slices.Contains(statuses, *body.Status) {
		reply(w, 400, map[string]any{"status": []string{*body.Status + " is not a valid choice."}})
		return
	}
	for name, value := range body.Fields {
		if _, has := d.fields[name]; !has && f.generation != 44 {
			reply(w, 400, map[string]any{"__all__": []string{"Unknown field name '" + name + "' in custom field data."}})
			return
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, v := range list {
			text, isText := v.(string)
			if fakeChoices[name] != nil && v != nil && !(isText && slices.Contains(fakeChoices[name], text)) {
				reply(w, 400, map[string]any{"__all__": []string{fmt.Sprintf("Invalid value for custom field '%s': Invalid choice (%v)", name, v)}})
				return
			}
		}
	}
	if body.Tags != nil {
		var slugs []string
		for _, tag := range *body.Tags {
			if !slices.Contains(fakeTags, tag["slug"]) {
				reply(w, 400, map[string]any{"tags": []string{"Related object not found using the provided attributes: {'slug': '" + tag["slug"] + "'}"}})
				return
			}
			slugs = append(slugs, tag["slug"])
		}
		d.tags = slugs
	}
	if body.Status != nil {
		d.status = *body.Status
	}
	for name, value := range body.Fields {
		if _, has := d.fields[name]; has {
			d.fields[name] = value
		}
	}
	f.touch(d)
	f.show(w, r, d)
}

func (f *fake) touch(d *fakeDevice) {
	f.now = f.now.Add(time.Second)
	d.updated = f.now
}
