package ironic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// peer is one Ironic that the suite runs against.
type peer struct {
	config Config
	admin  *ironictest.Ironic
	can    []string // what it has beyond a plain Ironic: auth, keystone, direct (deployments that fail)
	masks  bool     // it hides secrets, as Ironic does
}

// meter counts answers by status.
type meter struct{ conflicts atomic.Int64 }

func (m *meter) Call(_, _ string, status int, _ time.Duration) {
	if status == http.StatusConflict {
		m.conflicts.Add(1)
	}
}
func (m *meter) Retry(string)         {}
func (m *meter) Breaker(string, bool) {}

func (p *peer) client(t *testing.T, adjust ...func(*Config)) *Client {
	t.Helper()
	config := p.config
	config.Poll = 100 * time.Millisecond
	for _, a := range adjust {
		a(&config)
	}
	c, err := New(config, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var serialNumber atomic.Int64

// node makes a node that lives as long as the test.
func (p *peer) node(t *testing.T, n ironictest.Node) string {
	t.Helper()
	n.Name = fmt.Sprintf("conformance-%x-%d", time.Now().UnixNano(), serialNumber.Add(1))
	id, err := p.admin.CreateNode(t.Context(), n)
	must(t, err)
	t.Cleanup(func() {
		if err := p.admin.DeleteNode(context.WithoutCancel(t.Context()), id); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// list gives all records of a listing by ref.
func list(t *testing.T, c *Client) (map[string]sources.Record, sources.End) {
	t.Helper()
	records := map[string]sources.Record{}
	end, err := c.List(t.Context(), func(page []sources.Record) error {
		for _, r := range page {
			if _, twice := records[r.Ref]; twice {
				t.Errorf("%s was given twice", r.Ref)
			}
			records[r.Ref] = r
		}
		return nil
	})
	must(t, err)
	if !end.Complete || end.Records != len(records) {
		t.Fatalf("the listing ended with %+v after %d records", end, len(records))
	}
	return records, end
}

func wantKind(t *testing.T, err error, kind sources.Kind) {
	t.Helper()
	if err == nil || sources.KindOf(err) != kind {
		t.Fatalf("the error is %v, its kind must be %s", err, kind)
	}
}

func TestConformanceOnTheStandIn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.user, f.pass = "admin", "secret"
	conform(t, &peer{
		config: Config{URL: f.URL, Auth: AuthHTTPBasic, User: "admin", Password: "secret"},
		admin:  f.admin(), can: []string{"auth"},
	})
}

func TestConformanceOnARealIronic(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_IRONIC")
	if address == "" {
		t.Skip("no real Ironic: set MUSTER_PEER_IRONIC to the URL that testdata/peers/ironic-up.sh prints")
	}
	admin, err := ironictest.New(address, "", "")
	must(t, err)
	conform(t, &peer{config: Config{URL: address}, admin: admin, masks: true, can: []string{"direct"}})
}

func TestConformanceOnARealIronicWithBasicAuth(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_IRONIC_BASIC")
	if address == "" {
		t.Skip("no real Ironic with http_basic: set MUSTER_PEER_IRONIC_BASIC to http://USER:PASSWORD@HOST:PORT")
	}
	plain, user, password := credentials(t, address)
	admin, err := ironictest.New(plain, user, password)
	must(t, err)
	conform(t, &peer{
		config: Config{URL: plain, Auth: AuthHTTPBasic, User: user, Password: password},
		admin:  admin, can: []string{"auth", "direct"}, masks: true,
	})
}

func TestConformanceOnARealIronicWithKeystone(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_IRONIC_KEYSTONE")
	if address == "" {
		t.Skip("no real Keystone: set MUSTER_PEER_IRONIC_KEYSTONE to http://USER:PASSWORD@HOST:PORT/v3, with an Ironic in its catalog and the project admin")
	}
	plain, user, password := credentials(t, address)
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: plain, Username: user, Password: password, DomainID: "default", TenantName: "admin", AllowReauth: true,
	})
	must(t, err)
	sc, err := openstack.NewBareMetalV1(provider, gophercloud.EndpointOpts{})
	must(t, err)
	conform(t, &peer{
		config: Config{Auth: AuthKeystone, User: user, Password: password, Keystone: Keystone{URL: plain, Project: "admin", Region: "RegionOne"}},
		admin:  ironictest.Of(sc), can: []string{"auth", "keystone", "direct"}, masks: true,
	})
}

func credentials(t *testing.T, address string) (plain, user, password string) {
	u, err := url.Parse(address)
	must(t, err)
	password, _ = u.User.Password()
	user, u.User = u.User.Username(), nil
	return u.String(), user, password
}

// conform runs the whole suite against one peer.
func conform(t *testing.T, p *peer) {
	for _, item := range []struct {
		name  string
		needs string
		run   func(*testing.T, *peer)
	}{
		{"a listing gives the facts of a node", "", conformListing},
		{"pages give what one page gives", "", conformPages},
		{"a node that is not there is gone", "", conformGone},
		{"the states of a life", "", conformLife},
		{"an instance is ours by its mark", "", conformMark},
		{"maintenance is ours or left alone", "", conformMaintenance},
		{"a failed clean is told from an operator's hold", "", conformCleanFailure},
		{"a lease moves from whom it is expected of", "", conformLessee},
		{"traits are added and removed one by one", "", conformTraits},
		{"power is settled when nothing is left to do", "", conformPower},
		{"a verb that the state forbids is a conflict", "", conformForbiddenVerb},
		{"a locked node is waited for", "", conformLock},
		{"older versions lose named facts", "", conformVersions},
		{"a node is made once", "", conformCreate},
		{"ports are made once and read", "", conformPorts},
		{"without a ramdisk there is no inventory", "", conformNoInventory},
		{"a node is deleted from any state of rest", "", conformDelete},
		{"a node in use or on hold is not deleted", "", conformUndeletable},
		{"an instance of ours is bound, deployed and cleared away", "", conformBind},
		{"a binding goes in one request", "", conformUnbind},
		{"a deployment that failed is not repeated", "direct", conformDeployFailed},
		{"wrong credentials are forbidden", "auth", conformCredentials},
		{"a dead token is replaced", "keystone", conformToken},
		{"an application credential is enough", "keystone", conformApplicationCredential},
	} {
		t.Run(item.name, func(t *testing.T) {
			t.Parallel()
			if item.needs != "" && !slices.Contains(p.can, item.needs) {
				t.Skipf("this peer has no %s", item.needs)
			}
			item.run(t, p)
		})
	}
}

func conformListing(t *testing.T, p *peer) {
	id := p.node(t, ironictest.Node{
		ResourceClass: "gold", Lessee: "enrol-project", Owner: "ops", Traits: []string{"CUSTOM_B", "CUSTOM_A"},
		Properties: map[string]any{"cpus": "64", "memory_mb": 1048576, "local_gb": nil, "serial_number": "SN-0815"},
		DriverInfo: map[string]any{"redfish_address": "https://192.0.2.10:8443/redfish", "redfish_password": "secret"},
	})
	before := time.Now()
	records, end := list(t, p.client(t))
	got, ok := records[id]
	if !ok {
		t.Fatalf("the listing of %d nodes lacks %s", len(records), id)
	}
	if len(end.Lost) != 0 || end.Dropped != 0 || end.At.Before(before) || got.At.Before(end.At) {
		t.Errorf("the end is %+v, the record's instant %s", end, got.At)
	}
	want := &facts.Ironic{
		Listed: facts.True, Name: facts.TextOf(got.Name), ProvisionState: facts.ProvisionStateEnroll, Maintenance: facts.False,
		InstanceBound: facts.False, OurMark: facts.False, Lessee: facts.TextOf("enrol-project"), Owner: facts.TextOf("ops"),
		ResourceClass: facts.TextOf("gold"), Driver: facts.TextOf("fake-hardware"), Reservation: facts.TextOf(""),
		BMCAddress: facts.TextOf("192.0.2.10"), Traits: []string{"CUSTOM_A", "CUSTOM_B"},
		Properties: map[string]any{"cpus": 64.0, "memory_mb": 1048576.0, "local_gb": nil, "serial_number": "SN-0815"},
	}
	equal(t, got.Ironic, want)
	if got.Serial != "SN-0815" || !strings.HasPrefix(got.Name, "conformance-") {
		t.Errorf("serial %q, name %q", got.Serial, got.Name)
	}
	alone, err := p.client(t).Get(t.Context(), id)
	must(t, err)
	equal(t, alone.Ironic, want)
}

func conformPages(t *testing.T, p *peer) {
	var ids []string
	for range 5 {
		ids = append(ids, p.node(t, ironictest.Node{}))
	}
	pages := 0
	seen := map[string]bool{}
	end, err := p.client(t, func(c *Config) { c.PageSize = 2 }).List(t.Context(), func(page []sources.Record) error {
		pages++
		for _, r := range page {
			seen[r.Ref] = true
		}
		return nil
	})
	must(t, err)
	if pages < 3 || end.Records != len(seen) {
		t.Errorf("%d pages, %d records, %d of them distinct", pages, end.Records, len(seen))
	}
	for _, id := range ids {
		if !seen[id] {
			t.Errorf("the pages lack %s", id)
		}
	}
}

func conformGone(t *testing.T, p *peer) {
	_, err := p.client(t).Get(t.Context(), "00000000-0000-4000-8000-ffffffffffff")
	if !errors.Is(err, sources.ErrGone) {
		t.Fatalf("the error is %v, not ErrGone", err)
	}
	wantKind(t, err, sources.KindMissing)
}

func conformVersions(t *testing.T, p *peer) {
	id := p.node(t, ironictest.Node{Lessee: "x", Owner: "y"})
	for minor, lost := range map[int][]string{64: {"lessee"}, 49: {"owner", "lessee"}, 41: {"fault", "owner", "lessee"}, 37: {"fault", "owner", "lessee"}} {
		c := p.client(t, func(c *Config) { c.Version = "1." + strconv.Itoa(minor) })
		records, end := list(t, c)
		f := records[id].Ironic
		if f == nil || !slices.Equal(end.Lost, lost) {
			t.Fatalf("1.%d: lost %v, not %v", minor, end.Lost, lost)
		}
		if f.Lessee.Known || f.Owner.Known != (minor >= 50) || len(f.Unreadable) > 0 || f.Traits == nil {
			t.Errorf("1.%d: facts %+v", minor, f)
		}
		_, err := c.SetLessee(t.Context(), id, "x", "z")
		wantKind(t, err, sources.KindRefused)
	}
}

func conformForbiddenVerb(t *testing.T, p *peer) {
	id := p.node(t, ironictest.Node{})
	_, err := p.client(t).SetProvision(t.Context(), id, nodes.ProvisionStateOpts{Target: nodes.TargetProvide})
	wantKind(t, err, sources.KindConflict)
	if !strings.Contains(err.Error(), "enroll") {
		t.Errorf("the error does not tell the state: %v", err)
	}
}
