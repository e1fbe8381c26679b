package component_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	face "github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// machines are a simulated rack behind its BMCs, twenty times as fast.
type machines struct {
	world    *world.World
	managers map[string]component.Manager
	lose     atomic.Int64 // answers to resets and updates that are still to be lost
	drop     atomic.Int64 // requests of these that are still to be lost
}

func newFleet(t *testing.T, o face.Options) *machines {
	t.Helper()
	f := &machines{}
	began := time.Now()
	var err error
	f.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}, Clock: func() time.Time { return began.Add(20 * time.Since(began)) }})
	if err != nil {
		t.Fatal(err)
	}
	f.leaveAlone(t)
	authority, err := face.OpenAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		return errors.Join(c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") }), inner)
	}}
	listener, err := config.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f.losing(face.New(f.world, o)), TLSConfig: authority.TLS(), ErrorLog: quiet.StandardLogger(nil)}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() { _ = server.Close(); running.Wait(); _ = f.world.Close() })
	client, err := redfish.New(redfish.Config{
		Port: int(netip.MustParseAddrPort(listener.Addr().String()).Port()), Networks: []string{"127.0.0.0/8"}, TLS: redfish.TLS{CAFile: authority.Path()},
		Credentials: []redfish.Credential{{Match: "*", Ref: "env:X"}}, Secret: func(string) (string, error) { return "admin:simulator-0", nil },
		Targets: func(context.Context) ([]redfish.Target, error) { return nil, nil },
	}, time.Now, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f.managers = component.Managers(bmcs(t, client))
	return f
}

// leaveAlone puts every node in maintenance: else Ironic undoes what is done to its
// machine behind its back.
func (f *machines) leaveAlone(t *testing.T) {
	t.Helper()
	if err := f.world.Do(world.Effect{Face: "test", Subject: "nodes"}, func(s *world.State) error {
		var keys []string
		for key := range s.Nodes.Of("sim1") {
			keys = append(keys, key)
		}
		for _, key := range keys {
			n := s.Nodes.Edit(key)
			n.Maintenance, n.Reason = true, "muster:7 for this test"
			s.Nodes.Put(key, n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// losing loses requests of acts, or their answers, as it is told to.
func (f *machines) losing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		acts := r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/Actions/")
		if acts && f.drop.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		if acts && f.lose.Add(-1) >= 0 {
			next.ServeHTTP(nowhere{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// part gives a component of the rack: c, n or p and its number.
func (f *machines) part(letter string, n int) (p component.Part) {
	name := fmt.Sprintf("sim1-r01-%s%02d", letter, n)
	f.world.Read(func(s *world.State) {
		p = component.Part{Device: int64(n), Name: name, BMC: s.Machines.Get("sim1/" + name).Address}
	})
	switch letter {
	case "c":
		p.Type, p.Class = "compute", facts.DeviceClassGpuCompute
	case "n":
		p.Type, p.Class = "nvswitch", facts.DeviceClassNvswitch
	case "p":
		p.Type, p.Class = "powershelf", facts.DeviceClassPowershelf
	}
	return p
}

func (f *machines) machine(p component.Part) (m world.Machine) {
	f.world.Read(func(s *world.State) { m = *s.Machines.Get("sim1/" + p.Name) })
	return m
}

func (f *machines) edit(t *testing.T, p component.Part, change func(*world.Machine)) {
	t.Helper()
	if err := f.world.Do(world.Effect{Face: "test", Subject: p.Name}, func(s *world.State) error {
		m := s.Machines.Edit("sim1/" + p.Name)
		change(m)
		s.Machines.Put("sim1/"+p.Name, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *machines) command(t *testing.T, p component.Part, s component.Switch) component.Switched {
	t.Helper()
	done, err := f.managers[p.Type].Power.Switch(t.Context(), p, s)
	if err != nil {
		t.Fatalf("%s of %s: %v", s.Operation, p.Name, err)
	}
	return done
}

// rack lists every component: 18 trays, 9 switch trays, 8 shelves.
func (f *machines) rack() (all []component.Part) {
	for _, one := range []struct {
		letter string
		n      int
	}{{"p", 8}, {"n", 9}, {"c", 18}} {
		for n := 1; n <= one.n; n++ {
			all = append(all, f.part(one.letter, n))
		}
	}
	return all
}

func TestAWholeRackIsSwitchedByItsOwnResets(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	rack := f.rack()
	down := slices.Clone(rack)
	slices.Reverse(down)
	every := func(parts []component.Part, s component.Switch) {
		for start := 0; start < len(parts); { // those of one type beside each other
			end := start
			var group sync.WaitGroup
			for ; end < len(parts) && parts[end].Type == parts[start].Type; end++ {
				p := parts[end]
				group.Go(func() {
					done, err := f.managers[p.Type].Power.Switch(t.Context(), p, s)
					if err != nil || done.State != s.Leads() {
						t.Errorf("%s of %s: %+v, %v", s.Operation, p.Name, done, err)
					}
				})
			}
			group.Wait()
			start = end
		}
	}
	every(rack, component.Switch{Operation: "power_on"})
	before := map[string]int{}
	for _, p := range rack {
		before[p.Name] = f.machine(p).Resets
	}
	every(rack, component.Switch{Operation: "power_on"})                     // again: nothing is sent
	every(down, component.Switch{Operation: "power_off", Seen: true})        // once
	every(down[35-8:], component.Switch{Operation: "power_off", Seen: true}) // the shelves again: nothing is sent
	for _, p := range rack {
		m := f.machine(p)
		sent := m.Resets - before[p.Name]
		if m.On || sent != 1 {
			t.Errorf("%s: on %v after %d resets", p.Name, m.On, sent)
		}
	}
	tray := f.part("c", 1)
	if _, err := f.managers["compute"].Reachability.State(t.Context(), tray); act.Code(err) != codes.BMCUnreachable {
		t.Errorf("a tray without its shelves: %v", err)
	}
}

// A lost answer, or a lost command, is made good by one more try, which sends
// nothing where the effect is there.
func TestACommandIsNotRepeatedWhereItsEffectIsThere(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	p := f.part("c", 2)
	f.command(t, p, component.Switch{Operation: "power_on"})
	before := f.machine(p).Resets
	f.lose.Store(1)
	f.command(t, p, component.Switch{Operation: "force_power_off"})
	if sent := f.machine(p).Resets - before; sent != 1 || f.machine(p).On {
		t.Errorf("%d resets after a lost answer", sent)
	}
}

// An On that comes while an Off is under way is swallowed by some BMCs: it is sent
// when the Off has come to its end.
func TestAnOnWaitsForAnOffThatIsUnderWay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{SwallowOn: true})
	p := f.part("c", 3)
	f.command(t, p, component.Switch{Operation: "power_on"})
	if err := f.world.Do(world.Effect{Face: "test", Subject: p.Name}, func(s *world.State) error {
		s.Switch(s.Machines.Get("sim1/"+p.Name), "somebody's off", false)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if done := f.command(t, p, component.Switch{Operation: "power_on", Seen: true}); done.State != component.On {
		t.Errorf("it is %+v", done)
	}
	if !f.machine(p).On {
		t.Error("it is off")
	}
}

// What a BMC takes and does not do: a system that is asked to shut down is left to
// whatever looks at it next, everything else has failed.
func TestACommandWithoutEffect(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	p := f.part("c", 4)
	f.command(t, p, component.Switch{Operation: "power_on"})
	f.edit(t, p, func(m *world.Machine) { m.BMC.Deaf = true })
	for name, c := range map[string]struct {
		s    component.Switch
		want codes.Failure
	}{
		"asked":         {component.Switch{Operation: "power_off"}, ""},
		"asked, seen":   {component.Switch{Operation: "power_off", Seen: true}, codes.PowerNoEffect},
		"told by force": {component.Switch{Operation: "force_power_off"}, codes.PowerNoEffect},
	} {
		ctx, cancel := contextFor(t, 4*time.Second)
		done, err := f.managers["compute"].Power.Switch(ctx, p, c.s)
		cancel()
		if act.Code(err) != c.want || c.want == "" && (err != nil || done.State != component.On || done.Sent != "GracefulShutdown") {
			t.Errorf("%s: %+v, %v, want %q", name, done, err, c.want)
		}
	}
}

func TestAWarmResetOfTheSimulatorsTrays(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	p := f.part("c", 5)
	power := f.managers["compute"].Power
	f.command(t, p, component.Switch{Operation: "power_on"})
	before, err := power.Marker(t.Context(), p)
	if err != nil || before == "" {
		t.Fatalf("its marker is %q, %v", before, err)
	}
	if _, err := power.Reset(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}
	after, err := power.Marker(t.Context(), p)
	if err != nil || after == before {
		t.Errorf("the marker stays %q, %v", after, err)
	}
	// Never sent: nothing happens, and that is not known.
	resets := f.machine(p).Resets
	f.drop.Store(1)
	ctx, cancel := contextFor(t, time.Second)
	defer cancel()
	if _, err := power.Reset(ctx, p, false); act.Code(err) != codes.ResetResultUnknown || !act.IsFinal(err) {
		t.Errorf("a lost command: %v", err)
	}
	if now, _ := power.Marker(t.Context(), p); now != after || f.machine(p).Resets != resets {
		t.Errorf("the marker went from %q to %q by %d resets", after, now, f.machine(p).Resets-resets)
	}
	f.command(t, p, component.Switch{Operation: "force_power_off"})
	if _, err := power.Reset(t.Context(), p, false); act.Code(err) != codes.PowerRefused {
		t.Errorf("a reset of what is off: %v", err)
	}
}
