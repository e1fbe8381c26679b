package faults

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/ironic"
	"github.com/musterhq/muster/simulator/keystone"
	"github.com/musterhq/muster/simulator/netbox"
	"github.com/musterhq/muster/simulator/placement"
	"github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/slurm"
	"github.com/musterhq/muster/simulator/world"
)

const (
	siteName    = "sim1" // the site that has every kind of source
	user        = "muster"
	password    = "a-password"
	netboxToken = "0123456789abcdef0123456789abcdef01234567"
	slurmKey    = "the-key-of-the-cluster"
)

// fleet is a simulated site, still, with the rules of the fault proxy before each
// of its systems.
type fleet struct {
	world *world.World
	rules faultproxy.Rules
	url   string
	port  int    // of the BMCs
	ca    string // file
	dir   string // of the secrets

	mu     sync.Mutex
	hidden map[int]bool // devices that NetBox does not show muster's token
}

// polled are the machines whose BMCs the inventory knows of, as many as a test
// wants: a round over few is soon over.
var polled = []string{"c01", "p01", "n01", "c02", "c03", "c04"}

// newFleet makes the site, with so many BMCs.
func newFleet(t *testing.T, bmcs int) *fleet {
	t.Helper()
	w, err := world.Open(world.Options{Shape: world.Shape{Seed: 32, Sites: 1, Racks: 1}})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	f := &fleet{world: w, dir: t.TempDir(), hidden: map[int]bool{}}
	f.edit(t, func(s *world.State) {
		for _, d := range devicesOf(s) {
			if _, place, _ := strings.Cut(d.Name, "-r01-"); !slices.Contains(polled[:bmcs], place) {
				d.Fields["oob_ip"] = nil
				s.Objects.Put(d.Key(), d)
			}
		}
	})
	f.listen(t)
	f.listenBMCs(t)
	for name, text := range map[string]string{
		"password": password, "netbox": netboxToken, "bmc": "admin:simulator-0", "slurm": slurm.Token([]byte(slurmKey), "root", time.Now(), time.Hour),
	} {
		must(t, os.WriteFile(f.secret(name), []byte(text), 0o600))
	}
	return f
}

func (f *fleet) secret(name string) string { return filepath.Join(f.dir, name) }

// edit changes the world as nobody outside would.
func (f *fleet) edit(t *testing.T, change func(s *world.State)) {
	t.Helper()
	must(t, f.world.Do(world.Effect{Face: "test"}, func(s *world.State) error { change(s); return nil }))
}

// devicesOf gives copies of NetBox's devices in the order of their ids.
func devicesOf(s *world.State) (all []*world.Object) {
	for key := range s.Objects.Of(world.KindDevice) {
		all = append(all, s.Objects.Edit(key))
	}
	return all
}

func (f *fleet) listen(t *testing.T) {
	t.Helper()
	mux := http.NewServeMux()
	tokens := keystone.New(f.world, keystone.Options{Prefix: "/keystone", User: user, Password: password})
	mux.Handle("/keystone/", f.rules.Wrap("keystone", "", tokens))
	inventory, err := netbox.New(f.world, netbox.Options{Prefix: "/netbox", Tokens: []netbox.Token{{Text: netboxToken}}})
	must(t, err)
	mux.Handle("/netbox/", f.rules.Wrap("netbox", "", http.StripPrefix("/netbox", f.hide(inventory))))
	base := "/" + siteName
	mux.Handle(base+"/ironic/", f.rules.Wrap("ironic", siteName, ironic.New(f.world, siteName, ironic.Options{Prefix: base + "/ironic", Auth: ironic.AuthKeystone, Tokens: tokens})))
	mux.Handle(base+"/placement/", f.rules.Wrap("placement", siteName, placement.New(f.world, siteName, placement.Options{Prefix: base + "/placement", Tokens: tokens})))
	scheduler, err := slurm.New(f.world, siteName, slurm.Options{Generation: 45, Key: []byte(slurmKey), Clock: time.Now, Patience: 100 * time.Millisecond})
	must(t, err)
	mux.Handle(base+"/slurm/", f.rules.Wrap("slurm", siteName, http.StripPrefix(base+"/slurm", scheduler)))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	server.Start()
	t.Cleanup(server.Close)
	f.url = server.URL
}

// listenBMCs answers as every BMC, on the loopback alone.
func (f *fleet) listenBMCs(t *testing.T) {
	t.Helper()
	authority, err := redfish.OpenAuthority(t.TempDir(), time.Now)
	must(t, err)
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") })
		return errors.Join(err, inner)
	}}
	listener, err := config.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	must(t, err)
	server := &http.Server{
		Handler:   f.rules.Wrap("redfish", "", redfish.New(f.world, redfish.Options{})),
		TLSConfig: authority.TLS(), ErrorLog: hclog.NewNullLogger().StandardLogger(nil),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() { _ = server.Close(); running.Wait() })
	f.port, f.ca = listener.Addr().(*net.TCPAddr).Port, authority.Path()
}

// fault puts a rule in force.
func (f *fleet) fault(t *testing.T, rules ...faultproxy.Rule) {
	t.Helper()
	for _, rule := range rules {
		_, err := f.rules.Add(rule)
		must(t, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
