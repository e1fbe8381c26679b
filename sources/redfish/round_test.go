package redfish

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// fleet serves one machine at several addresses 127.9.x.y and counts how many
// ask at a time.
type fleetOf struct {
	*machine
	flying, most atomic.Int64
	hold         func(address string) // before an answer
}

func newFleet(t testing.TB, addresses ...string) (*fleetOf, *Client, func(adjust ...func(*Config)) *Client) {
	t.Helper()
	m := newMachine(t, object(t, tray))
	f := &fleetOf{machine: m}
	_, port := m.address()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.most.Store(max(f.most.Load(), f.flying.Add(1)))
		defer f.flying.Add(-1)
		if f.hold != nil {
			local, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
			f.hold(local.(*net.TCPAddr).IP.String())
		}
		m.ServeHTTP(w, req)
	}), TLSConfig: m.server.TLS.Clone(), ErrorLog: m.server.Config.ErrorLog}
	var running sync.WaitGroup
	for _, address := range addresses {
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			t.Fatal(err)
		}
		running.Add(1)
		go func() { defer running.Done(); _ = server.ServeTLS(listener, "", "") }()
	}
	t.Cleanup(func() { _ = server.Close(); running.Wait() })
	client := func(adjust ...func(*Config)) *Client {
		c, _ := m.client(t, facts.DeviceClassGpuCompute, append([]func(*Config){func(c *Config) { c.Targets = fixed(targets(addresses...)...) }}, adjust...)...)
		return c
	}
	return f, client(), client
}

func targets(addresses ...string) []Target {
	var found []Target
	for _, a := range addresses {
		found = append(found, Target{Address: a, Name: "c-" + a, Class: facts.DeviceClassGpuCompute})
	}
	return found
}

func addresses(net int, n int) (found []string) {
	for i := range n {
		found = append(found, fmt.Sprintf("127.9.%d.%d", net, i+1))
	}
	return found
}

func outcome(records []sources.Record) (answered, silent, other int) {
	for _, r := range records {
		switch {
		case r.BMC != nil:
			answered++
		case r.Unanswered != "":
			silent++
		default:
			other++
		}
	}
	return answered, silent, other
}

func TestTheSilentAreToldOfOnlyWhenMostAnswered(t *testing.T) {
	t.Parallel()
	live := addresses(1, 4)
	_, _, with := newFleet(t, live...)
	for name, c := range map[string]struct {
		dead   int
		failed bool
	}{"none silent": {0, false}, "a few": {2, false}, "half": {4, false}, "more than half": {5, true}} {
		all := append(append([]string{}, live...), addresses(99, c.dead)...)
		client := with(func(c *Config) { c.Targets = fixed(targets(all...)...) })
		var records []sources.Record
		end, err := client.List(t.Context(), func(page []sources.Record) error { records = append(records, page...); return nil })
		answered, silent, _ := outcome(records)
		if answered != 4 {
			t.Errorf("%s: %d answered", name, answered)
		}
		if c.failed {
			if err == nil || sources.KindOf(err) != sources.KindTransient || silent != 0 || end.Complete || !strings.Contains(err.Error(), "only 4 of 9") {
				t.Errorf("%s: %v, %d told silent", name, err, silent)
			}
			continue
		}
		if err != nil || silent != c.dead || !end.Complete || end.Records != 4+c.dead || end.At.IsZero() {
			t.Errorf("%s: %d silent, %+v %v", name, silent, end, err)
		}
	}
}

func TestAnswersDoNotWaitForTheSlow(t *testing.T) {
	t.Parallel()
	all := addresses(2, 12)
	f, _, with := newFleet(t, all...)
	released := make(chan struct{})
	f.hold = func(address string) {
		if address == "127.9.2.1" {
			<-released
		}
	}
	client := with(func(c *Config) { c.InFlight = 4 })
	got := make(chan int, 100)
	done := make(chan error, 1)
	go func() {
		_, err := client.List(t.Context(), func(page []sources.Record) error {
			for range page {
				got <- 1
			}
			return nil
		})
		done <- err
	}()
	deadline := time.After(5 * time.Second)
	for range 11 {
		select {
		case <-got:
		case <-deadline:
			t.Fatal("the answers of the others wait for the slow one")
		}
	}
	if len(got) != 0 {
		t.Error("the slow one is told of before it answered")
	}
	close(released)
	if err := <-done; err != nil || len(got) != 1 {
		t.Errorf("%v, %d more", err, len(got))
	}
	if f.most.Load() > 4 {
		t.Errorf("%d were asked at a time", f.most.Load())
	}
}

func TestTheSilentOfTheLastRoundAreAskedApart(t *testing.T) {
	t.Parallel()
	live := addresses(3, 8)
	f, _, with := newFleet(t, live...)
	dead := addresses(98, 3)
	client := with(func(c *Config) {
		c.InFlight = 4
		c.Targets = fixed(append(targets(dead...), targets(live...)...)...)
	})
	if answered, silent, _ := outcome(first(round1(t, client))); answered != 8 || silent != 3 {
		t.Fatalf("%d %d", answered, silent)
	}
	r := client.newRound(append(targets(dead...), targets(live...)...))
	if len(r.suspects) != 3 || len(r.targets) != 8 {
		t.Errorf("%d apart, %d not", len(r.suspects), len(r.targets))
	}
	for range 8 {
		if target, more := r.take(false); !more || strings.HasPrefix(target.Address, "127.9.98.") {
			t.Fatalf("%+v is asked before those that answer", target)
		}
	}
	if target, _ := r.take(true); !strings.HasPrefix(target.Address, "127.9.98.") {
		t.Errorf("%+v", target)
	}
	_ = f
}

func first(records []sources.Record, _ sources.End) []sources.Record { return records }

func TestARoundEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	all := addresses(4, 6)
	f, client, _ := newFleet(t, all...)
	ctx, cancel := context.WithCancel(t.Context())
	var ending atomic.Bool
	f.hold = func(string) {
		if ending.Load() {
			cancel()
		}
	}
	stop := errors.New("stop")
	if _, err := client.List(t.Context(), func([]sources.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	ending.Store(true)
	if _, err := client.List(ctx, func([]sources.Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	failing := errors.New("the database is down")
	c, _ := f.client(t, facts.DeviceClassGpuCompute, func(c *Config) { c.Targets = func(context.Context) ([]Target, error) { return nil, failing } })
	if _, err := c.List(t.Context(), func([]sources.Record) error { return nil }); !errors.Is(err, failing) {
		t.Errorf("%v", err)
	}
}

func TestEveryAddressIsAskedOnceAndOnlyInsideTheNetworks(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	c, _ := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) {
		c.Networks = []string{"127.0.0.0/30", "10.0.0.0/8"}
		c.Targets = fixed(targets("127.0.0.1/24", "127.0.0.1", "", "127.9.9.9", "localhost", "192.0.2.1")...)
	})
	records, end := round1(t, c)
	refs := map[string]sources.Record{}
	for _, r := range records {
		refs[r.Ref] = r
	}
	if len(records) != 4 || end.Dropped != 1 {
		t.Errorf("%d records, %+v", len(records), end)
	}
	if refs["127.0.0.1/24"].BMC == nil || refs["localhost"].BMC == nil {
		t.Errorf("%+v", refs)
	}
	for _, ref := range []string{"127.9.9.9", "192.0.2.1"} {
		if !strings.Contains(refs[ref].Undecodable, "networks") || refs[ref].Unanswered != "" {
			t.Errorf("%+v", refs[ref])
		}
	}
	if len(m.requests("GET /redfish/v1$")) != 2 {
		t.Errorf("%v", m.requests("GET /redfish/v1$"))
	}
	if _, err := c.Power(t.Context(), targets("127.9.9.9")[0]); !errors.Is(err, errOutside) {
		t.Errorf("%v", err)
	}
}

func TestOneBMCIsReadByItsAddress(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	c, target := m.client(t, facts.DeviceClassGpuCompute)
	r, err := c.Get(t.Context(), target.Address+"/24")
	if err != nil || r.Ref != target.Address+"/24" || r.BMC == nil {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := c.Get(t.Context(), "127.0.0.77"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
	m.server.Close()
	if _, err := c.Get(t.Context(), target.Address); err == nil || sources.KindOf(err) != sources.KindTransient || errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestCertificatesAreJudged(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	spaced := strings.ToUpper(m.fingerprint()[:2] + ":" + m.fingerprint()[2:])
	wrong := strings.Repeat("00", 32)
	for name, c := range map[string]struct {
		tls TLS
		why string // "" for accepted
	}{
		"nothing said":               {TLS{}, "certificate"},
		"its CA":                     {TLS{CAFile: ca}, ""},
		"its fingerprint":            {TLS{Fingerprints: []string{wrong, spaced}}, ""},
		"another fingerprint":        {TLS{Fingerprints: []string{wrong}}, m.fingerprint()},
		"another, and its CA":        {TLS{Fingerprints: []string{wrong}, CAFile: ca}, ""},
		"any":                        {TLS{Insecure: true}, ""},
		"any, whatever fingerprints": {TLS{Insecure: true, Fingerprints: []string{wrong}}, ""},
	} {
		client, _ := m.client(t, facts.DeviceClassGpuCompute, func(config *Config) { config.TLS = c.tls })
		_, err := client.List(t.Context(), func([]sources.Record) error { return nil })
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.auths["none"] > 0 {
		t.Errorf("%v", m.auths)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	good := Config{Targets: fixed(), Secret: func(string) (string, error) { return "", nil }, Networks: []string{"10.0.0.0/8"}}
	for name, change := range map[string]func(*Config){
		"no targets":        func(c *Config) { c.Targets = nil },
		"no secrets":        func(c *Config) { c.Secret = nil },
		"no networks":       func(c *Config) { c.Networks = nil },
		"an odd network":    func(c *Config) { c.Networks = []string{"10.0.0.1"} },
		"an odd pattern":    func(c *Config) { c.Credentials = []Credential{{Ref: "env:X"}} },
		"a short print":     func(c *Config) { c.TLS.Fingerprints = []string{"00:11"} },
		"a missing CA file": func(c *Config) { c.TLS.CAFile = "/nowhere.pem" },
	} {
		config := good
		change(&config)
		if _, err := New(config, time.Now, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := New(good, time.Now, nil); err != nil {
		t.Error(err)
	}
}

func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{tray, `{"Members": [null, 1, {"@odata.id": 5}], "Status": {"Health": [1]}}`, `{"Oem": {"x": {"PowerSupplies": [{"PowerState": true}]}}}`,
		`{"TaskState": "Running", "PercentComplete": "1e999"}`, `{"error": {"@Message.ExtendedInfo": [{"MessageId": "a.b."}], "code": 5}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := parse(body)
		for name := range d {
			_, _, _ = d.text(name), d.link(name), d.links(name)
			_, _ = d.boolean(name)
			_, _ = d.number(name)
			_ = d.texts(name)
			if len(d.text(name)) > 256 {
				t.Errorf("%q is too long", name)
			}
			for _, one := range d.objects(name) {
				one.health()
			}
			statusOf(d, name)
		}
		if state, odd := powerOf(d); state != "" && odd != "" {
			t.Error("a power state that is known and odd")
		}
		var p Progress
		p.read(d)
		messages(d)
		vendors(d, "PowerSupplies")
		a := &answer{status: 200, header: http.Header{}, body: body, doc: d}
		if r := a.refusal(true); r == nil && d == nil {
			t.Error("no object is taken for an answer")
		}
		l := &line{base: "https://127.0.0.1:443"}
		for _, uri := range []string{d.text("@odata.id"), d.link("Location"), string(body)} {
			if path, err := l.path(uri); err == nil && !strings.HasPrefix(path, "/") {
				t.Errorf("%q leads to %q", uri, path)
			}
		}
	})
}
