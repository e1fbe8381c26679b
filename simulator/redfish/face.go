package redfish

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// Options are how the BMCs of the fleet behave.
type Options struct {
	User     string // of the fleet's account, default admin
	Password string // default simulator-0

	Lenient   bool                   // all BMCs: no ETags, no sessions, reset types listed in the action itself, unknown properties ignored
	LenientAt func(site string) bool // the BMCs of a site alone; may be nil

	SwallowOn bool // an On that comes while an Off is under way is accepted and lost
	Already   int  // status of a reset whose effect is already there: 204 (default), 400 or 409
	Absolute  bool // Location headers name the host

	MaxSessions int       // of a BMC at a time, default 16
	Tokens      io.Reader // where tokens come from, default crypto/rand
}

// Face answers for every BMC of a world.
type Face struct {
	world   *world.World
	options Options
	models  map[string]*model // by class

	mu        sync.Mutex
	addresses map[netip.Addr]string // of BMCs → key of the machine
	bmcs      map[string]*memory    // by the machine's key
}

// FaceName is what effects of this face are told under.
const FaceName = "redfish"

// New gives the handler of all BMCs of a world.
func New(w *world.World, o Options) *Face {
	if o.User == "" {
		o.User = "admin"
	}
	if o.Password == "" {
		o.Password = "simulator-0"
	}
	if o.Already == 0 {
		o.Already = http.StatusNoContent
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 16
	}
	if o.Tokens == nil {
		o.Tokens = rand.Reader
	}
	f := &Face{
		world: w, options: o, bmcs: map[string]*memory{},
		models: map[string]*model{
			world.ClassCompute: computeModel(), world.ClassNVSwitch: switchModel(), world.ClassPowerShelf: shelfModel(),
		},
	}
	return f
}

// machineAt gives the key of the machine whose BMC has an address.
func (f *Face) machineAt(addr netip.Addr) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.addresses == nil {
		f.addresses = map[netip.Addr]string{}
		f.world.Read(func(s *world.State) {
			for key, m := range s.Machines.All() {
				if a, err := netip.ParseAddr(m.Address); err == nil {
					f.addresses[a] = key
				}
			}
		})
	}
	key, ok := f.addresses[addr]
	return key, ok
}

// look reads a machine as it is now; nil: it has no BMC here. fed tells whether
// its rack gives it power.
func (f *Face) look(key string) (m *world.Machine, fed bool, now time.Time) {
	f.world.Read(func(s *world.State) {
		if m = s.Machines.Get(key); m != nil {
			fed = s.Fed(m)
		}
		now = s.Now
	})
	return m, fed, now
}

// localAddr is the address that a request came in at.
func localAddr(r *http.Request) (netip.Addr, bool) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(local.String())
	return at.Addr().Unmap(), err == nil
}

// ServeHTTP answers as the BMC that the request came in at.
func (f *Face) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	addr, ok := localAddr(r)
	if !ok {
		http.Error(rw, "the connection has no local address", http.StatusInternalServerError)
		return
	}
	key, ok := f.machineAt(addr)
	m, fed, now := f.look(key)
	if !ok || m == nil || m.BMC.Dead || !fed {
		panic(http.ErrAbortHandler) // nobody there: the connection is closed
	}
	if m.BMC.Hangs {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	if m.BMC.Slow > 0 && !wait(r, time.Duration(m.BMC.Slow)*time.Millisecond) {
		return
	}
	v := &view{f: f, m: m, now: now, bmc: f.memoryOf(key), r: r}
	a := v.handle()
	if m.BMC.Loses && (strings.Contains(r.URL.Path, "/Actions/") || r.URL.Path == pushPath) {
		_ = v.do("lose the answer", func(s *world.State, m *world.Machine) error {
			s.EditBMC(m, func(b *world.BMC) { b.Loses = false })
			return nil
		})
		panic(http.ErrAbortHandler)
	}
	v.answer(rw, a)
}

// wait waits, or tells that the client has gone.
func wait(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// errUnchanged ends a Do that found nothing to do.
var errUnchanged = errors.New("nothing to do")

// do changes the machine: once, told as one effect. A change that gives
// errUnchanged is none.
func (v *view) do(op string, change func(s *world.State, m *world.Machine) error) error {
	e := world.Effect{Face: FaceName, Site: v.m.Site, Op: op, Subject: v.m.Name}
	err := v.f.world.Do(e, func(s *world.State) error {
		m := s.Machines.Edit(v.m.Key())
		if m == nil {
			return errUnchanged
		}
		if !v.holds(m, s.Now) {
			return &refusal{refuse("PreconditionFailed")}
		}
		return change(s, m)
	})
	v.refresh()
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// refresh looks at the machine as it is now.
func (v *view) refresh() {
	if m, _, now := v.f.look(v.m.Key()); m != nil {
		v.m, v.now = m, now
	}
}

// lenient tells whether the BMC is.
func (v *view) lenient() bool {
	return v.f.options.Lenient || v.f.options.LenientAt != nil && v.f.options.LenientAt(v.m.Site)
}
