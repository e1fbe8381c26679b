package nova

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

// slowly bounds the looks for a lost answer; waiting takes no time.
func slowly(c *Config) { c.Poll = 5 * time.Second }

func wanted() NewServer {
	return NewServer{Name: "muster-tray-1", Project: "p1", Node: nodeA, Image: "img", Flavor: "fl", Network: "net-1", Key: "k"}
}

// The request is the API reference's of the newest version that matters.
func TestAServerIsCreatedInTheVersionThatNovaHas(t *testing.T) {
	t.Parallel()
	const common = `"flavorRef":"fl",%"imageRef":"img","key_name":"k","name":"muster-tray-1","networks":`
	for most, want := range map[string]string{
		"2.93": `2.74 {"server":{` + strings.Replace(common, "%", `"hypervisor_hostname":"`+nodeA+`",`, 1) + `[{"uuid":"net-1"}]}}`,
		"2.73": `2.37 {"server":{"availability_zone":"nova::` + nodeA + `",` + strings.Replace(common, "%", "", 1) + `[{"uuid":"net-1"}]}}`,
		"2.36": `2.1 {"server":{"availability_zone":"nova::` + nodeA + `",` + strings.Replace(common, "%", "", 1) + `[{"uuid":"net-1"}]}}`,
		"":     `2.1 {"server":{"availability_zone":"nova::` + nodeA + `",` + strings.Replace(common, "%", "", 1) + `[{"uuid":"net-1"}]}}`,
	} {
		f := newFake(t)
		f.most = most
		if most == "" { // an endpoint with the project in it
			f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v2.1/" {
					refuse(w, 404, "itemNotFound", "The resource could not be found.")
				}
				return r.URL.Path == "/v2.1/"
			}
		}
		c := f.client(t)
		for range 2 { // the second time it is there
			s, err := c.Create(t.Context(), wanted())
			if err != nil || s.ID != mine || s.Status != "BUILD" || s.Terminal() {
				t.Errorf("%s: %+v, %v", most, s, err)
			}
		}
		if len(f.writes) != 1 || f.writes[0] != "POST "+want {
			t.Errorf("%s: sent %q, want %q", most, f.writes, want)
		}
	}
}

func TestAServerIsNotCreatedTwice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		there []map[string]any
		kind  sources.Kind // "" given
		says  string
	}{
		"one that runs":          {[]map[string]any{{}}, "", ""},
		"one that is being made": {[]map[string]any{{"status": "BUILD", "OS-EXT-SRV-ATTR:hypervisor_hostname": nil}}, "", ""},
		"one that failed":        {[]map[string]any{{"status": "ERROR", "fault": map[string]any{"message": "No valid host"}}}, sources.KindConflict, "No valid host"},
		"one on its way out":     {[]map[string]any{{"OS-EXT-STS:task_state": "deleting"}}, sources.KindConflict, "ACTIVE"},
		"one that was put away":  {[]map[string]any{{"status": "SHELVED_OFFLOADED", "OS-EXT-SRV-ATTR:hypervisor_hostname": nil}}, sources.KindConflict, "SHELVED"},
		"one on another node":    {[]map[string]any{{"OS-EXT-SRV-ATTR:hypervisor_hostname": nodeB}}, sources.KindConflict, nodeB},
		"two":                    {[]map[string]any{{}, {"id": mine}}, sources.KindConflict, "2 servers"},
		"one that is gone":       {[]map[string]any{{"status": "DELETED"}}, "made", ""},
		"one of another project": {[]map[string]any{{"tenant_id": "p2"}}, "made", ""},
	} {
		f := newFake(t)
		f.most = "2.93"
		for _, more := range test.there {
			f.add(yours, wanted().Name, "p1", nodeA, more)
		}
		s, err := f.client(t).Create(t.Context(), wanted())
		switch made := len(f.writes) == 1; {
		case test.kind == "made":
			if err != nil || !made || s.ID != mine {
				t.Errorf("%s: %+v %v %v", name, s, err, f.writes)
			}
		case test.kind == "":
			if err != nil || made || s.ID != yours {
				t.Errorf("%s: %+v %v %v", name, s, err, f.writes)
			}
		default:
			wantKind(t, err, test.kind, test.says)
			if len(f.writes) != 0 {
				t.Errorf("%s: %v", name, f.writes)
			}
		}
	}
}

func TestALostAnswerToACreationIsFoundByName(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.most = "2.93"
	f.after = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	s, err := f.client(t).Create(t.Context(), wanted())
	if err != nil || s.ID != mine || len(f.writes) != 1 {
		t.Errorf("%+v %v %v", s, err, f.writes)
	}

	f = newFake(t)
	f.most = "2.93"
	sent := 0
	f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			sent++
			panic(http.ErrAbortHandler)
		}
		return false
	}
	_, err = f.client(t, slowly).Create(t.Context(), wanted())
	wantKind(t, err, sources.KindTransient, "EOF")
	if sent != 1 {
		t.Errorf("sent %d times", sent)
	}
}

func TestWhatNovaRefusesToCreate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		fault  string
		text   string
		kind   sources.Kind
		says   string
	}{
		"no right to name a node": {403, "forbidden", "Policy doesn't allow compute:servers:create:requested_destination to be performed.", sources.KindForbidden, "say where one is created"},
		"no quota":                {403, "forbidden", "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances", sources.KindConflict, "Quota"},
		"no such key":             {400, "badRequest", "Invalid key_name provided.", sources.KindRefused, "key_name"},
		"no such node":            {400, "badRequest", "No hypervisor matching '" + nodeA + "' could be found.", sources.KindRefused, "hypervisor"},
		"a failure":               {500, "computeFault", "Unexpected API Error.", sources.KindTransient, "Unexpected"},
	} {
		f := newFake(t)
		f.most = "2.93"
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				refuse(w, test.status, test.fault, test.text)
			}
			return r.Method == http.MethodPost
		}
		_, err := f.client(t, slowly).Create(t.Context(), wanted())
		t.Run(name, func(t *testing.T) { wantKind(t, err, test.kind, test.says) })
	}
	f := newFake(t)
	f.most = "2.36"
	for what, spoil := range map[string]func(*NewServer){
		"name": func(n *NewServer) { n.Name = "" }, "flavor": func(n *NewServer) { n.Flavor = " x" }, "node": func(n *NewServer) { n.Node = "x" },
		"network": func(n *NewServer) { n.Network = "none" },
	} {
		n := wanted()
		spoil(&n)
		_, err := f.client(t).Create(t.Context(), n)
		wantKind(t, err, sources.KindRefused, what)
	}
	if len(f.writes) != 0 {
		t.Errorf("sent %v", f.writes)
	}
}

func TestAServerIsAwaited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		looks []map[string]any
		kind  sources.Kind
		says  string
	}{
		"it runs":   {[]map[string]any{{"OS-EXT-STS:task_state": "spawning"}, {"status": "ACTIVE", "OS-EXT-STS:task_state": nil}}, "", ""},
		"it fails":  {[]map[string]any{{"status": "ERROR", "OS-EXT-STS:task_state": nil, "fault": map[string]any{"message": "no boot"}}}, sources.KindConflict, "no boot"},
		"it goes":   {[]map[string]any{nil}, sources.KindMissing, "could not be found"},
		"it builds": {nil, sources.KindTransient, "BUILD"},
	} {
		f := newFake(t)
		f.add(mine, "n", "p1", nodeA, map[string]any{"status": "BUILD", "OS-EXT-STS:task_state": "scheduling"})
		f.leaving[mine] = test.looks
		s, err := f.client(t).Await(t.Context(), mine, 30*time.Millisecond)
		if test.kind == "" {
			if err != nil || s.Status != "ACTIVE" {
				t.Errorf("%s: %+v %v", name, s, err)
			}
			continue
		}
		wantKind(t, err, test.kind, test.says)
		if errors.Is(err, sources.ErrGone) != (name == "it goes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
