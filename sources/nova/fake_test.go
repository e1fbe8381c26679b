package nova

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	nodeA, nodeB = "6a0c8f5e-0000-4000-8000-00000000000a", "6a0c8f5e-0000-4000-8000-00000000000b"
	mine, yours  = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
)

// fake answers as Nova's API reference says. A server that is being deleted
// takes a few looks to go.
type fake struct {
	*httptest.Server

	mu        sync.Mutex
	servers   []map[string]any
	leaving   map[string][]map[string]any // what the next looks find
	limit     int
	member    bool // the caller is no administrator: filters are ignored, places hidden
	writes    []string
	most      string                      // newest version, "" serves no document
	after     func(w http.ResponseWriter) // once a server was created, before the answer
	intercept func(w http.ResponseWriter, r *http.Request) bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{leaving: map[string][]map[string]any{}, limit: 1000}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) add(id, name, project, node string, more map[string]any) {
	s := map[string]any{
		"id": id, "name": name, "tenant_id": project, "status": "ACTIVE", "created": "2026-03-01T10:00:00Z",
		"OS-EXT-STS:task_state": nil, "OS-EXT-STS:vm_state": "active", "OS-EXT-SRV-ATTR:host": "compute-1",
		"OS-EXT-SRV-ATTR:hypervisor_hostname": node, "OS-EXT-SRV-ATTR:instance_name": "instance-1",
	}
	for k, v := range more {
		s[k] = v
	}
	f.servers = append(f.servers, s)
}

func (f *fake) client(t *testing.T, adjust ...func(*Config)) *Client {
	t.Helper()
	config := Config{URL: f.URL, Poll: time.Millisecond, PageSize: 2}
	config.HTTP.Retries, config.HTTP.BreakerFailures = -1, -1
	config.HTTP.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	for _, a := range adjust {
		a(&config)
	}
	c, err := New(config, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func refuse(w http.ResponseWriter, status int, fault, text string) {
	reply(w, status, map[string]any{fault: map[string]any{"code": status, "message": text}})
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.intercept != nil && f.intercept(w, r) {
		return
	}
	switch {
	case r.URL.Path == "/v2.1/" && f.most != "":
		reply(w, 200, map[string]any{"version": map[string]any{"id": "v2.1", "status": "CURRENT", "version": f.most, "min_version": "2.1"}})
		return
	case r.URL.Path == "/v2.1/servers" && r.Method == http.MethodPost:
		f.create(w, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v2.1/servers/")
	if !ok || r.Header.Get("X-OpenStack-Nova-API-Version") != "2.1" {
		reply(w, 404, nil)
		return
	}
	if path == "detail" {
		f.list(w, r)
		return
	}
	i := slices.IndexFunc(f.servers, func(s map[string]any) bool { return s["id"] == path })
	if next := f.leaving[path]; i >= 0 && r.Method == http.MethodGet && len(next) > 0 {
		f.leaving[path] = next[1:]
		if next[0] == nil {
			f.servers = slices.Delete(f.servers, i, i+1)
			i = -1
		} else {
			for k, v := range next[0] {
				f.servers[i][k] = v
			}
		}
	}
	switch {
	case i < 0:
		refuse(w, 404, "itemNotFound", "Instance "+path+" could not be found.")
	case r.Method == http.MethodDelete:
		f.writes = append(f.writes, "DELETE "+path)
		w.WriteHeader(204)
	default:
		reply(w, 200, map[string]any{"server": f.shown(f.servers[i])})
	}
}

func (f *fake) shown(s map[string]any) map[string]any {
	shown := map[string]any{}
	for k, v := range s {
		if !f.member || !strings.HasPrefix(k, "OS-EXT-SRV-ATTR:") {
			shown[k] = v
		}
	}
	return shown
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := f.limit
	if asked, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = min(limit, asked)
	}
	page, more := []any{}, false
	after := q.Get("marker") == ""
	for _, s := range f.servers {
		switch {
		case !after:
			after = s["id"] == q.Get("marker")
		case q.Get("all_tenants") != "1", !f.member && q.Get("node") != "" && s["OS-EXT-SRV-ATTR:hypervisor_hostname"] != q.Get("node"):
		case len(page) == limit:
			more = true
		default:
			page = append(page, f.shown(s))
		}
	}
	answer := map[string]any{"servers": page}
	if more {
		answer["servers_links"] = []any{map[string]any{"rel": "next", "href": "http://elsewhere/next"}}
	}
	reply(w, 200, answer)
}

// create makes a server as the API reference says; it is not on its node yet.
func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Server map[string]any `json:"server"`
	}
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &body)
	f.writes = append(f.writes, "POST "+r.Header.Get("X-OpenStack-Nova-API-Version")+" "+string(raw))
	f.add(mine, body.Server["name"].(string), "p1", "", map[string]any{
		"status": "BUILD", "OS-EXT-STS:task_state": "scheduling", "OS-EXT-STS:vm_state": "building", "OS-EXT-SRV-ATTR:hypervisor_hostname": nil,
	})
	if f.after != nil {
		f.after(w)
	}
	reply(w, 202, map[string]any{"server": map[string]any{"id": mine, "links": []any{}, "OS-DCF:diskConfig": "MANUAL", "adminPass": "x", "security_groups": []any{}}})
}
