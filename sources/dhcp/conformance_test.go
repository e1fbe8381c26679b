package dhcp

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

// endpoint is a DHCP service that the suite runs against.
type endpoint struct {
	url, token string
	effects    func(op string) int // of the service, as it tells of itself
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

// suite is what a DHCP service must bear out.
var suite = []struct {
	name string
	run  func(*testing.T, endpoint)
}{
	{"a reservation is made, read back, and not written again", reserves},
	{"another address takes the place of the one before", changes},
	{"what another device has is a conflict and changes nothing", conflicts},
	{"what is no address is refused", refuses},
	{"a reservation ends, and ends again", releases},
	{"a wrong token is told", wrongToken},
}

func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(contract.DHCP(w, "sim1", contract.Options{Token: "good"}))
	t.Cleanup(server.Close)
	e := endpoint{url: server.URL, token: "good", effects: func(op string) (n int) {
		for _, one := range w.Effects(0) {
			if one.Face == contract.FaceDHCP && one.Op == op {
				n++
			}
		}
		return n
	}}
	for _, item := range suite {
		t.Run(item.name, func(t *testing.T) { item.run(t, e) })
	}
}

func reserves(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if _, err := c.Get(t.Context(), "d 1"); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("before: %v", err)
	}
	before := e.effects("reserve")
	for _, mac := range []string{"B8:CE:F6:00:00:01", "b8-ce-f6-00-00-01"} {
		if err := c.Reserve(t.Context(), Reservation{Device: "d 1", MAC: mac, Address: "10.0.0.1", Hostname: "d1-bmc"}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Get(t.Context(), "d 1")
	if err != nil || got != (Reservation{Device: "d 1", MAC: "b8:ce:f6:00:00:01", Address: "10.0.0.1", Hostname: "d1-bmc"}) {
		t.Errorf("%+v %v", got, err)
	}
	if n := e.effects("reserve") - before; n != 1 {
		t.Errorf("it was written %d times", n)
	}
}

func changes(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
		if err := c.Reserve(t.Context(), Reservation{Device: "d2", MAC: "b8:ce:f6:00:00:02", Address: address}); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), "d2"); err != nil || got.Address != address {
			t.Errorf("%+v %v", got, err)
		}
	}
}

func conflicts(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if err := c.Reserve(t.Context(), Reservation{Device: "d3", MAC: "b8:ce:f6:00:00:03", Address: "10.0.0.4"}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Reservation{{MAC: "b8:ce:f6:00:00:04", Address: "10.0.0.4"}, {MAC: "b8:ce:f6:00:00:03", Address: "10.0.0.5"}} {
		r.Device = "d4"
		if err := c.Reserve(t.Context(), r); sources.KindOf(err) != sources.KindConflict {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := c.Get(t.Context(), "d4"); !errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func refuses(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	for _, r := range []Reservation{
		{Device: "d5", MAC: "b8:ce:f6", Address: "10.0.0.6"}, {Device: "d5", MAC: "b8:ce:f6:00:00:05", Address: "10.0.0"}, {Device: "", MAC: "b8:ce:f6:00:00:05", Address: "10.0.0.6"},
	} {
		if err := c.Reserve(t.Context(), r); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func releases(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if err := c.Reserve(t.Context(), Reservation{Device: "d6", MAC: "b8:ce:f6:00:00:06", Address: "10.0.0.7"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Release(t.Context(), "d6"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), "d6"); !errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func wrongToken(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.Token = "wrong" })
	for _, err := range []error{
		c.Reserve(t.Context(), Reservation{Device: "d7", MAC: "b8:ce:f6:00:00:07", Address: "10.0.0.8"}), c.Release(t.Context(), "d7"),
	} {
		if sources.KindOf(err) != sources.KindForbidden {
			t.Errorf("%v", err)
		}
	}
}

// An answer that is lost is looked at: what took effect is done, what did not is
// told as it failed.
func TestLostAnswersAreLookedAt(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]bool{"it took effect": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
			if err != nil {
				t.Fatal(err)
			}
			face := contract.DHCP(w, "sim1", contract.Options{})
			var lose atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet || !lose.Load() {
					face.ServeHTTP(rw, r)
					return
				}
				if effect {
					face.ServeHTTP(httptest.NewRecorder(), r)
				}
				panic(http.ErrAbortHandler)
			}))
			t.Cleanup(server.Close)
			c := endpoint{url: server.URL}.connect(t, nil)
			r := Reservation{Device: "d1", MAC: "b8:ce:f6:00:00:01", Address: "10.0.0.1"}
			lose.Store(true)
			if err := c.Reserve(t.Context(), r); (err == nil) != effect || err != nil && sources.KindOf(err) != sources.KindTransient {
				t.Errorf("reserve: %v", err)
			}
			lose.Store(false)
			if err := c.Reserve(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			lose.Store(true)
			if err := c.Release(t.Context(), "d1"); (err == nil) != effect || err != nil && sources.KindOf(err) != sources.KindTransient {
				t.Errorf("release: %v", err)
			}
		})
	}
}
