package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/ports"

	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// emptyNova stands in for a Nova without servers, which may refuse to say so.
type emptyNova struct {
	*httptest.Server
	closed atomic.Bool
}

func startNova(t *testing.T) *emptyNova {
	n := &emptyNova{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case n.closed.Load():
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:detail to be performed."}}`)
		case strings.HasSuffix(r.URL.Path, "/servers/detail"):
			_, _ = fmt.Fprint(w, `{"servers": []}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"itemNotFound": {"code": 404, "message": "Instance could not be found."}}`)
		}
	}))
	t.Cleanup(n.Close)
	return n
}

// letting is a node at a site with Keystone and Placement. Nova is a stand-in.
type letting struct {
	*world
	placement *realPlacement
	nova      *emptyNova
	name, id  string
}

// A node that others made is enrolled, and let go only when nobody holds it, by
// Ironic, Nova and Placement: its resource provider goes with it.
func TestANodeIsLetGoOnlyWhenPlacementLetsIt(t *testing.T) {
	t.Parallel()
	binary := buildWorking(t)
	l := &letting{placement: findPlacement(t), nova: startNova(t), name: "ams6-n1"}
	l.create(t)
	l.world = &world{muster: newMuster(t, binary, l.siteFile(t))}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it is enrolled", l.enrolled},
		{"Nova refuses to say", l.unanswered},
		{"Placement has an allocation", l.held},
		{"nobody holds it", l.free},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (l *letting) create(t *testing.T) {
	t.Helper()
	var err error
	l.id, err = l.placement.ironic.CreateNode(t.Context(), ironictest.Node{
		Name: l.name, ResourceClass: "baremetal", Properties: map[string]any{"cpus": 8, "cpu_arch": "x86_64", "memory_mb": 16384},
		DriverInfo: map[string]any{"redfish_address": "https://192.0.2.9"}, // nobody dials it
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ports.Create(t.Context(), l.placement.bare, ports.CreateOpts{NodeUUID: l.id, Address: "02:aa:00:00:01:06"}).Extract(); err != nil {
		t.Fatal(err)
	}
}

func (l *letting) siteFile(t *testing.T) string {
	t.Helper()
	p := l.placement
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "password"), filepath.Join(dir, "site.cue")
	text := fmt.Sprintf(`name: "ams6"
engagement_mode:      "fully_managed"
inventory:            "ironic"
trait_based:          true
placement_enabled:    true
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	ironic: {auth: "keystone", username: %q, password: %q, keystone: {url: %q, project: "admin", region: "RegionOne"}, interval: "1s", timeout: "15s"}
	nova: {url: %q, auth: "none"}
}
enrolment: {bmc: false, node: {driver: "fake-hardware"}}
`, customerTrait, enrolProject, slurmProject, p.user, "file:"+secret, p.keystone, l.nova.URL)
	for name, text := range map[string]string{secret: p.password, file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// has checks what Ironic and Placement themselves say.
func (l *letting) has(t *testing.T, node, provider bool) *nodes.Node {
	t.Helper()
	n, err := nodes.Get(t.Context(), l.placement.bare, l.id).Extract()
	if gone := gophercloud.ResponseCodeIs(err, http.StatusNotFound); gone == node || err != nil && !gone {
		t.Fatalf("Ironic has the node: want %v; it says %v", node, err)
	}
	_, err = l.placement.sc.Request(t.Context(), http.MethodGet, l.placement.sc.ServiceURL("resource_providers", l.id), &gophercloud.RequestOpts{OkCodes: []int{200}})
	if gone := gophercloud.ResponseCodeIs(err, http.StatusNotFound); gone == provider || err != nil && !gone {
		t.Fatalf("Placement has the provider: want %v; it says %v", provider, err)
	}
	return n
}

func (l *letting) enrolled(t *testing.T) {
	l.expect(t, l.name, notEnrolled)
	l.does(t, "enrollment", l.name)
	if n := l.has(t, true, false); n.ProvisionState != "available" || n.Lessee != enrolProject {
		t.Errorf("the node is %s, leased to %q", n.ProvisionState, n.Lessee)
	}
	l.expect(t, l.name, unleased)
	l.expectHistory(t, l.name, unleased)
}

func (l *letting) unanswered(t *testing.T) {
	l.nova.closed.Store(true)
	l.ends(t, l.submit(t, "node_unenrollment", l.name), "failed", "NOVA_UNAVAILABLE")
	l.nova.closed.Store(false)
	l.has(t, true, false)
}

func (l *letting) held(t *testing.T) {
	if err := l.placement.publish(l.id); err != nil {
		t.Fatal(err)
	}
	hold := map[string]any{
		"allocations": map[string]any{l.id: map[string]any{"resources": map[string]int{"CUSTOM_GPU": 1}}},
		"project_id":  "p", "user_id": "u", "consumer_generation": nil,
	}
	if err := l.placement.send(http.MethodPut, hold, "allocations", instance(9)); err != nil {
		t.Fatal(err)
	}
	if message := l.ends(t, l.submit(t, "node_unenrollment", l.name), "failed", "UNENROLLMENT_PROVIDER_IN_USE"); !strings.Contains(message, instance(9)) {
		t.Errorf("the failure says %s", message)
	}
	l.has(t, true, true)
	if err := l.placement.send(http.MethodDelete, nil, "allocations", instance(9)); err != nil {
		t.Fatal(err)
	}
}

func (l *letting) free(t *testing.T) {
	l.does(t, "node_unenrollment", l.name)
	l.has(t, false, false)
	l.expect(t, l.name, gone)
	l.expectHistory(t, l.name, gone)
}
