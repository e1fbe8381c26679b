package registry_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/credentials"
	"github.com/musterhq/muster/sources/dhcp"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/sources/topology"
)

// counted counts how often it is closed; using it after that is a fault.
type counted struct {
	mu     sync.Mutex
	closed int
}

func (c *counted) List(context.Context, func([]sources.Record) error) (sources.End, error) {
	return sources.End{}, nil
}
func (c *counted) Get(context.Context, string) (*sources.Record, error) { return nil, sources.ErrGone }
func (c *counted) Close()                                               { c.mu.Lock(); defer c.mu.Unlock(); c.closed++ }
func (c *counted) closes() int                                          { c.mu.Lock(); defer c.mu.Unlock(); return c.closed }

func site(revision int64, recorded ...string) *fleet.Site {
	s := &fleet.Site{ID: 1, Revision: revision, Spec: fleet.SiteSpec{Name: "s", Sources: fleet.Sources{Recorded: map[string]string{}}}}
	for _, source := range recorded {
		s.Spec.Sources.Recorded[source] = "/nowhere.json"
	}
	return s
}

func counting(t *testing.T) (*registry.Registry, *[]*counted) {
	t.Helper()
	var built []*counted
	r := registry.New(registry.Options{Clock: time.Now, Build: func(*fleet.SiteSpec, string) (sources.Source, error) {
		built = append(built, &counted{})
		return built[len(built)-1], nil
	}})
	t.Cleanup(r.Close)
	return r, &built
}

func use(t *testing.T, r *registry.Registry, s *fleet.Site, source string) (sources.Source, func()) {
	t.Helper()
	got, release, err := r.Use(s, source)
	if err != nil {
		t.Fatal(err)
	}
	return got, release
}

func TestOneClientServesAllAndIsReplacedByANewRevision(t *testing.T) {
	t.Parallel()
	r, built := counting(t)
	a, releaseA := use(t, r, site(1, "slurm"), "slurm")
	b, releaseB := use(t, r, site(1, "slurm"), "slurm")
	if a != b || len(*built) != 1 {
		t.Fatalf("%d clients were built", len(*built))
	}
	c, releaseC := use(t, r, site(2, "slurm"), "slurm")
	if c == a || len(*built) != 2 {
		t.Fatal("the new revision uses the old client")
	}
	old, releaseOld := use(t, r, site(1, "slurm"), "slurm")
	if old != c {
		t.Fatal("who has not seen the new revision yet puts the old client back")
	}
	releaseOld()
	first := (*built)[0]
	releaseA()
	releaseA()
	if first.closes() != 0 {
		t.Fatal("closed while it is used")
	}
	releaseB()
	if first.closes() != 1 {
		t.Fatalf("closed %d times after its last use", first.closes())
	}
	releaseC()
	if (*built)[1].closes() != 0 {
		t.Error("the current client is closed between two uses")
	}
}

func TestClientsOfSourcesThatWentAreClosed(t *testing.T) {
	t.Parallel()
	r, built := counting(t)
	both := site(1, "slurm", "ironic")
	_, releaseSlurm := use(t, r, both, "slurm")
	_, releaseIronic := use(t, r, both, "ironic")
	releaseSlurm()
	r.Keep([]fleet.Site{*site(2, "ironic")})
	if (*built)[0].closes() != 1 || (*built)[1].closes() != 0 {
		t.Errorf("closed %d and %d times", (*built)[0].closes(), (*built)[1].closes())
	}
	r.Close()
	if (*built)[1].closes() != 0 {
		t.Error("closed while it is used")
	}
	releaseIronic()
	if (*built)[1].closes() != 1 {
		t.Errorf("closed %d times at the end", (*built)[1].closes())
	}
	if _, _, err := r.Use(both, "ironic"); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("a closed registry answers %v", err)
	}
}

func TestADroppedClientIsBuiltAnew(t *testing.T) {
	t.Parallel()
	r, built := counting(t)
	_, release := use(t, r, site(1, "slurm"), "slurm")
	release()
	r.Drop(1, "slurm")
	_, release = use(t, r, site(1, "slurm"), "slurm")
	release()
	if len(*built) != 2 || (*built)[0].closes() != 1 {
		t.Errorf("%d built, the first closed %d times", len(*built), (*built)[0].closes())
	}
}

func TestShippedClientsAreBuiltWithoutAskingTheSource(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	down := fleet.Endpoint{URL: "http://127.0.0.1:1"}
	s := site(1, "bmc", "file")
	s.Spec.Sources.Ironic = &fleet.IronicSource{OpenStackSource: fleet.OpenStackSource{Endpoint: down, Auth: "http_basic", Username: "u", Password: "file:" + secret}, PageSize: 100}
	s.Spec.Sources.Slurm = &fleet.SlurmSource{Endpoint: fleet.Endpoint{URL: "unix:/nowhere.sock"}, User: "root", Token: "file:" + secret}
	s.Spec.Sources.NetBox = &fleet.NetBoxSource{Endpoint: down, Token: "file:" + secret, PageSize: 500}
	s.Spec.NetBox = &fleet.NetBoxSites{Instance: "main", Sites: []string{"ams1"}}
	r := registry.New(registry.Options{Clock: time.Now})
	t.Cleanup(r.Close)
	for _, source := range []string{"ironic", "slurm", "netbox", "bmc", "file"} {
		_, release := use(t, r, s, source)
		release()
	}
}

// What a site reads of one OpenStack it reads as one user.
func TestPlacementAndNovaAreFoundBesideIronic(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := fleet.OpenStackSource{
		Endpoint: fleet.Endpoint{URL: "http://127.0.0.1:1"}, Auth: "keystone", Username: "u", Password: "file:" + secret,
		Keystone: &fleet.Keystone{URL: "http://127.0.0.1:1/v3", Project: "p"},
	}
	s := site(1)
	s.Spec.PlacementEnabled = true
	s.Spec.Sources.Ironic = &fleet.IronicSource{OpenStackSource: node, PageSize: 100}
	r := registry.New(registry.Options{Clock: time.Now})
	t.Cleanup(r.Close)
	for _, source := range []string{"ironic", "placement"} {
		_, release := use(t, r, s, source)
		release()
	}
	for _, name := range []string{"nova", "imaging"} {
		s.Spec.Imaging = &fleet.Imaging{Nova: &fleet.NovaImaging{Username: "slurm", Password: "file:" + secret, Project: "slurm"}}
		client, release, err := r.Open(s, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := client.(*nova.Client); !ok {
			t.Errorf("%s is a %T", name, client)
		}
		release()
	}

	s.Spec.Sources.Ironic.Auth, s.Spec.Sources.Ironic.Keystone = "http_basic", nil
	s.Revision = 2
	if _, _, err := r.Use(s, "placement"); err == nil || !strings.Contains(err.Error(), "sources.placement") {
		t.Errorf("without a catalog: %v", err)
	}
	if _, _, err := r.Open(s, "nova"); err == nil || !strings.Contains(err.Error(), "sources.nova") {
		t.Errorf("without a catalog: %v", err)
	}
	s.Spec.Sources.Placement = &fleet.OpenStackSource{Endpoint: fleet.Endpoint{URL: "http://127.0.0.1:1"}, Auth: "none"}
	_, release := use(t, r, s, "placement")
	release()
}

func TestWhatCannotBeBuiltSaysWhy(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		source string
		change func(*fleet.SiteSpec)
		want   string
	}{
		"no such source":     {"slurm", func(*fleet.SiteSpec) {}, `no source "slurm"`},
		"BMCs unknown":       {"bmc", func(s *fleet.SiteSpec) { s.Sources.BMC = &fleet.BMCSource{} }, "which BMCs"},
		"no recorded source": {"weather", func(s *fleet.SiteSpec) { s.Sources.Recorded = map[string]string{"weather": "x"} }, `"weather"`},
		"a netbox without our sites": {"netbox", func(s *fleet.SiteSpec) {
			s.Sources.NetBox = &fleet.NetBoxSource{Endpoint: fleet.Endpoint{URL: "http://x"}, Token: "file:" + missing}
		}, "slugs"},
		"a missing secret file": {"ironic", func(s *fleet.SiteSpec) {
			s.Sources.Ironic = &fleet.IronicSource{OpenStackSource: fleet.OpenStackSource{Endpoint: fleet.Endpoint{URL: "http://x"}, Auth: "http_basic", Username: "u", Password: "file:" + missing}}
		}, missing},
		"an unset variable": {"slurm", func(s *fleet.SiteSpec) {
			s.Sources.Slurm = &fleet.SlurmSource{Endpoint: fleet.Endpoint{URL: "http://x"}, Token: "env:MUSTER_NO_SUCH_VARIABLE"}
		}, "MUSTER_NO_SUCH_VARIABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(1)
			c.change(&s.Spec)
			r := registry.New(registry.Options{Clock: time.Now})
			t.Cleanup(r.Close)
			if _, _, err := r.Use(s, c.source); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "site s") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSecretsAreReadWhereTheyAreNamed(t *testing.T) {
	t.Setenv("MUSTER_TEST_SECRET", "from env")
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("  from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{"env:MUSTER_TEST_SECRET": "from env", "file:" + path: "from file"} {
		if got, err := registry.Secret(ref); err != nil || got != want {
			t.Errorf("%s: got %q, %v", ref, got, err)
		}
	}
	if _, err := registry.Secret("hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret itself in place of a reference: %v", err)
	}
}

func TestWhatWasSaidOfNetBoxOutlivesADroppedClient(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("API-Version", "4.4")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"detail": "Invalid token"}`))
	}))
	defer server.Close()
	var log bytes.Buffer
	r := registry.New(registry.Options{Clock: time.Now, Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})})
	defer r.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := site(1)
	s.Spec.Inventory, s.Spec.NetBox = facts.InventorySourceNetbox, &fleet.NetBoxSites{Instance: "nb", Sites: []string{"a"}}
	s.Spec.Sources.NetBox = &fleet.NetBoxSource{Endpoint: fleet.Endpoint{URL: server.URL}, Token: "file:" + token}
	for range 3 {
		client, release := use(t, r, s, "netbox")
		if _, err := client.List(t.Context(), func([]sources.Record) error { return nil }); sources.KindOf(err) != sources.KindForbidden {
			t.Fatal(err)
		}
		release()
		r.Drop(1, "netbox") // as a sweep does that was forbidden
		r.Keep([]fleet.Site{*s})
	}
	if n := strings.Count(log.String(), "NetBox answers"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
}

// A BMC whose credential is in the store is logged in at with what the site's
// credentials service has of its device.
func TestABMCsOwnCredentialComesFromTheSitesService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, factory := filepath.Join(dir, "token"), filepath.Join(dir, "factory")
	for path, text := range map[string]string{token: "t0ken", factory: "admin:factory"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer t0ken":
			t.Errorf("asked as %q", r.Header.Get("Authorization"))
		case r.URL.Path == "/v1/credentials/c01":
			_, _ = w.Write([]byte(`{"user": "own", "password": "0wn"}`))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code": "not_found", "message": "none"}`))
	}))
	t.Cleanup(server.Close)
	s := site(1)
	s.Spec.Sources.BMC = &fleet.BMCSource{Networks: []string{"127.0.0.0/8"}, Credentials: []fleet.BMCCredential{{Match: "*", Ref: redfish.RefStore}, {Match: "*", Ref: "file:" + factory}}}
	r := registry.New(registry.Options{Clock: time.Now, BMCs: func(context.Context, int64) ([]redfish.Target, error) { return nil, nil }})
	t.Cleanup(r.Close)
	if _, _, err := r.Open(s, "bmc"); err == nil || !strings.Contains(err.Error(), "sources.credentials") {
		t.Errorf("without the service: %v", err)
	}
	s.Spec.Sources.Credentials = &fleet.Service{Endpoint: fleet.Endpoint{URL: server.URL}, Token: "file:" + token}
	client, release, err := r.Open(s, "bmc")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for device, want := range map[string]redfish.Account{"c01": {User: "own", Password: "0wn"}, "c02": {User: "admin", Password: "factory"}} {
		if got, err := client.(*redfish.Client).Account(t.Context(), redfish.Target{Name: device}); err != nil || got != want {
			t.Errorf("%s: %v %v", device, got, err)
		}
	}
}

func TestServicesOfOurOwnContractsAreOpened(t *testing.T) {
	t.Parallel()
	s := site(1)
	r := registry.New(registry.Options{Clock: time.Now})
	t.Cleanup(r.Close)
	for _, name := range []string{"dhcp", "credentials", "topology"} {
		if _, _, err := r.Open(s, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, which the site has not: %v", name, err)
		}
	}
	at := &fleet.Service{Endpoint: fleet.Endpoint{URL: "http://127.0.0.1:1"}}
	s.Spec.Sources.DHCP, s.Spec.Sources.Credentials, s.Spec.Sources.Topology = at, at, at
	opened := map[string]any{}
	for _, name := range []string{"dhcp", "credentials", "topology"} {
		client, release, err := r.Open(s, name)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		opened[name] = client
		if _, _, err := r.Use(s, name); err == nil || !strings.Contains(err.Error(), "no source") {
			t.Errorf("%s as a source: %v", name, err)
		}
	}
	_, isDHCP := opened["dhcp"].(*dhcp.Client)
	_, isKeeper := opened["credentials"].(*credentials.Client)
	_, isTopology := opened["topology"].(*topology.Client)
	if !isDHCP || !isKeeper || !isTopology {
		t.Errorf("%T", opened)
	}
	at.URL = "ftp://x"
	s.Revision = 2
	if client, _, err := r.Open(s, "dhcp"); err == nil || client != nil {
		t.Errorf("%v %v", client, err)
	}
	r.Keep(nil)
}
