package rack

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	face "github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows"
)

var bundle = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

// simulated is a rack behind its BMCs, twenty times as fast, that notes the
// resets in the order in which the BMCs are told.
type simulated struct {
	world *world.World
	bmc   component.BMC
	parts map[int64]component.Part

	mu     sync.Mutex
	names  map[string]string // of components by the address of their BMC
	resets []string
}

var letters = map[string]struct {
	kind  string
	class facts.DeviceClass
	first int64
}{
	"c": {"compute", facts.DeviceClassGpuCompute, 100}, "n": {"nvswitch", facts.DeviceClassNvswitch, 200}, "p": {"powershelf", facts.DeviceClassPowershelf, 300},
}

func newSimulated(t *testing.T) *simulated {
	t.Helper()
	f := &simulated{parts: map[int64]component.Part{}, names: map[string]string{}}
	began := time.Now()
	var err error
	f.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: func() time.Time { return began.Add(20 * time.Since(began)) }})
	must(t, err)
	must(t, f.world.Do(world.Effect{Face: "test", Subject: "nodes"}, func(s *world.State) error {
		var keys []string
		for key := range s.Nodes.Of("sim1") {
			keys = append(keys, key)
		}
		for _, key := range keys { // else Ironic undoes what is done behind its back
			n := s.Nodes.Edit(key)
			n.Maintenance, n.Reason = true, "muster:7 for this test"
			s.Nodes.Put(key, n)
		}
		for _, m := range s.Machines.Of("sim1") {
			short := strings.TrimPrefix(m.Name, "sim1-r01-")
			l, ok := letters[short[:1]]
			number, err := strconv.ParseInt(short[1:], 10, 64)
			if !ok || err != nil || m.Address == "" {
				continue
			}
			id := l.first + number
			f.parts[id] = component.Part{Device: id, Name: m.Name, Type: l.kind, Class: l.class, BMC: m.Address}
			f.names[m.Address] = m.Name
		}
		return nil
	}))
	authority, err := face.OpenAuthority(t.TempDir(), time.Now)
	must(t, err)
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		return errors.Join(c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") }), inner)
	}}
	listener, err := config.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	must(t, err)
	null := hclog.NewNullLogger()
	server := &http.Server{Handler: f.noting(face.New(f.world, face.Options{})), TLSConfig: authority.TLS(), ErrorLog: null.StandardLogger(nil)}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() { _ = server.Close(); running.Wait(); _ = f.world.Close() })
	c, err := redfish.New(redfish.Config{
		Port: int(netip.MustParseAddrPort(listener.Addr().String()).Port()), Networks: []string{"127.0.0.0/8"}, TLS: redfish.TLS{CAFile: authority.Path()},
		Credentials: []redfish.Credential{{Match: "*", Ref: "env:X"}}, Secret: func(string) (string, error) { return "admin:simulator-0", nil },
		Targets: func(context.Context) ([]redfish.Target, error) { return nil, nil },
	}, time.Now, null)
	must(t, err)
	t.Cleanup(c.Close)
	f.bmc = c
	return f
}

func (f *simulated) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasSuffix(r.URL.Path, ".Reset") {
			f.mu.Lock()
			f.resets = append(f.resets, f.names[netip.MustParseAddrPort(at.String()).Addr().Unmap().String()])
			f.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

func (f *simulated) machine(name string) (m world.Machine) {
	f.world.Read(func(s *world.State) { m = *s.Machines.Get("sim1/" + name) })
	return m
}

// order gives the kinds of components in the order of their resets.
func (f *simulated) order() (kinds []string) {
	for _, name := range f.resets {
		kind := letters[name[len("sim1-r01-"):][:1]].kind
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// counting counts the commands that are in flight.
type counting struct {
	component.Power
	h *hall
}

func (c counting) Switch(ctx context.Context, p component.Part, s component.Switch) (component.Switched, error) {
	defer c.h.fly(p)()
	return c.Power.Switch(ctx, p, s)
}

// task runs a rule on the fleet.
func (f *simulated) task(t *testing.T, c client.Client, r rule.Rule) *hall {
	t.Helper()
	h := newHall(r, 0, 0, 0, "")
	h.begun.Task = prefixes.Add(1)
	h.begun.Parts = nil
	for _, p := range f.parts {
		part := report.Part{Device: p.Device, Name: p.Name, Type: p.Type}
		h.begun.Parts = append(h.begun.Parts, part)
		h.order = append(h.order, part)
		h.trays[p.Device] = &tray{Part: part}
	}
	slices.SortFunc(h.order, func(a, b report.Part) int { return int(a.Device - b.Device) })
	l := &live{hall: h, client: c, prefix: "fleet/"}
	main := worker.New(c, l.prefix+"muster", worker.Options{DisableRegistrationAliasing: true})
	RegisterMain(main, l.prefix, h)
	site := worker.New(c, workflows.SiteQueue(l.prefix, "lab"), worker.Options{DisableRegistrationAliasing: true, DisableWorkflowWorker: true})
	shipped, err := bundle()
	must(t, err)
	managers := component.Managers(&component.Systems{
		BMC: func(context.Context) (component.BMC, func(), error) { return f.bmc, func() {}, nil },
		Resets: func(_ context.Context, operation, kind string) ([]string, error) {
			o, _ := shipped.Operation(operation)
			return o.Resets[kind], nil
		},
		Clock: time.Now, Poll: 50 * time.Millisecond,
	})
	for kind, m := range managers {
		m.Power = counting{m.Power, h}
		managers[kind] = m
	}
	Register(site, managers, func(_ context.Context, p report.Part) (component.Part, error) { return f.parts[p.Device], nil })
	must(t, main.Start())
	must(t, site.Start())
	defer main.Stop()
	defer site.Stop()
	f.resets = nil
	ended(t, l.begin(t, TaskWorkflow), nil)
	return h
}

// brisk shortens the sleeps of a rule.
func brisk(r rule.Rule) rule.Rule {
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, list := range [][]rule.Action{s.Pre, s.Post} {
			for j := range list {
				if list[j].Name == rule.Sleep {
					list[j].Parameters.Duration = rule.Period(100 * time.Millisecond)
				}
				if list[j].PollInterval > 0 {
					list[j].PollInterval = rule.Period(500 * time.Millisecond)
				}
			}
		}
	}
	return r
}

// A simulated rack of 18 compute trays, 9 switch trays and 8 shelves, by the
// examples of the format: what the BMCs were told, and in which order.
func TestASimulatedRackGoesUpAndDown(t *testing.T) {
	t.Parallel()
	c := realTemporal(t)
	f := newSimulated(t)
	if len(f.parts) != 35 {
		t.Fatalf("the rack has %d components", len(f.parts))
	}
	most := map[string]int{"compute": 8, "nvswitch": 4, "powershelf": 1}
	step := func(name, operation string, want []string, on bool) {
		h := f.task(t, c, brisk(seedRule(t, examples, name+".json", operation)))
		h.ends(t, "succeeded")
		if got := f.order(); want != nil && !slices.Equal(got, want) {
			t.Errorf("%s: the resets went in the order %v", name, got)
		}
		told := slices.Clone(f.resets)
		slices.Sort(told)
		if len(slices.Compact(told)) != len(f.resets) {
			t.Errorf("%s: a component was reset twice: %v", name, f.resets)
		}
		for kind, n := range most {
			if h.most[kind] > n {
				t.Errorf("%s: %d of %s were in flight", name, h.most[kind], kind)
			}
		}
		for _, p := range f.parts {
			if f.machine(p.Name).On != on {
				t.Errorf("%s leaves %s on: %v", name, p.Name, !on)
			}
		}
	}
	step("graceful_power_on", "power_on", nil, true) // whatever was off
	step("graceful_power_off", "power_off", []string{"compute", "nvswitch", "powershelf"}, false)
	step("graceful_power_on", "power_on", []string{"powershelf", "nvswitch", "compute"}, true)

	// One tray does not go down: its rack keeps its power, and the report says of
	// each component in which state it was left.
	bad := "sim1-r01-c07"
	must(t, f.world.Do(world.Effect{Face: "test", Subject: bad}, func(s *world.State) error {
		m := s.Machines.Edit("sim1/" + bad)
		m.BMC.Deaf = true
		s.Machines.Put("sim1/"+bad, m)
		return nil
	}))
	r := brisk(seedRule(t, examples, "graceful_power_off.json", "power_off"))
	r.Steps[0].Timeout, r.Steps[0].Post[0].Timeout = rule.Period(5*time.Second), rule.Period(2*time.Second)
	h := f.task(t, c, r)
	h.ends(t, "partially_failed POWER_STATE_NOT_REACHED")
	if c := h.components[107]; c.Status != report.Failed || c.Code != codes.PowerStateNotReached || c.LastState != component.On {
		t.Errorf("the bad tray is left %+v", c)
	}
	if c := h.components[101]; c.Status != report.Succeeded || c.LastState != component.Off {
		t.Errorf("a good one is left %+v", c)
	}
	if c := h.components[301]; c.Status != "" || c.LastState != component.On || !f.machine("sim1-r01-p01").On {
		t.Errorf("a shelf is left %+v", c)
	}
}
