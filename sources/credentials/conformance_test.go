package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/contract"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
)

// endpoint is a credentials service that the suite runs against.
type endpoint struct{ url, token string }

func (e endpoint) connect(t *testing.T, change func(*Config)) *Client {
	t.Helper()
	config := Config{URL: e.url, Token: e.token, HTTP: sources.Options{Retries: -1, BreakerFailures: -1}}
	if change != nil {
		change(&config)
	}
	c, err := New(config, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// suite is what a credentials service must bear out.
var suite = []struct {
	name string
	run  func(*testing.T, endpoint)
}{
	{"a credential is made once and stays", ensures},
	{"each device has its own", differs},
	{"a credential goes, and goes again", deletes},
	{"a wrong token is told", wrongToken},
}

func simulated(t *testing.T) (*world.World, http.Handler) {
	t.Helper()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 2, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	return w, contract.Credentials(w, "sim2", contract.Options{
		Token: "good", User: "admin", Password: "fleet-canary", Mint: func() string { return fmt.Sprintf("minted-canary-%d", made.Add(1)) },
	})
}

func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	w, face := simulated(t)
	server := httptest.NewServer(face)
	t.Cleanup(server.Close)
	e := endpoint{url: server.URL, token: "good"}
	for _, item := range suite {
		t.Run(item.name, func(t *testing.T) { item.run(t, e) })
	}
	for _, effect := range w.Effects(0) {
		if strings.Contains(fmt.Sprint(effect), "canary") {
			t.Errorf("an effect tells a secret: %+v", effect)
		}
	}
}

// The store of a simulated fleet knows the machines that somebody has set up,
// and not those that are new.
func TestTheSimulatedStoreKnowsWhatIsEnrolled(t *testing.T) {
	t.Parallel()
	w, face := simulated(t)
	server := httptest.NewServer(face)
	t.Cleanup(server.Close)
	c := endpoint{url: server.URL, token: "good"}.connect(t, nil)
	var trays []*world.Machine
	w.Read(func(s *world.State) {
		for _, m := range s.Machines.Of("sim2") {
			if m.Class == world.ClassCompute {
				trays = append(trays, m)
			}
		}
	})
	asked := map[bool]int{}
	for _, m := range trays {
		got, err := c.Get(t.Context(), m.Name)
		isNew := m.Node == ""
		asked[isNew]++
		if isNew && (!errors.Is(err, sources.ErrGone) || m.BMC.Own != world.FactoryPassword) || !isNew && (got != Credential{"admin", "fleet-canary"} || m.BMC.Own != "") {
			t.Errorf("%s, new %v: %v %v", m.Name, isNew, got, err)
		}
	}
	if asked[true] == 0 || asked[false] == 0 {
		t.Errorf("%v machines were there", asked)
	}
}

func ensures(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if _, err := c.Get(t.Context(), "d1"); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("before: %v", err)
	}
	first, err := c.Ensure(t.Context(), "d1")
	if err != nil || first.User == "" || first.Password == "" {
		t.Fatalf("%v %v", first, err)
	}
	again, err := c.Ensure(t.Context(), "d1")
	got, getErr := c.Get(t.Context(), "d1")
	if err != nil || getErr != nil || again != first || got != first {
		t.Errorf("%v %v %v, first %v", again, got, errors.Join(err, getErr), first)
	}
}

func differs(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	a, errA := c.Ensure(t.Context(), "d2")
	b, errB := c.Ensure(t.Context(), "d3")
	if errA != nil || errB != nil || a.Password == b.Password {
		t.Errorf("%v %v", a == b, errors.Join(errA, errB))
	}
}

func deletes(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if _, err := c.Ensure(t.Context(), "d4"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Delete(t.Context(), "d4"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), "d4"); !errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func wrongToken(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.Token = "wrong-canary" })
	_, get := c.Get(t.Context(), "d5")
	_, ensure := c.Ensure(t.Context(), "d5")
	for _, err := range []error{get, ensure, c.Delete(t.Context(), "d5")} {
		if sources.KindOf(err) != sources.KindForbidden || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}

func TestACredentialShowsNoPassword(t *testing.T) {
	t.Parallel()
	c := Credential{User: "admin", Password: "canary"}
	text, err := json.Marshal(map[string]any{"a": c, "b": &c})
	if err != nil {
		t.Fatal(err)
	}
	said := string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		said += fmt.Sprintf(verb, c) + fmt.Sprintf(verb, &c) + fmt.Sprintf(verb, []Credential{c})
	}
	if strings.Contains(said, "canary") || strings.Contains(said, fmt.Sprintf("%x", "canary")) {
		t.Error(said)
	}
}

// Nothing that a service does wrong puts a secret into an error; a lost answer
// is looked at.
func TestWhatGoesWrongTellsNoSecret(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(http.ResponseWriter, string){
		"a refusal that repeats it": func(w http.ResponseWriter, body string) {
			w.WriteHeader(422)
			_, _ = fmt.Fprintf(w, `{"code": "invalid", "message": %q}`, body)
		},
		"a failure that repeats it": func(w http.ResponseWriter, body string) { w.WriteHeader(500); _, _ = fmt.Fprint(w, body) },
		"an object of another form": func(w http.ResponseWriter, body string) { _, _ = fmt.Fprintf(w, `{"user": 1, "password": [%s]}`, body) },
		"half an answer": func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "500")
			_, _ = fmt.Fprint(w, body[:len(body)-1])
		},
		"a credential without a user": func(w http.ResponseWriter, _ string) { _, _ = fmt.Fprint(w, `{"user": "", "password": "canary"}`) },
		"an answer whose JSON is cut": func(w http.ResponseWriter, body string) { _, _ = fmt.Fprint(w, body[:len(body)-1]) },
		"another credential at each asking": func(w http.ResponseWriter, _ string) {
			_, _ = fmt.Fprintf(w, `{"user": "admin", "password": "canary%d"}`, time.Now().UnixNano())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, face := simulated(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := httptest.NewRecorder()
				face.ServeHTTP(answer, r)
				spoil(w, answer.Body.String())
			}))
			t.Cleanup(server.Close)
			c := endpoint{url: server.URL, token: "good"}.connect(t, nil)
			if got, err := c.Ensure(t.Context(), "d1"); err == nil || got != (Credential{}) || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)), "canary") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALostAnswerIsLookedAt(t *testing.T) {
	t.Parallel()
	_, face := simulated(t)
	var lost atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			face.ServeHTTP(w, r)
			return
		}
		face.ServeHTTP(httptest.NewRecorder(), r)
		lost.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	c := endpoint{url: server.URL, token: "good"}.connect(t, nil)
	made, err := c.Ensure(t.Context(), "d1")
	if err != nil || made.Password == "" {
		t.Errorf("%v %v", made, err)
	}
	if err := c.Delete(t.Context(), "d1"); err != nil || lost.Load() != 2 {
		t.Errorf("%v, %d answers were lost", err, lost.Load())
	}
}
