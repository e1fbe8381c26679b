package topology

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/contract"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
)

// endpoint is a topology service that the suite runs against.
type endpoint struct {
	url, token string
	begun      func(device string) int // how often it was to work for a device
}

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

// suite is what a topology service must bear out.
var suite = []struct {
	name string
	run  func(*testing.T, endpoint)
}{
	{"a declaration is read back, and again begins the work anew", declares},
	{"a name that declares something else is a conflict", conflicts},
	{"what the service does not know is refused", refuses},
	{"a wrong token is told", wrongToken},
}

func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	e := endpoint{token: "good"}
	var face http.Handler
	face, e.begun = simulated(t)
	server := httptest.NewServer(face)
	t.Cleanup(server.Close)
	e.url = server.URL
	for _, item := range suite {
		t.Run(item.name, func(t *testing.T) { item.run(t, e) })
	}
}

func simulated(t *testing.T) (http.Handler, func(device string) int) {
	t.Helper()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return contract.Topology(w, "sim1", contract.Options{Token: "good"}), func(device string) (n int) {
		for _, one := range w.Effects(0) {
			if one.Face == contract.FaceTopology && one.Op == "declare remove" && one.Subject == device {
				n++
			}
		}
		return n
	}
}

func declares(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	want := Intent{Name: "unenrollment-d1-7", Device: "d1", Site: "sim1", Action: ActionRemove}
	if _, err := c.Get(t.Context(), want.Name); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("before: %v", err)
	}
	for n := range 2 {
		if err := c.Declare(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), want.Name); err != nil || got != want || e.begun("d1") != n+1 {
			t.Errorf("%+v %v, begun %d times", got, err, e.begun("d1"))
		}
	}
}

func conflicts(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	one := Intent{Name: "n2", Device: "d2", Site: "sim1", Action: ActionRemove}
	if err := c.Declare(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	other := one
	other.Device = "d3"
	if err := c.Declare(t.Context(), other); sources.KindOf(err) != sources.KindConflict || e.begun("d3") != 0 {
		t.Errorf("%v, begun %d times", err, e.begun("d3"))
	}
	if got, err := c.Get(t.Context(), "n2"); err != nil || got != one {
		t.Errorf("%+v %v", got, err)
	}
}

func refuses(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	for _, i := range []Intent{{Name: "n4", Device: "d4", Site: "sim1", Action: "explode"}, {Name: "n4", Site: "sim1", Action: ActionRemove}, {Device: "d4", Site: "sim1", Action: ActionRemove}} {
		if err := c.Declare(t.Context(), i); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("%+v: %v", i, err)
		}
	}
}

func wrongToken(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.Token = "wrong" })
	if err := c.Declare(t.Context(), Intent{Name: "n5", Device: "d5", Site: "sim1", Action: ActionRemove}); sources.KindOf(err) != sources.KindForbidden || e.begun("d5") != 0 {
		t.Errorf("%v", err)
	}
}

// A request whose answer is lost is made once more, and not a third time.
func TestALostAnswerIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	for lost, ok := range map[int32]bool{1: true, 2: false} {
		face, _ := simulated(t)
		var posts atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && posts.Add(1) <= lost {
				face.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			face.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		c := endpoint{url: server.URL, token: "good"}.connect(t, nil)
		err := c.Declare(t.Context(), Intent{Name: "n", Device: "d", Site: "sim1", Action: ActionRemove})
		if (err == nil) != ok || posts.Load() != 2 {
			t.Errorf("%d answers lost: %v after %d requests", lost, err, posts.Load())
		}
	}
}
