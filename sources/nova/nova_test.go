package nova

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
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

func wantKind(t *testing.T, err error, kind sources.Kind, says string) {
	t.Helper()
	if err == nil || sources.KindOf(err) != kind || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %v, it must be %s and say %q", err, kind, says)
	}
}

func TestAServerIsReadAsItIs(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add(mine, "n1", "p1", nodeA, map[string]any{
		"status": "ERROR", "OS-EXT-STS:vm_state": "error", "OS-EXT-STS:task_state": "spawning",
		"fault": map[string]any{"code": 500, "message": "No valid host was found.", "created": "2026-03-01T10:01:00Z"},
	})
	got, err := f.client(t).Server(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	want := Server{
		ID: mine, Name: "n1", Project: "p1", Status: "ERROR", TaskState: "spawning", VMState: "error", Host: "compute-1", Node: nodeA, NodeKnown: true,
		Fault: "No valid host was found.", CreatedAt: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
	}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestWhereAServerIsStaysUnknownUnlessSaid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body  string
		node  string
		known bool
	}{
		"on a node":         {`{"id": "a", "OS-EXT-SRV-ATTR:hypervisor_hostname": "n"}`, "n", true},
		"on none":           {`{"id": "a", "OS-EXT-SRV-ATTR:hypervisor_hostname": null}`, "", true},
		"on none, as text":  {`{"id": "a", "OS-EXT-SRV-ATTR:hypervisor_hostname": ""}`, "", true},
		"hidden":            {`{"id": "a"}`, "", false},
		"in another form":   {`{"id": "a", "OS-EXT-SRV-ATTR:hypervisor_hostname": 7}`, "", false},
		"with odd a status": {`{"id": "a", "status": {}, "created": "never", "OS-EXT-SRV-ATTR:hypervisor_hostname": "n"}`, "n", true},
	} {
		s, ok := decodeServer([]byte(test.body))
		if !ok || s.Node != test.node || s.NodeKnown != test.known || s.Status != "" {
			t.Errorf("%s: %+v, %v", name, s, ok)
		}
	}
	for _, body := range []string{`{}`, `{"id": 7}`, `{"id": "../x"}`, `7`, `null`} {
		if s, ok := decodeServer([]byte(body)); ok {
			t.Errorf("%s is the server %+v", body, s)
		}
	}
}

func TestGoneIsOnlySaidByNova(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		gone   bool
		kind   sources.Kind
	}{
		"Nova":           {404, `{"itemNotFound": {"code": 404, "message": "Instance a could not be found."}}`, true, sources.KindMissing},
		"no such route":  {404, `{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}`, false, sources.KindRefused},
		"a proxy":        {404, "<html>Instance a could not be found</html>", false, sources.KindTransient},
		"nothing":        {404, "", false, sources.KindTransient},
		"no permission":  {403, `{"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:show to be performed."}}`, false, sources.KindForbidden},
		"no token":       {401, `{"error": {"code": 401, "message": "The request you have made requires authentication."}}`, false, sources.KindForbidden},
		"too many":       {413, `{"overLimit": {"code": 413, "message": "This request was rate-limited."}}`, false, sources.KindTransient},
		"a failure":      {500, `{"computeFault": {"code": 500, "message": "Unexpected API Error."}}`, false, sources.KindTransient},
		"a page":         {200, `<html>`, false, sources.KindTransient},
		"another server": {200, `{"server": {"id": "b"}}`, false, sources.KindTransient},
		"no server":      {200, `{"server": null}`, false, sources.KindTransient},
	} {
		f := newFake(t)
		f.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
			return true
		}
		s, err := f.client(t).Server(t.Context(), "a")
		if s != nil || err == nil || errors.Is(err, sources.ErrGone) != test.gone || sources.KindOf(err) != test.kind {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func ids(servers []Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Name)
	}
	return out
}

func TestServersAreFoundByNodeNameAndProject(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 5 {
		f.add(fmt.Sprintf("00000000-0000-4000-8000-%012d", i), fmt.Sprintf("other-%d", i), "p2", nodeB, nil)
	}
	f.add(mine, "n.1", "p1", nodeA, nil)
	f.add(yours, "nx1", "p2", nodeA, nil)
	f.add("dead", "n.1", "p1", nodeA, map[string]any{"status": "DELETED"})
	c := f.client(t)
	for name, test := range map[string]struct {
		filter Filter
		want   []string
	}{
		"by node":             {Filter{Node: nodeA}, []string{"n.1", "nx1"}},
		"by name":             {Filter{Name: "n.1"}, []string{"n.1"}},
		"by name and project": {Filter{Name: "nx1", Project: "p2"}, []string{"nx1"}},
		"by another project":  {Filter{Name: "nx1", Project: "p1"}, nil},
		"by another node":     {Filter{Node: "6a0c8f5e-0000-4000-8000-00000000000c"}, nil},
		"by project, 3 pages": {Filter{Project: "p2"}, []string{"other-0", "other-1", "other-2", "other-3", "other-4", "nx1"}},
	} {
		got, err := c.Servers(t.Context(), test.filter)
		if err != nil || !slices.Equal(ids(got), test.want) {
			t.Errorf("%s: %v, %v", name, ids(got), err)
		}
	}
	_, err := c.Servers(t.Context(), Filter{})
	wantKind(t, err, sources.KindRefused, "which")

	f.mu.Lock()
	f.member = true // Nova then ignores the filter and hides the places
	f.mu.Unlock()
	_, err = c.Servers(t.Context(), Filter{Node: nodeA})
	wantKind(t, err, sources.KindForbidden, "hidden")
}

func TestAListingThatCannotBeTrustedIsRefused(t *testing.T) {
	t.Parallel()
	next := `, "servers_links": [{"rel": "next", "href": "x"}]`
	for name, test := range map[string]struct{ body, says string }{
		"a page of HTML":             {`<html>`, "not Nova's answer"},
		"no list":                    {`{"servers": null}`, ""},
		"an error with status 200":   {`{"computeFault": {"code": 500, "message": "down"}}`, "down"},
		"a server without an id":     {`{"servers": [{"name": "x"}]}`, "cannot be read"},
		"pages without an end":       {`{"servers": [{"id": "a"}]` + next + `}`, "repeats"},
		"an empty page with another": {`{"servers": []` + next + `}`, "empty page"},
	} {
		f := newFake(t)
		f.intercept = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, test.body); return true }
		_, err := f.client(t).Servers(t.Context(), Filter{Name: "x"})
		wantKind(t, err, sources.KindTransient, test.says)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestADeletionIsWaitedFor(t *testing.T) {
	t.Parallel()
	deleting := map[string]any{"OS-EXT-STS:task_state": "deleting"}
	for name, test := range map[string]struct {
		looks []map[string]any
		begun sources.Kind // "" for success
		ended sources.Kind
		says  string
	}{
		"it goes":                   {[]map[string]any{{}, deleting, {}, {}, nil}, "", "", ""},
		"it goes at once":           {[]map[string]any{{}, nil}, "", "", ""},
		"it is shown as deleted":    {[]map[string]any{{}, deleting, {"status": "DELETED", "OS-EXT-STS:task_state": nil}}, "", "", ""},
		"it fails":                  {[]map[string]any{{}, deleting, {"status": "ERROR", "OS-EXT-STS:task_state": nil, "fault": map[string]any{"message": "node is locked"}}}, "", sources.KindConflict, "node is locked"},
		"it stays in the way out":   {[]map[string]any{{}, deleting}, "", sources.KindTransient, "deleting"},
		"it is only put aside":      {[]map[string]any{{}, {"OS-EXT-STS:task_state": "soft-deleting"}, {"status": "SOFT_DELETED", "OS-EXT-STS:task_state": nil}}, "", sources.KindConflict, "SOFT_DELETED"},
		"the server never shows it": {nil, sources.KindTransient, "", "does not show it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.add(mine, "n1", "p1", nodeA, nil)
			f.leaving[mine] = test.looks
			c := f.client(t)
			err := c.Delete(t.Context(), mine)
			if test.begun != "" {
				wantKind(t, err, test.begun, test.says)
				return
			}
			if err != nil || len(f.writes) != 1 {
				t.Fatalf("%v after %v", err, f.writes)
			}
			err = c.WaitGone(t.Context(), mine, 20*time.Millisecond)
			if test.ended != "" {
				wantKind(t, err, test.ended, test.says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADeletionIsAskedForOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add(mine, "n1", "p1", nodeA, map[string]any{"OS-EXT-STS:task_state": "deleting"})
	c := f.client(t)
	for _, id := range []string{mine, yours} { // on its way, and gone already
		if err := c.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if len(f.writes) > 0 {
		t.Errorf("%v was asked for", f.writes)
	}
}

func TestADeletionThatIsRefusedOrLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(f *fake, w http.ResponseWriter)
		kind   sources.Kind
		says   string
	}{
		"locked":                      {func(_ *fake, w http.ResponseWriter) { refuse(w, 409, "conflictingRequest", "Instance x is locked") }, sources.KindConflict, "is locked"},
		"no permission":               {func(_ *fake, w http.ResponseWriter) { refuse(w, 403, "forbidden", "Policy doesn't allow it") }, sources.KindForbidden, "role"},
		"lost, and it did not happen": {func(*fake, http.ResponseWriter) { panic(http.ErrAbortHandler) }, sources.KindTransient, ""},
		"lost, and it happened":       {func(f *fake, _ http.ResponseWriter) { f.servers = nil; panic(http.ErrAbortHandler) }, "", ""},
		"it went in the mean time": {func(f *fake, w http.ResponseWriter) {
			f.servers = nil
			refuse(w, 404, "itemNotFound", "Instance x could not be found.")
		}, "", ""},
		"a failure, and it did happen": {func(f *fake, w http.ResponseWriter) { f.servers = nil; refuse(w, 500, "computeFault", "Unexpected") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.add(mine, "n1", "p1", nodeA, nil)
			f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodDelete {
					test.answer(f, w)
					return true
				}
				return false
			}
			err := f.client(t, func(c *Config) { c.Poll = 10 * time.Second }).Delete(t.Context(), mine)
			if test.kind == "" && err != nil {
				t.Error(err)
			}
			if test.kind != "" {
				wantKind(t, err, test.kind, test.says)
			}
		})
	}
}

func TestTheEndpointIsCompleted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add(mine, "n1", "p1", nodeA, nil)
	for _, suffix := range []string{"", "/", "/v2.1", "/v2.1/"} {
		if _, err := f.client(t, func(c *Config) { c.URL += suffix }).Server(t.Context(), mine); err != nil {
			t.Errorf("%q: %v", suffix, err)
		}
	}
	if _, err := New(Config{}, time.Now); err == nil {
		t.Error("a Nova without a url is accepted")
	}
}
