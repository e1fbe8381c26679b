package nova

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

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
