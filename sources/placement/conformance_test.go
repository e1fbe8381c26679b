package placement

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// peer is one Placement that the suite runs against. admin makes what it needs,
// as Nova would.
type peer struct {
	config Config
	admin  *gophercloud.ServiceClient
	can    []string // what it has beyond a plain Placement: keystone
}

func (p *peer) client(t *testing.T, adjust ...func(*Config)) *Client {
	t.Helper()
	config := p.config
	config.Poll = 20 * time.Millisecond
	for _, a := range adjust {
		a(&config)
	}
	c, err := New(config, time.Now)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind sources.Kind) {
	t.Helper()
	if err == nil || sources.KindOf(err) != kind {
		t.Fatalf("the error is %v, its kind must be %s", err, kind)
	}
}

func newUUID() string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", rand.Uint32(), rand.Uint32()&0xffff, rand.Uint32()&0xfff, rand.Uint32()&0xfff, rand.Uint64()&0xffffffffffff)
}

// send makes one request of the administrator's.
func (p *peer) send(t *testing.T, method string, body any, path ...string) {
	t.Helper()
	_, err := p.admin.Request(context.WithoutCancel(t.Context()), method, p.admin.ServiceURL(path...), &gophercloud.RequestOpts{
		JSONBody: body, OkCodes: []int{200, 201, 204},
	})
	must(t, err)
}

// provider makes a provider with one of a class, such as Nova makes of a node,
// that lives as long as the test.
func (p *peer) provider(t *testing.T, within string) string {
	t.Helper()
	id := newUUID()
	body := map[string]any{"uuid": id, "name": id}
	if within != "" {
		body["parent_provider_uuid"] = within
	}
	p.send(t, http.MethodPut, nil, "resource_classes", "CUSTOM_GPU")
	p.send(t, http.MethodPost, body, "resource_providers")
	t.Cleanup(func() {
		c := p.client(t)
		ctx := context.WithoutCancel(t.Context())
		held, err := c.Allocations(ctx, id)
		if errors.Is(err, sources.ErrGone) {
			return
		}
		must(t, err)
		for _, h := range held {
			must(t, c.DeleteAllocations(ctx, h.Consumer))
		}
		must(t, c.DeleteProvider(ctx, id))
	})
	p.send(t, http.MethodPut, map[string]any{
		"resource_provider_generation": 0, "inventories": map[string]any{"CUSTOM_GPU": map[string]any{"total": 1}},
	}, "resource_providers", id, "inventories")
	return id
}

// allocate lets a new consumer hold a provider.
func (p *peer) allocate(t *testing.T, provider string) (consumer string) {
	t.Helper()
	consumer = newUUID()
	p.send(t, http.MethodPut, map[string]any{
		"allocations": map[string]any{provider: map[string]any{"resources": map[string]int{"CUSTOM_GPU": 1}}},
		"project_id":  "p", "user_id": "u", "consumer_generation": nil,
	}, "allocations", consumer)
	return consumer
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
			if r.At.Before(time.Unix(1, 0)) {
				t.Errorf("%s has no instant", r.Ref)
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

func wantAllocated(t *testing.T, records map[string]sources.Record, ref string, want facts.Bool) {
	t.Helper()
	r, ok := records[ref]
	if !ok || r.Placement == nil || *r.Placement != (facts.Placement{ProviderExists: facts.True, Allocated: want}) {
		t.Errorf("the record of %s is %+v (%+v), want allocated %v", ref, r, r.Placement, want)
	}
}

func TestConformanceOnTheStandIn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	conform(t, &peer{config: Config{URL: f.URL}, admin: administrator(f.URL)})
}

func administrator(address string) *gophercloud.ServiceClient {
	provider := &gophercloud.ProviderClient{TokenID: noKeystone}
	provider.UseTokenLock()
	return &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: gophercloud.NormalizeURL(address), Type: "placement", Microversion: version}
}

func TestConformanceOnARealPlacement(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_PLACEMENT")
	if address == "" {
		t.Skip("no real Placement: set MUSTER_PEER_PLACEMENT to the URL that testdata/peers/placement-up.sh prints")
	}
	conform(t, &peer{config: Config{URL: address}, admin: administrator(address)})
}

func TestConformanceOnARealPlacementWithKeystone(t *testing.T) {
	t.Parallel()
	address := os.Getenv("MUSTER_PEER_PLACEMENT_KEYSTONE")
	if address == "" {
		t.Skip("no real Keystone: set MUSTER_PEER_PLACEMENT_KEYSTONE to http://USER:PASSWORD@HOST:PORT/v3, with a Placement in its catalog and the project admin")
	}
	u, err := url.Parse(address)
	must(t, err)
	password, _ := u.User.Password()
	user := u.User.Username()
	u.User = nil
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: u.String(), Username: user, Password: password, DomainID: "default", TenantName: "admin", AllowReauth: true,
	})
	must(t, err)
	admin, err := openstack.NewPlacementV1(provider, gophercloud.EndpointOpts{})
	must(t, err)
	admin.Microversion = version
	conform(t, &peer{
		config: Config{Auth: keystone.AuthKeystone, User: user, Password: password, Keystone: keystone.Config{URL: u.String(), Project: "admin", Region: "RegionOne"}},
		admin:  admin, can: []string{"keystone"},
	})
}

// conform runs the whole suite against one peer.
func conform(t *testing.T, p *peer) {
	for _, item := range []struct {
		name  string
		needs string
		run   func(*testing.T, *peer)
	}{
		{"a listing tells who holds something", "", conformListing},
		{"an allocation comes and goes between listings", "", conformChange},
		{"a provider that is not there is gone", "", conformGone},
		{"the end of what a consumer holds", "", conformDeleteAllocations},
		{"the end of a provider", "", conformDeleteProvider},
		{"traits of a provider", "", conformTraits},
		{"wrong credentials are forbidden", "", conformCredentials},
		{"a dead token is replaced", "keystone", conformToken},
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
	free, taken := p.provider(t, ""), p.provider(t, "")
	child := p.provider(t, taken)
	p.allocate(t, taken)
	before := time.Now()
	c := p.client(t)
	records, end := list(t, c)
	wantAllocated(t, records, free, facts.False)
	wantAllocated(t, records, taken, facts.True)
	if _, listed := records[child]; listed {
		t.Error("a provider within another was listed")
	}
	if r := records[taken]; r.Name != taken || end.Dropped != 0 || end.At.Before(before) || r.At.Before(end.At) {
		t.Errorf("the end is %+v, the record %+v", end, r)
	}
	for ref, want := range map[string]facts.Bool{free: facts.False, taken: facts.True} {
		alone, err := c.Get(t.Context(), ref)
		must(t, err)
		wantAllocated(t, map[string]sources.Record{ref: *alone}, ref, want)
	}
}

// What is kept of a listing never hides what changed since.
func conformChange(t *testing.T, p *peer) {
	id := p.provider(t, "")
	c := p.client(t)
	expect := func(want facts.Bool) {
		t.Helper()
		records, _ := list(t, c)
		wantAllocated(t, records, id, want)
	}
	expect(facts.False)
	expect(facts.False)
	for range 2 {
		consumer := p.allocate(t, id)
		expect(facts.True)
		expect(facts.True)
		must(t, p.client(t).DeleteAllocations(t.Context(), consumer))
		expect(facts.False)
		expect(facts.False)
	}
	consumer := p.allocate(t, id) // and gone again before anybody looks
	must(t, p.client(t).DeleteAllocations(t.Context(), consumer))
	expect(facts.False)
	p.allocate(t, id)
	expect(facts.True)
}

const nowhere = "00000000-0000-4000-8000-ffffffffffff"

func conformGone(t *testing.T, p *peer) {
	c := p.client(t)
	for what, ask := range map[string]func() error{
		"a record":        func() error { _, err := c.Get(t.Context(), nowhere); return err },
		"a provider":      func() error { _, err := c.Provider(t.Context(), nowhere); return err },
		"its traits":      func() error { _, err := c.Traits(t.Context(), nowhere); return err },
		"its allocations": func() error { _, err := c.Allocations(t.Context(), nowhere); return err },
	} {
		if err := ask(); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
			t.Errorf("%s: %v is not ErrGone", what, err)
		}
	}
	if held, err := c.Held(t.Context(), nowhere); err != nil || len(held) != 0 {
		t.Errorf("an unknown consumer holds %v, %v", held, err)
	}
}

func conformDeleteAllocations(t *testing.T, p *peer) {
	a, b := p.provider(t, ""), p.provider(t, "")
	mine, other := p.allocate(t, a), p.allocate(t, b)
	c := p.client(t)
	held, err := c.Held(t.Context(), mine)
	must(t, err)
	if len(held) != 1 || held[0].Provider != a || held[0].Consumer != mine || held[0].Resources["CUSTOM_GPU"] != 1 {
		t.Errorf("the consumer holds %+v", held)
	}
	for range 2 { // again: nothing held is success
		must(t, c.DeleteAllocations(t.Context(), mine))
	}
	if held, err := c.Allocations(t.Context(), a); err != nil || len(held) != 0 {
		t.Errorf("after the end %v, %v", held, err)
	}
	if held, err := c.Allocations(t.Context(), b); err != nil || len(held) != 1 || held[0].Consumer != other {
		t.Errorf("another's are %v, %v", held, err)
	}
}

func conformDeleteProvider(t *testing.T, p *peer) {
	id := p.provider(t, "")
	consumer := p.allocate(t, id)
	c := p.client(t)
	err := c.DeleteProvider(t.Context(), id)
	wantKind(t, err, sources.KindConflict)
	if !strings.Contains(err.Error(), consumer) {
		t.Errorf("the refusal does not name the consumer: %v", err)
	}
	if shown, err := c.Provider(t.Context(), id); err != nil || shown.UUID != id || shown.Root != id || shown.Generation < 2 {
		t.Errorf("after the refusal %+v, %v", shown, err)
	}
	must(t, c.DeleteAllocations(t.Context(), consumer))
	for range 2 { // again: gone is success
		must(t, c.DeleteProvider(t.Context(), id))
	}
	if _, err := c.Get(t.Context(), id); !errors.Is(err, sources.ErrGone) {
		t.Errorf("after the end: %v", err)
	}
}

func conformTraits(t *testing.T, p *peer) {
	id := p.provider(t, "")
	c := p.client(t)
	if traits, err := c.Traits(t.Context(), id); err != nil || len(traits) != 0 {
		t.Errorf("at first %v, %v", traits, err)
	}
	p.send(t, http.MethodPut, nil, "traits", "CUSTOM_READY")
	p.send(t, http.MethodPut, map[string]any{"resource_provider_generation": 1, "traits": []string{"CUSTOM_READY"}}, "resource_providers", id, "traits")
	if traits, err := c.Traits(t.Context(), id); err != nil || !slices.Equal(traits, []string{"CUSTOM_READY"}) {
		t.Errorf("then %v, %v", traits, err)
	}
}

func conformCredentials(t *testing.T, p *peer) {
	c := p.client(t, func(c *Config) { c.Password = "wrong" })
	if !slices.Contains(p.can, "keystone") {
		sc, err := c.api.Connected(t.Context())
		must(t, err)
		sc.SetToken("")
	}
	_, err := c.List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindForbidden)
	if errors.Is(err, sources.ErrGone) || !strings.Contains(err.Error(), "check the") {
		t.Errorf("the refusal says %v", err)
	}
}

func conformToken(t *testing.T, p *peer) {
	c := p.client(t)
	list(t, c)
	sc, err := c.api.Connected(t.Context())
	must(t, err)
	sc.SetToken("not-a-token")
	list(t, c)
	if sc.Token() == "not-a-token" {
		t.Error("the token was not replaced")
	}
}
