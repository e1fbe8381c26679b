package ironic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// newcomer is a node that no peer has yet.
func (p *peer) newcomer(t *testing.T) NewNode {
	n := serialNumber.Add(1)
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", n, uint64(time.Now().UnixNano())&0xffffffffffff)
	t.Cleanup(func() {
		if err := p.admin.DeleteNode(context.WithoutCancel(t.Context()), id); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return NewNode{
		UUID: id, Name: fmt.Sprintf("newcomer-%x-%d", time.Now().UnixNano(), n), Driver: "fake-hardware", ResourceClass: "gold", Lessee: "enrol",
		Interfaces: map[string]string{"deploy_interface": "fake", "storage_interface": "noop"},
		DriverInfo: map[string]any{"redfish_address": "https://192.0.2.10", "redfish_password": "tops3cret"},
		Properties: map[string]any{"cpu_arch": "aarch64", "cpus": 144}, Extra: map[string]any{"rack": "r1"},
	}
}

func mac(t *testing.T) string {
	t.Helper()
	n := uint64(time.Now().UnixNano()) + uint64(serialNumber.Add(1))<<24
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func conformCreate(t *testing.T, p *peer) {
	n, c := p.newcomer(t), p.client(t)
	for range 2 { // the second time it is there
		r, err := c.Create(t.Context(), n)
		must(t, err)
		f := r.Ironic
		if r.Ref != n.UUID || r.Name != n.Name || f.ProvisionState != facts.ProvisionStateEnroll || f.Lessee != facts.TextOf("enrol") || f.ResourceClass != facts.TextOf("gold") {
			t.Fatalf("%+v %+v", r, f)
		}
	}
	d, err := c.Details(t.Context(), n.UUID)
	must(t, err)
	if d.Driver != n.Driver || d.Interfaces["deploy_interface"] != "fake" || d.DriverInfo["redfish_address"] != "https://192.0.2.10" ||
		d.Properties["cpus"] != 144.0 || d.Extra["rack"] != "r1" {
		t.Errorf("%+v", d)
	}
	if p.masks && strings.Contains(fmt.Sprint(d), "tops3cret") {
		t.Error("the password is shown")
	}
	found, err := c.Find(t.Context(), n.Name)
	must(t, err)
	if found.Ref != n.UUID {
		t.Errorf("found %+v", found)
	}
	for what, other := range map[string]func(*NewNode){
		"the uuid of another": func(o *NewNode) { o.Name = "another-" + n.Name },
		"the name of another": func(o *NewNode) { o.UUID = "ffffffff-0000-4000-8000-000000000001" },
	} {
		o := n
		other(&o)
		if _, err := c.Create(t.Context(), o); err == nil || sources.KindOf(err) != sources.KindConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"nobody-" + n.Name, n.UUID} {
		if _, err := c.Find(t.Context(), name); !errors.Is(err, sources.ErrGone) {
			t.Errorf("%s is found: %v", name, err)
		}
	}
	_, err = c.Details(t.Context(), "00000000-0000-4000-8000-ffffffffffff")
	if !errors.Is(err, sources.ErrGone) {
		t.Errorf("details of none: %v", err)
	}
}

func conformPorts(t *testing.T, p *peer) {
	id, other, c := p.node(t, ironictest.Node{}), p.node(t, ironictest.Node{}), p.client(t)
	first, second := mac(t), mac(t)
	for range 2 {
		must(t, c.AddPort(t.Context(), id, NewPort{MAC: strings.ToUpper(first), PXE: true}))
		must(t, c.AddPort(t.Context(), id, NewPort{MAC: second, LocalLink: map[string]string{"switch_id": "aa:bb:cc:dd:ee:ff", "port_id": "Ethernet1/1", "switch_info": "leaf-1"}}))
	}
	wantKind(t, c.AddPort(t.Context(), other, NewPort{MAC: first}), sources.KindConflict)
	wantKind(t, c.AddPort(t.Context(), id, NewPort{MAC: "nonsense"}), sources.KindRefused)
	ports, err := c.Ports(t.Context(), id)
	must(t, err)
	byMAC := map[string]Port{}
	for _, port := range ports {
		byMAC[port.MAC] = port
	}
	if len(ports) != 2 || !byMAC[first].PXE || byMAC[second].PXE || byMAC[second].LocalLink["port_id"] != "Ethernet1/1" || byMAC[first].LocalLink != nil {
		t.Errorf("%+v", ports)
	}
	if ports, err := c.Ports(t.Context(), other); err != nil || len(ports) != 0 {
		t.Errorf("the other node: %+v %v", ports, err)
	}
	if _, err := c.Ports(t.Context(), "00000000-0000-4000-8000-ffffffffffff"); !errors.Is(err, sources.ErrGone) {
		t.Errorf("the ports of no node: %v", err)
	}
}

func conformNoInventory(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	must(t, p.admin.Manage(t.Context(), id))
	d, err := c.Details(t.Context(), id)
	if err != nil || !d.Inspected.IsZero() {
		t.Errorf("before it: %+v %v", d, err)
	}
	_, err = c.Provision(t.Context(), id, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}, patience)
	must(t, err)
	if d, err = c.Details(t.Context(), id); err != nil || d.Inspected.IsZero() {
		t.Errorf("after it: %+v %v", d, err)
	}
	for _, version := range []string{"", "1.80"} {
		c := p.client(t, func(c *Config) { c.Version = version })
		if in, err := c.Inventory(t.Context(), id); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
			t.Errorf("%q: %+v %v", version, in, err)
		}
	}
}

func conformDelete(t *testing.T, p *peer) {
	c := p.client(t)
	for name, prepare := range map[string]func(id string) error{
		"enroll":     func(string) error { return nil },
		"manageable": func(id string) error { return p.admin.Manage(t.Context(), id) },
		"available":  func(id string) error { return p.admin.Enroll(t.Context(), id) },
		"clean failed": func(id string) error {
			return errors.Join(p.admin.Manage(t.Context(), id), p.admin.FailCleaning(t.Context(), id))
		},
		"active, unbound": func(id string) error {
			return errors.Join(p.admin.Enroll(t.Context(), id), p.admin.Verb(t.Context(), id, nodes.ProvisionStateOpts{Target: nodes.TargetActive}), p.admin.Wait(t.Context(), id, "active"))
		},
	} {
		id := p.node(t, ironictest.Node{})
		if err := prepare(id); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // the second time it is gone
			if err := c.Delete(t.Context(), id, "muster:7"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.Get(t.Context(), id); !errors.Is(err, sources.ErrGone) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
	}
}

func conformUndeletable(t *testing.T, p *peer) {
	c, bound, held := p.client(t), p.node(t, ironictest.Node{}), p.node(t, ironictest.Node{})
	must(t, p.admin.Enroll(t.Context(), bound))
	must(t, p.admin.Set(t.Context(), bound, "/instance_uuid", p.instance()))
	err := c.Delete(t.Context(), bound, "muster:7")
	wantKind(t, err, sources.KindConflict)
	must(t, p.admin.Hold(t.Context(), held, "do not touch"))
	wantForeign(t, c.Delete(t.Context(), held, "muster:7"))
	wantForeign(t, c.Delete(t.Context(), held, "muster:70"))
	for id, maintenance := range map[string]facts.Bool{bound: facts.False, held: facts.True} {
		r, err := c.Get(t.Context(), id)
		must(t, err)
		if r.Ironic.Maintenance != maintenance {
			t.Errorf("%+v", r.Ironic)
		}
	}
	must(t, p.admin.Unhold(t.Context(), held))
	must(t, errOf(c.SetMaintenance(t.Context(), held, "muster:7", "")))
	must(t, c.Delete(t.Context(), held, "muster:7"))
}

// instance gives a uuid that no node is bound to.
func (p *peer) instance() string {
	return fmt.Sprintf("1%07x-2222-4333-8444-%012x", serialNumber.Add(1), uint64(time.Now().UnixNano())&0xffffffffffff)
}

func conformBind(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	d := Deployment{Job: "7", Instance: p.instance(), Source: "http://images.example/os.raw", Checksum: "d41d8cd98f00b204e9800998ecf8427e", RootGB: 10, Keys: []string{"ssh-ed25519 AAAA me"}}
	_, err := c.Bind(t.Context(), id, d)
	wantKind(t, err, sources.KindConflict) // enroll
	must(t, p.admin.Enroll(t.Context(), id))
	_, err = c.Deploy(t.Context(), id, d)
	wantKind(t, err, sources.KindConflict) // not bound
	for range 2 {
		r, err := c.Bind(t.Context(), id, d)
		must(t, err)
		if f := r.Ironic; f.OurMark != facts.True || f.InstanceUUID != facts.TextOf(d.Instance) || f.ProvisionState != facts.ProvisionStateAvailable {
			t.Fatalf("%+v", f)
		}
	}
	info, err := c.Details(t.Context(), id)
	must(t, err)
	if info.InstanceInfo["image_source"] != d.Source || info.InstanceInfo["root_gb"] != 10.0 {
		t.Errorf("%+v", info.InstanceInfo)
	}
	for what, other := range map[string]Deployment{
		"another instance": {Job: "7", Instance: p.instance(), Source: "x"},
		"another job":      {Job: "8", Instance: d.Instance, Source: "x"},
	} {
		if _, err := c.Bind(t.Context(), id, other); err == nil || sources.KindOf(err) != sources.KindConflict {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := c.Deploy(t.Context(), id, other); err == nil || sources.KindOf(err) != sources.KindConflict {
			t.Errorf("%s is deployed: %v", what, err)
		}
	}
	for range 2 {
		must(t, errOf(c.Deploy(t.Context(), id, d)))
		r, err := c.Settle(t.Context(), id, patience)
		must(t, err)
		if r.Ironic.ProvisionState != facts.ProvisionStateActive || r.Ironic.OurMark != facts.True {
			t.Fatalf("%+v", r.Ironic)
		}
	}
	must(t, errOf(c.Bind(t.Context(), id, d)))
	_, err = c.Unbind(t.Context(), id, d.Instance)
	wantKind(t, err, sources.KindConflict) // active
	tornDown(t, p, c, id, d)
}

// tornDown: Ironic's tear-down clears the instance and its image and leaves our
// mark, which Unbind removes.
func tornDown(t *testing.T, p *peer, c *Client, id string, d Deployment) {
	t.Helper()
	_, err := c.Undeploy(t.Context(), id, p.instance())
	wantKind(t, err, sources.KindConflict)
	for range 2 {
		must(t, errOf(c.Undeploy(t.Context(), id, d.Instance)))
		r, err := c.Settle(t.Context(), id, patience)
		must(t, err)
		if r.Ironic.ProvisionState != facts.ProvisionStateAvailable || r.Ironic.InstanceBound != facts.False {
			t.Fatalf("%+v", r.Ironic)
		}
	}
	info, err := c.Details(t.Context(), id)
	must(t, err)
	if len(info.InstanceInfo) != 0 || info.Extra["muster"] != Mark(d.Job, d.Instance) {
		t.Errorf("the tear-down left %+v, extra %+v", info.InstanceInfo, info.Extra)
	}
	for range 2 {
		r, err := c.Unbind(t.Context(), id, d.Instance)
		must(t, err)
		if r.Ironic.InstanceBound != facts.False || r.Ironic.OurMark != facts.False {
			t.Fatalf("%+v", r.Ironic)
		}
	}
	if info, err = c.Details(t.Context(), id); err != nil || info.Extra["muster"] != nil {
		t.Errorf("%+v %v", info.Extra, err)
	}
}

// A binding that never was deployed goes in one request, somebody else's stays.
func conformUnbind(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{Extra: map[string]any{"rack": "r1"}}), p.client(t)
	d := Deployment{Job: "7", Instance: p.instance(), Source: "http://images.example/os.raw"}
	must(t, p.admin.Enroll(t.Context(), id))
	must(t, errOf(c.Bind(t.Context(), id, d)))
	for _, other := range []string{"", p.instance()} {
		_, err := c.Unbind(t.Context(), id, other)
		wantKind(t, err, sources.KindConflict)
	}
	must(t, errOf(c.Unbind(t.Context(), id, d.Instance)))
	info, err := c.Details(t.Context(), id)
	must(t, err)
	if len(info.InstanceInfo) != 0 || info.Extra["muster"] != nil || info.Extra["rack"] != "r1" {
		t.Errorf("%+v", info)
	}
	must(t, errOf(c.Unbind(t.Context(), id, "")))
	must(t, p.admin.Hold(t.Context(), id, "do not touch"))
	_, err = c.Bind(t.Context(), id, d)
	wantKind(t, err, sources.KindConflict)
}

// A deployment that failed is not repeated, and is cleared away by a tear-down.
func conformDeployFailed(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	d := Deployment{Job: "7", Instance: p.instance(), Source: "http://127.0.0.1:1/os.raw", Checksum: "d41d8cd98f00b204e9800998ecf8427e", RootGB: 10}
	must(t, p.admin.Enroll(t.Context(), id))
	must(t, p.admin.Set(t.Context(), id, "/deploy_interface", "direct"))
	must(t, errOf(c.Bind(t.Context(), id, d)))
	must(t, errOf(c.Deploy(t.Context(), id, d)))
	r, err := c.Settle(t.Context(), id, patience)
	must(t, err)
	if r.Ironic.ProvisionState != facts.ProvisionStateDeployFailed || r.Ironic.OurMark != facts.True {
		t.Fatalf("%+v", r.Ironic)
	}
	_, err = c.Deploy(t.Context(), id, d)
	wantKind(t, err, sources.KindConflict)
	if !strings.Contains(err.Error(), "last error") {
		t.Errorf("%v", err)
	}
	_, err = c.Unbind(t.Context(), id, d.Instance)
	wantKind(t, err, sources.KindConflict)
	must(t, p.admin.Set(t.Context(), id, "/automated_clean", false)) // its clean needs a ramdisk
	tornDown(t, p, c, id, d)
}
