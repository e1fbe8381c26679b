package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// realPlacement is a Placement, and an Ironic beside it, in the catalog of a
// Keystone.
type realPlacement struct {
	keystone, user, password string
	ironic                   *ironictest.Ironic
	bare                     *gophercloud.ServiceClient // of that Ironic
	sc                       *gophercloud.ServiceClient // of Placement
}

func findPlacement(t *testing.T) *realPlacement {
	t.Helper()
	address := os.Getenv("MUSTER_PEER_PLACEMENT_KEYSTONE")
	if address == "" {
		t.Skip("no real Placement with Keystone and Ironic: set MUSTER_PEER_PLACEMENT_KEYSTONE, or run `make test-peers`")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &realPlacement{user: u.User.Username()}
	p.password, _ = u.User.Password()
	u.User = nil
	p.keystone = u.String()
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: p.keystone, Username: p.user, Password: p.password, DomainID: "default", TenantName: "admin", AllowReauth: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	node, err := openstack.NewBareMetalV1(provider, gophercloud.EndpointOpts{})
	if err != nil {
		t.Fatal(err)
	}
	if p.sc, err = openstack.NewPlacementV1(provider, gophercloud.EndpointOpts{}); err != nil {
		t.Fatal(err)
	}
	p.sc.Microversion = "1.28"
	node.Microversion = "1.82"
	p.bare, p.ironic = node, ironictest.Of(node)
	return p
}

func (p *realPlacement) send(method string, body any, path ...string) error {
	_, err := p.sc.Request(context.Background(), method, p.sc.ServiceURL(path...), &gophercloud.RequestOpts{JSONBody: body, OkCodes: []int{200, 201, 204}})
	return err
}

// publish makes the provider of a node, as nova-compute does.
func (p *realPlacement) publish(id string) error {
	if err := p.send(http.MethodPut, nil, "resource_classes", "CUSTOM_GPU"); err != nil {
		return err
	}
	if err := p.send(http.MethodPost, map[string]any{"uuid": id, "name": id}, "resource_providers"); err != nil {
		return err
	}
	return p.send(http.MethodPut, map[string]any{
		"resource_provider_generation": 0, "inventories": map[string]any{"CUSTOM_GPU": map[string]any{"total": 1}},
	}, "resource_providers", id, "inventories")
}

func (p *realPlacement) siteFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "password"), filepath.Join(dir, "site.cue")
	text := fmt.Sprintf(`name: "ams2"
engagement_mode:      "fully_managed"
inventory:            "ironic"
trait_based:          true
placement_enabled:    true
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: ironic: {auth: "keystone", username: %q, password: %q, keystone: {url: %q, project: "admin", region: "RegionOne"}, interval: "1s", timeout: "15s"}
`, customerTrait, enrolProject, slurmProject, p.user, "file:"+secret, p.keystone)
	for name, text := range map[string]string{secret: p.password, file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// An instance that Placement knows of and Ironic does not yet, or not any more,
// keeps a node from being offered.
func TestAnAllocationKeepsANodeFromBeingOffered(t *testing.T) {
	t.Parallel()
	p := findPlacement(t)
	ctx := t.Context()
	id, err := p.ironic.CreateNode(ctx, ironictest.Node{Name: "ams2-n1", ResourceClass: "gpu", Lessee: enrolProject, Traits: []string{customerTrait}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.ironic.DeleteNode(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	if err := p.ironic.Enroll(ctx, id); err != nil {
		t.Fatal(err)
	}
	w := &world{muster: newMuster(t, build(t), p.siteFile(t))}
	consumer := instance(7)
	hold := map[string]any{
		"allocations": map[string]any{id: map[string]any{"resources": map[string]int{"CUSTOM_GPU": 1}}},
		"project_id":  "p", "user_id": "u", "consumer_generation": nil,
	}
	known := func(t *testing.T, wanted bool) {
		t.Helper()
		w.until(t, "Placement's word of the provider", func() error {
			out := w.cli(t, "explain", "device", "ams2-n1")
			if strings.Contains(out, "source placement: knows it as "+id) != wanted {
				return fmt.Errorf("the trace says\n%s", out)
			}
			return nil
		})
	}
	for _, step := range []struct {
		name string
		do   func(t *testing.T) error
		want want
	}{
		{"a node without a provider", func(_ *testing.T) error { return nil }, available},
		{"Nova publishes it", func(t *testing.T) error { err := p.publish(id); known(t, true); return err }, available},
		{"Nova allocates it", func(_ *testing.T) error { return p.send(http.MethodPut, hold, "allocations", consumer) }, inUse},
		{"the instance is bound too", func(_ *testing.T) error { return p.ironic.Deploy(ctx, id, consumer, "") }, inUse},
		{"Ironic has let it go, Placement not yet", func(_ *testing.T) error { return p.ironic.Undeploy(ctx, id) }, inUse},
		{"Placement has let it go", func(_ *testing.T) error { return p.send(http.MethodDelete, nil, "allocations", consumer) }, available},
		{"the provider is taken away", func(t *testing.T) error {
			err := p.send(http.MethodDelete, nil, "resource_providers", id)
			known(t, false)
			return err
		}, available},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			if err := step.do(t); err != nil {
				t.Fatal(err)
			}
			w.expect(t, "ams2-n1", step.want)
		}) {
			return
		}
	}
	t.Log(w.cli(t, "explain", "device", "ams2-n1"))
	t.Log(w.cli(t, "source", "show", "ams2", "placement"))
}
