package ironic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// exchange is one that was recorded with a real Ironic.
type exchange struct {
	Method, Path, Version string
	Body                  json.RawMessage
	Status                int
	Location, Allow, Says string
	Cut                   bool // Says is the beginning only
	Answer                any
	Fields                []string // of the node in the answer
}

func (e *exchange) String() string { return e.Method + " " + e.Path + " " + string(e.Body) }

type hand struct{ at time.Time }

func (h *hand) now() time.Time { return h.at }

// player sends what was recorded to the face.
type player struct {
	t      *testing.T
	server *httptest.Server
	clock  *hand
	names  map[string]string // what the recording calls it → what it is
}

func newPlayer(t *testing.T, site string) (*player, *world.World) {
	t.Helper()
	p := &player{t: t, clock: &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}, names: map[string]string{}}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: p.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(New(w, site, Options{}))
	t.Cleanup(p.server.Close)
	return p, w
}

// fill puts what things are in place of what the recording calls them.
func (p *player) fill(text string) string {
	for name, is := range p.names {
		text = strings.ReplaceAll(text, name, is)
	}
	return text
}

func (p *player) send(method, path, version, body string) (*http.Response, []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.server.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if version != "" {
		r.Header.Set("X-OpenStack-Ironic-API-Version", version)
	}
	answer, err := p.server.Client().Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	if err := answer.Body.Close(); err != nil {
		p.t.Error(err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return answer, got
}

// says is the text of an error.
func says(body []byte) string {
	var outer struct {
		Message string `json:"error_message"`
	}
	var inner struct{ Faultstring, Description string }
	if json.Unmarshal(body, &outer) != nil || json.Unmarshal([]byte(outer.Message), &inner) != nil {
		return ""
	}
	return inner.Faultstring + inner.Description
}

// What a real Ironic 21.4 answered to a life of a node, with every mistake in
// between, the simulated one answers too: status, words, headers and fields.
func TestTheAnswersAreThoseOfARealIronic(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("testdata/answers-21.4.4.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []exchange
	if err := json.Unmarshal(body, &recorded); err != nil {
		t.Fatal(err)
	}
	p, _ := newPlayer(t, "empty")
	for _, e := range recorded {
		p.play(&e)
	}
}

func (p *player) play(e *exchange) {
	p.t.Helper()
	var text string
	if json.Unmarshal(e.Body, &text) != nil { // a text is one that is no JSON
		text = string(e.Body)
	}
	answer, got := p.send(e.Method, p.fill(e.Path), e.Version, p.fill(text))
	if answer.StatusCode != e.Status {
		p.t.Fatalf("%s: the status is %d, not %d: %s", e, answer.StatusCode, e.Status, got)
	}
	at := strings.TrimPrefix(answer.Header.Get("Location"), p.server.URL)
	if before, _, made := strings.Cut(e.Location, "{"); made && e.Status == http.StatusCreated {
		p.names[strings.TrimPrefix(e.Location, before)] = strings.TrimPrefix(at, before)
	}
	if at != p.fill(e.Location) || answer.Header.Get("Allow") != e.Allow {
		p.t.Errorf("%s: the location is %q, allowed is %q", e, at, answer.Header.Get("Allow"))
	}
	if want := p.fill(e.Says); says(got) != want && !(e.Cut && strings.HasPrefix(says(got), want)) && want != "" {
		p.t.Errorf("%s: it says\n%s\nnot\n%s", e, says(got), want)
	}
	p.compare(e, got)
	if answer.StatusCode == http.StatusAccepted {
		p.clock.at = p.clock.at.Add(time.Minute)
	}
}

func (p *player) compare(e *exchange, got []byte) {
	p.t.Helper()
	var value any
	if json.Unmarshal(got, &value) != nil && (e.Answer != nil || e.Fields != nil) {
		p.t.Errorf("%s: the answer is %s", e, got)
	}
	if e.Answer != nil && !reflect.DeepEqual(value, e.Answer) {
		p.t.Errorf("%s: it answers\n%v\nnot\n%v", e, value, e.Answer)
	}
	if e.Fields == nil {
		return
	}
	node, _ := value.(map[string]any)
	if nodes, listed := node["nodes"].([]any); listed {
		node, _ = nodes[0].(map[string]any)
	}
	if fields := sortedKeys(node); !slices.Equal(fields, e.Fields) {
		p.t.Errorf("%s: the fields are\n%v\nnot\n%v", e, fields, e.Fields)
	}
}

// Every page of a listing, however small, together gives every node once.
func TestPagesGiveEveryNodeOnce(t *testing.T) {
	t.Parallel()
	p, w := newPlayer(t, "sim1")
	want := 0
	w.Read(func(s *world.State) { want = s.Nodes.Len() })
	for _, query := range []string{"limit=3", "limit=4&sort_key=name&sort_dir=desc", "limit=5&fields=uuid,name", "limit=2&detail=true"} {
		seen := map[string]bool{}
		for next := "/v1/nodes?" + query; next != ""; {
			answer, body := p.send(http.MethodGet, next, "1.82", "")
			var page struct {
				Nodes []struct{ UUID string }
				Next  string
			}
			if answer.StatusCode != http.StatusOK || json.Unmarshal(body, &page) != nil {
				t.Fatalf("%s: %s", next, body)
			}
			for _, n := range page.Nodes {
				if seen[n.UUID] {
					t.Fatalf("%s: %s comes twice", query, n.UUID)
				}
				seen[n.UUID] = true
			}
			next = strings.TrimPrefix(page.Next, p.server.URL)
		}
		if len(seen) != want {
			t.Errorf("%s: %d of %d nodes", query, len(seen), want)
		}
	}
}

// A request that changes something is one effect of the device, one that
// changes nothing or is refused is none.
func TestEffectsAreCountedOnce(t *testing.T) {
	t.Parallel()
	p, w := newPlayer(t, "sim1")
	var n *world.Node
	w.Read(func(s *world.State) {
		for _, one := range s.Nodes.Of("sim1") {
			if one.ProvisionState == world.Available && !one.Maintenance {
				n = one
			}
		}
	})
	path := "/v1/nodes/" + n.UUID
	for _, step := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"PUT", path + "/traits/CUSTOM_X", "", "add trait CUSTOM_X", 204},
		{"PUT", path + "/traits/CUSTOM_X", "", "", 204},
		{"DELETE", path + "/traits/CUSTOM_Y", "", "", 404},
		{"PATCH", path, `[{"op":"add","path":"/lessee","value":"x"}]`, "patch node", 200},
		{"PUT", path + "/maintenance", `{"reason":"r"}`, "set maintenance", 202},
		{"DELETE", path + "/maintenance", "", "clear maintenance", 202},
		{"DELETE", path + "/maintenance", "", "", 202},
		{"PUT", path + "/states/provision", `{"target":"provide"}`, "", 400},
		{"PUT", path + "/states/provision", `{"target":"manage"}`, "set provision manage", 202},
		{"DELETE", path, "", "delete node", 204},
	} {
		from := len(w.Effects(0))
		if answer, body := p.send(step.method, step.path, "1.82", step.body); answer.StatusCode != step.status {
			t.Fatalf("%s %s: %d %s", step.method, step.path, answer.StatusCode, body)
		}
		var got []string
		for _, e := range w.Effects(from) {
			got = append(got, fmt.Sprintf("%s of %s", e.Op, e.Subject))
		}
		if want := step.want + " of " + n.Name; step.want == "" && got != nil || step.want != "" && (len(got) != 1 || got[0] != want) {
			t.Errorf("%s %s: the effects are %q", step.method, step.path, got)
		}
	}
}
