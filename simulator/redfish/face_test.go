package redfish

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// hand is a clock that is moved by hand.
type hand struct {
	mu sync.Mutex
	at time.Time
}

func (h *hand) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

func (h *hand) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(d)
}

// fleet is a small world with its BMCs on one port of 127/8.
type fleet struct {
	*testing.T
	world *world.World
	clock *hand
	port  string
}

func serve(t *testing.T, o Options) *fleet {
	t.Helper()
	h := &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: New(w, o)}}
	server.Start()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return &fleet{T: t, world: w, clock: h, port: port}
}

const (
	tray  = "sim1/sim1-r01-c01"
	shelf = "sim1/sim1-r01-p01"
	board = "sim1/sim1-r01-n01"
)

func (f *fleet) machine(key string) (m *world.Machine) {
	f.Helper()
	f.world.Read(func(s *world.State) { m = s.Machines.Get(key) })
	if m == nil {
		f.Fatalf("no machine %s", key)
	}
	return m
}

func (f *fleet) edit(key string, change func(m *world.Machine)) {
	f.Helper()
	if err := f.world.Do(world.Effect{Face: "test", Subject: key}, func(s *world.State) error {
		m := s.Machines.Edit(key)
		change(m)
		s.Machines.Put(key, m)
		return nil
	}); err != nil {
		f.Fatal(err)
	}
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   object
}

func (g *got) messageID() string {
	e, _ := g.body["error"].(object)
	code, _ := e["code"].(string)
	return code
}

func (f *fleet) ask(method, key, path string, body any, header ...string) *got {
	f.Helper()
	g, err := f.try(method, key, path, body, header...)
	if err != nil {
		f.Fatalf("%s %s: %v", method, path, err)
	}
	return g
}

func (f *fleet) try(method, key, path string, body any, header ...string) (*got, error) {
	f.Helper()
	var sent io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		sent = bytes.NewReader([]byte(b))
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		sent = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(f.Context(), method, "http://"+net.JoinHostPort(f.machine(key).Address, f.port)+path, sent)
	if err != nil {
		f.Fatal(err)
	}
	r.SetBasicAuth("admin", "simulator-0")
	if sent != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "X-Auth-Token" {
			r.Header.Del("Authorization")
		}
	}
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	g := &got{status: resp.StatusCode, header: resp.Header}
	if len(raw) > 0 && resp.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(raw, &g.body); err != nil {
			f.Fatalf("%s is no JSON: %v", path, err)
		}
	}
	return g, nil
}

const resetPath = systemPath + "/Actions/ComputerSystem.Reset"

// Every link that a BMC gives leads somewhere, and every resource says where it
// is.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	for _, key := range []string{tray, board, shelf} {
		t.Run(key, func(t *testing.T) {
			seen, queue := map[string]bool{}, []string{root}
			for len(queue) > 0 {
				path := queue[0]
				queue = queue[1:]
				if seen[path] {
					continue
				}
				seen[path] = true
				g := f.ask(http.MethodGet, key, path, nil)
				if id, _ := g.body["@odata.id"].(string); g.status != http.StatusOK || id != path && id != path+"/" {
					t.Errorf("%s answers %d and is %v", path, g.status, g.body["@odata.id"])
				}
				queue = append(queue, linksOf(g.body)...)
			}
			if len(seen) < 25 {
				t.Errorf("only %d resources", len(seen))
			}
		})
	}
}

func linksOf(value any) (paths []string) {
	switch at := value.(type) {
	case object:
		for name, inner := range at {
			if path, ok := inner.(string); ok && (name == "@odata.id" || name == "@Redfish.ActionInfo") {
				paths = append(paths, path)
			}
			paths = append(paths, linksOf(inner)...)
		}
	case []any:
		for _, inner := range at {
			paths = append(paths, linksOf(inner)...)
		}
	}
	return paths
}

// A reset takes time and passes through the words for it; the baseboard is gone
// while the host is off; the effect is one, however it is asked for.
func TestAResetTakesTime(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	power := func() any { return f.ask(http.MethodGet, tray, systemPath, nil).body["PowerState"] }
	if g := f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "ForceOff"}); g.status != http.StatusNoContent {
		t.Fatalf("ForceOff answers %d %v", g.status, g.body)
	}
	if p := power(); p != "PoweringOff" {
		t.Errorf("on the way it is %v", p)
	}
	f.clock.advance(world.PowerDelay)
	if p := power(); p != "Off" {
		t.Errorf("afterwards it is %v", p)
	}
	for _, path := range []string{boardPath, boardPath + "/Processors", chassisPath + "/HGX_GPU_0"} {
		if g := f.ask(http.MethodGet, tray, path, nil); g.status != http.StatusServiceUnavailable {
			t.Errorf("%s answers %d while the host is off", path, g.status)
		}
	}
	before := len(f.world.Effects(0))
	if g := f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "GracefulShutdown"}); g.status != http.StatusNoContent {
		t.Errorf("off when off answers %d", g.status)
	}
	if n := len(f.world.Effects(before)); n != 0 {
		t.Errorf("what changes nothing is %d effects", n)
	}
	f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "On"})
	f.clock.advance(world.PowerDelay)
	g := f.ask(http.MethodGet, tray, systemPath, nil)
	if g.body["PowerState"] != "On" || g.body["LastResetTime"] != instant(f.clock.now()) {
		t.Errorf("it is %v, last reset %v", g.body["PowerState"], g.body["LastResetTime"])
	}
	var faces []string
	for _, e := range f.world.Effects(before) {
		faces = append(faces, e.Face+" "+e.Op)
	}
	if len(faces) != 2 || faces[0] != "redfish reset On" || faces[1] != "machine reset On" {
		t.Errorf("effects are %v", faces)
	}
}

// What a BMC does with what it cannot do.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	etag := f.ask(http.MethodGet, tray, systemPath, nil).header.Get("ETag")
	for _, c := range []struct {
		name, method, path string
		body               any
		header             []string
		status             int
		id                 string
	}{
		{"wrong password", "GET", systemPath, nil, []string{"Authorization", "Basic YWRtaW46eA=="}, 401, "NoValidSession"},
		{"wrong token", "GET", systemPath, nil, []string{"X-Auth-Token", "feed"}, 401, "NoValidSession"},
		{"unknown path", "GET", systemsPath + "/nobody", nil, nil, 404, "ResourceMissingAtURI"},
		{"unknown path with a slash", "GET", systemsPath + "/nobody/", nil, nil, 404, "ResourceMissingAtURI"},
		{"reset type unknown", "POST", resetPath, object{"ResetType": "PushPowerButton"}, nil, 400, "ActionParameterValueNotInList"},
		{"reset type missing", "POST", resetPath, object{}, nil, 400, "ActionParameterMissing"},
		{"reset type no text", "POST", resetPath, object{"ResetType": 1}, nil, 400, "ActionParameterValueTypeError"},
		{"parameter unknown", "POST", resetPath, object{"ResetType": "On", "Force": true}, nil, 400, "ActionParameterUnknown"},
		{"no JSON", "POST", resetPath, "{", nil, 400, "MalformedJSON"},
		{"another media type", "POST", resetPath, "<a/>", []string{"Content-Type", "text/xml"}, 415, "UnrecognizedRequestBody"},
		{"GET of an action", "GET", resetPath, nil, nil, 405, "OperationNotAllowed"},
		{"DELETE of a system", "DELETE", systemPath, nil, nil, 405, "OperationNotAllowed"},
		{"a method nobody knows", "FAKE", systemPath, nil, nil, 405, "OperationNotAllowed"},
		{"PATCH without an ETag", "PATCH", systemPath, object{"AssetTag": "x"}, nil, 428, "PreconditionRequired"},
		{"PATCH with an old ETag", "PATCH", systemPath, object{"AssetTag": "x"}, []string{"If-Match", `"old"`}, 412, "PreconditionFailed"},
		{"reset with an old ETag", "POST", resetPath, object{"ResetType": "ForceOff"}, []string{"If-Match", `"old"`}, 412, "PreconditionFailed"},
		{"PATCH of nothing", "PATCH", systemPath, object{}, []string{"If-Match", etag}, 400, "NoOperation"},
		{"PATCH of what is unknown", "PATCH", systemPath, object{"Colour": "x"}, []string{"If-Match", etag}, 400, "PropertyUnknown"},
		{"PATCH of another type", "PATCH", systemPath, object{"AssetTag": 5}, []string{"If-Match", etag}, 400, "PropertyValueTypeError"},
		{"boot from nonsense", "PATCH", systemPath, object{"Boot": object{"BootSourceOverrideTarget": "Moon"}}, []string{"If-Match", etag}, 400, "PropertyValueNotInList"},
		{"query unknown", "GET", systemPath + "?$filter=x", nil, nil, 501, "QueryNotSupported"},
		{"another OData", "GET", systemPath, nil, []string{"OData-Version", "4.1"}, 412, "HeaderInvalid"},
		{"update without an image", "POST", updatePath + "/Actions/UpdateService.SimpleUpdate", object{}, nil, 400, "ActionParameterMissing"},
		{"update of nothing", "POST", updatePath + "/Actions/UpdateService.SimpleUpdate", object{"ImageURI": "http://i/a_1.0.bin", "Targets": []string{firmwarePath + "/none"}}, nil, 400, "ActionParameterValueNotInList"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := f.ask(c.method, tray, c.path, c.body, c.header...)
			if g.status != c.status || g.messageID() != registry+c.id {
				t.Errorf("answers %d %s", g.status, g.messageID())
			}
		})
	}
	if n := len(f.world.Effects(0)); n != 0 {
		t.Errorf("what is refused is %d effects", n)
	}
}
