package ironic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// fake is an Ironic in memory, as far as the adapter and ironictest speak to
// one. Its nodes take a few reads to get through a transition.
type fake struct {
	*httptest.Server
	t *testing.T

	mu         sync.Mutex
	nodes      []*fakeNode
	ports      []map[string]any
	least      int // versions served
	most       int
	limit      int // largest page
	bare       bool
	user, pass string
	writes     []string // "PUT maintenance", …
	made       int
	// intercept answers in place of the fake if it returns true.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	// after runs once the fake has taken a write, before the answer goes out.
	after func(w http.ResponseWriter, r *http.Request)
}

type fakeNode struct {
	doc  map[string]any
	todo []func(map[string]any) // one a read; locked while there are any
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, least: 1, most: 82, limit: 1000}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) admin() *ironictest.Ironic {
	admin, err := ironictest.New(f.URL, f.user, f.pass)
	if err != nil {
		f.t.Fatal(err)
	}
	return admin
}

// written gives the writes so far.
func (f *fake) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.writes)
}

// add puts a node in, at the state given, with further fields.
func (f *fake) add(id, state string, more map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(id, state, more)
	return id
}

func (f *fake) put(id, state string, more map[string]any) map[string]any {
	doc := map[string]any{
		"uuid": id, "name": "n-" + id, "provision_state": state, "target_provision_state": nil, "maintenance": false,
		"maintenance_reason": nil, "fault": nil, "last_error": nil, "power_state": nil, "target_power_state": nil,
		"instance_uuid": nil, "instance_info": map[string]any{}, "lessee": nil, "owner": nil, "resource_class": nil, "driver": "fake-hardware",
		"driver_info": map[string]any{}, "reservation": nil, "extra": map[string]any{}, "properties": map[string]any{},
		"traits": []any{}, "provision_updated_at": nil,
	}
	for k, v := range more {
		doc[k] = v
	}
	f.nodes = append(f.nodes, &fakeNode{doc: doc})
	return doc
}

// set changes fields of a node behind everybody's back.
func (f *fake) set(id string, more map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, v := range more {
		f.find(id).doc[k] = v
	}
}

func (f *fake) find(id string) *fakeNode {
	for _, n := range f.nodes {
		if n.doc["uuid"] == id || n.doc["name"] == id {
			return n
		}
	}
	return nil
}

func (f *fake) refuse(w http.ResponseWriter, status int, format string, args ...any) {
	inner, _ := json.Marshal(map[string]any{"faultcode": "Client", "faultstring": fmt.Sprintf(format, args...), "debuginfo": nil})
	f.answer(w, status, map[string]any{"error_message": string(inner)})
}

func (f *fake) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	intercept := f.intercept
	f.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.bare {
		w.Header().Set(headerMin, "1."+strconv.Itoa(f.least))
		w.Header().Set(headerMax, "1."+strconv.Itoa(f.most))
	}
	path := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/v1"), "/"), "/")
	if user, pass, _ := r.BasicAuth(); f.user != "" && (user != f.user || pass != f.pass) {
		f.answer(w, 401, map[string]any{"error": map[string]any{"code": 401, "message": "Incorrect username or password"}})
		return
	}
	version := r.Header.Get("X-OpenStack-Ironic-API-Version")
	minor, err := minorOf(version)
	if version != "" && (err != nil || minor > f.most || minor < f.least) {
		f.refuse(w, 406, "Version %s was requested but the minor version is not supported by this service. The supported version range is: [1.%d, 1.%d].", version, f.least, f.most)
		return
	}
	switch {
	case path[0] == "":
		f.answer(w, 200, map[string]any{"version": map[string]any{"id": "v1", "min_version": fmt.Sprintf("1.%d", f.least), "version": fmt.Sprintf("1.%d", f.most)}})
	case path[0] == "ports":
		f.servePorts(w, r, func(p map[string]any) bool { return p["address"] == r.URL.Query().Get("address") })
	case path[0] != "nodes":
		f.refuse(w, 404, "Not Found")
	case len(path) == 1 && r.Method == http.MethodPost:
		f.create(w, r)
	case len(path) == 1:
		f.list(w, r, minor)
	default:
		f.one(w, r, path[1], path[2:], minor)
	}
}

func (f *fake) view(n *fakeNode, r *http.Request, minor int) (map[string]any, bool) {
	wanted := r.URL.Query().Get("fields")
	if wanted == "" {
		wanted = fieldsAt(minor)
	}
	out := map[string]any{}
	for _, field := range strings.Split(wanted, ",") {
		one := slices.IndexFunc(detailed, func(d struct {
			field string
			since int
		}) bool {
			return d.field == field && d.since <= minor
		})
		if one < 0 && !slices.Contains(strings.Split(fieldsAt(minor), ","), field) {
			return nil, false
		}
		if v, has := n.doc[field]; has {
			out[field] = v
		}
	}
	return out, true
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, minor int) {
	limit := f.limit
	if asked, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && asked > 0 {
		limit = min(limit, asked)
	}
	from := 0
	if marker := r.URL.Query().Get("marker"); marker != "" {
		if from = 1 + slices.IndexFunc(f.nodes, func(n *fakeNode) bool { return n.doc["uuid"] == marker }); from == 0 {
			f.refuse(w, 404, "Node %s could not be found.", marker)
			return
		}
	}
	page := map[string]any{}
	nodes := []any{}
	for _, n := range f.nodes[from:min(len(f.nodes), from+limit)] {
		doc, ok := f.view(n, r, minor)
		if !ok {
			f.refuse(w, 406, "Request not acceptable.")
			return
		}
		nodes = append(nodes, doc)
	}
	page["nodes"] = nodes
	if end := from + len(nodes); end < len(f.nodes) {
		page["next"] = fmt.Sprintf("%s/v1/nodes?limit=%d&marker=%s", f.URL, limit, f.nodes[end-1].doc["uuid"])
	}
	f.answer(w, 200, page)
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.made++
	id, given := body["uuid"].(string)
	if !given {
		id = fmt.Sprintf("00000000-0000-4000-8000-%012x", f.made)
	} else {
		f.writes = append(f.writes, "POST nodes")
	}
	name, _ := body["name"].(string)
	switch {
	case f.find(id) != nil:
		f.refuse(w, 409, "A node with UUID %s already exists.", id)
		return
	case name != "" && f.find(name) != nil:
		f.refuse(w, 409, "A node with name %s already exists.", name)
		return
	}
	doc := f.put(id, "enroll", body)
	if f.after != nil {
		f.after(w, r)
	}
	f.answer(w, 201, doc)
}

// servePorts lists ports and makes them.
func (f *fake) servePorts(w http.ResponseWriter, r *http.Request, fits func(map[string]any) bool) {
	if r.Method == http.MethodGet {
		page := []any{}
		for _, p := range f.ports {
			if fits(p) {
				page = append(page, p)
			}
		}
		f.answer(w, 200, map[string]any{"ports": page})
		return
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.writes = append(f.writes, "POST ports")
	switch n := f.find(body["node_uuid"].(string)); {
	case n == nil:
		f.refuse(w, 400, "Node %s could not be found.", body["node_uuid"])
		return
	case n.doc["reservation"] != nil:
		f.refuse(w, 409, "Node %s is locked by host %v, please retry after the current operation is completed.", n.doc["uuid"], n.doc["reservation"])
		return
	case slices.ContainsFunc(f.ports, func(p map[string]any) bool { return p["address"] == body["address"] }):
		f.refuse(w, 409, "A port with MAC address %s already exists.", body["address"])
		return
	}
	body["uuid"] = fmt.Sprintf("00000000-0000-4000-9000-%012x", len(f.ports))
	f.ports = append(f.ports, body)
	if f.after != nil {
		f.after(w, r)
	}
	f.answer(w, 201, body)
}

func (f *fake) one(w http.ResponseWriter, r *http.Request, id string, rest []string, minor int) {
	n := f.find(id)
	if n == nil {
		f.refuse(w, 404, "Node %s could not be found.", id)
		return
	}
	switch sub := strings.Join(rest, "/"); {
	case sub == "ports":
		f.servePorts(w, r, func(p map[string]any) bool { return p["node_uuid"] == n.doc["uuid"] })
		return
	case sub == "inventory" && n.doc["inventory"] == nil:
		f.refuse(w, 404, "Node inventory record for node %s could not be found.", id)
		return
	case sub == "inventory":
		f.answer(w, 200, n.doc["inventory"])
		return
	}
	if r.Method == http.MethodGet {
		if len(n.todo) > 0 {
			step := n.todo[0]
			n.todo = n.todo[1:]
			step(n.doc)
			if len(n.todo) == 0 {
				n.doc["reservation"] = nil
			}
		}
		doc, ok := f.view(n, r, minor)
		if !ok {
			f.refuse(w, 406, "Request not acceptable.")
			return
		}
		f.answer(w, 200, doc)
		return
	}
	f.writes = append(f.writes, strings.TrimSpace(r.Method+" "+strings.Join(rest, "/")))
	if n.doc["reservation"] != nil {
		f.refuse(w, 409, "Node %s is locked by host %v, please retry after the current operation is completed.", id, n.doc["reservation"])
		return
	}
	f.write(w, r, n, strings.Join(rest, "/"))
}

func stamp(doc map[string]any) {
	doc["provision_updated_at"] = time.Now().UTC().Format(time.RFC3339Nano)
}
