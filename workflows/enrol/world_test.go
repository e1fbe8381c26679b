package enrol

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/dhcp"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/placement"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/topology"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shipped is the product's own bundle.
var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

const (
	hostMAC  = "aa:00:00:00:00:01"
	bmcMAC1  = "aa:00:00:00:00:b0"
	address  = "192.0.2.10"
	factory  = "factory"
	password = "c4n4ry-0wn" // what the credentials service gives
	other1   = "00000000-0000-4000-8000-00000000000f"
)

// spec is a site that has everything.
func spec() fleet.SiteSpec {
	s := acttest.Lab()
	s.Inventory, s.PlacementEnabled = facts.InventorySourceNetbox, true
	s.NetBox = &fleet.NetBoxSites{Instance: "nb", Sites: []string{"lab"}}
	at := fleet.Endpoint{URL: "http://127.0.0.1:1"}
	s.Sources = fleet.Sources{
		Ironic: &fleet.IronicSource{OpenStackSource: fleet.OpenStackSource{Endpoint: at}}, NetBox: &fleet.NetBoxSource{Endpoint: at},
		BMC:  &fleet.BMCSource{Credentials: []fleet.BMCCredential{{Match: "*", Ref: redfish.RefStore}, {Match: "*", Ref: "file:factory"}}},
		DHCP: &fleet.Service{Endpoint: at}, Credentials: &fleet.Service{Endpoint: at}, Topology: &fleet.Service{Endpoint: at},
	}
	s.Enrolment = fleet.Enrolment{DHCP: true, BMC: true, Ironic: true, Node: &fleet.NodeTemplate{
		Driver: "redfish", DriverInfo: map[string]any{"redfish_address": "https://{bmc.address}", "redfish_username": "{bmc.user}", "redfish_password": "{bmc.password}"}, Ports: "eth*",
	}}
	return s
}

// world is the systems of a site around one machine. Whatever they are asked to
// change is noted; a call that the test wants to fail fails once.
type world struct {
	mu     sync.Mutex
	t      *testing.T
	site   *act.Site
	id     int64
	calls  []string // every one
	did    []string // what changed something
	walk   *acttest.Walk
	before func(*acttest.Walk) // a run

	meanwhile map[string]func() // what happens elsewhere while a call is made
	lostReset error             // what a reset of the BMC answers after it was done
	noReset   bool              // the account may log in and may not reset
	failAt    int               // the call that fails, from 1
	fault     fault

	status string
	tags   []string

	uuid      string // "" no node
	node      facts.Ironic
	info      map[string]any
	macs      []string
	looked    time.Time                                           // when an inspection ended
	away      int                                                 // how many readings of the node fail
	inspects  map[nodes.TargetProvisionState]facts.ProvisionState // where a verb leads, in place of its goal
	inventory *ironic.Inventory

	reserved dhcp.Reservation
	stored   bool   // a credential of the device
	lets     string // password that the BMC takes
	intents  []topology.Intent
	servers  []nova.Server
	held     []placement.Allocation
	provider bool
}

// fault is how a call fails: before it did anything, or its answer is lost.
type fault struct {
	kind  sources.Kind
	after bool
}

// lab is a database with one site, for many worlds.
func lab(t *testing.T, spec fleet.SiteSpec) *act.Site {
	t.Helper()
	bundle, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return acttest.Site(t, pgtest.Template(t, "bundled", acttest.Database(bundle)), spec, nil, bundle)
}

// newWorld is a site around a racked machine that nobody has set up.
func newWorld(t *testing.T, lab *act.Site, name string) *world {
	t.Helper()
	w := &world{
		t: t, status: "staged", tags: []string{"gpu"}, lets: factory,
		inventory: &ironic.Inventory{CPUs: 144, CPUArch: "aarch64", MemoryMB: 983_040, NICs: []ironic.NIC{{Name: "eth0", MAC: hostMAC}}},
	}
	s := *lab
	s.Clients = acttest.Clients{
		"ironic": &fakeIronic{w}, "netbox": &fakeNetBox{w}, "bmc": &fakeBMC{w}, "dhcp": &fakeDHCP{w}, "credentials": &fakeStore{w},
		"topology": &fakeTopology{w}, "nova": &fakeNova{w}, "placement": &fakePlacement{w},
	}
	w.site = &s
	w.id = acttest.Device(t, w.site, name, facts.OperationalStatusUnknown, "")
	w.exec(`update devices set resource_class = 'gb200', bmc_address = $2, serial = 's1' where id = $1`, w.id, address)
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at) values ($1, 'netbox', $2, $3, '\x00', '{}', now())`, w.id, w.site.ID, fmt.Sprint(100+w.id))
	return w
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.site.DB.Exec(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
}

// device reads the row.
func (w *world) device() fleet.Device {
	w.t.Helper()
	d, err := w.site.Device(w.t.Context(), w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// run runs a whole workflow on the world's machine.
func (w *world) run(do act.Workflow, parameters map[string]any) error {
	w.t.Helper()
	return w.runAs(do, 7, parameters)
}

func (w *world) runAs(do act.Workflow, job int64, parameters map[string]any) error {
	w.t.Helper()
	walk := acttest.NewWalk(parameters)
	walk.Unit.Job, walk.Unit.Device, walk.Unit.Name = job, w.id, w.device().Name
	w.walk = walk
	for name, activity := range Family().Activities(w.site) {
		walk.Act(name, activity)
	}
	if w.before != nil {
		w.before(walk)
	}
	return walk.Go(w.t, do)
}

// phases are what people saw of the last run.
func (w *world) phases() []string { return w.walk.Lines() }

// call notes a call and fails it as the test wants; change is what it does.
func (w *world) call(name string, change func() (string, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, name)
	if happens := w.meanwhile[name]; happens != nil {
		happens()
	}
	f, fails := w.fault, len(w.calls) == w.failAt
	if fails && !f.after {
		return f.error(name)
	}
	if change != nil {
		did, err := change()
		if err != nil {
			return err
		}
		if did != "" {
			w.did = append(w.did, did)
		}
	}
	if fails {
		return f.error(name)
	}
	return nil
}

func (f fault) error(name string) error {
	return &sources.Error{Kind: f.kind, Op: name, Message: "as the test wants"}
}

func conflict(format string, args ...any) error {
	return &sources.Error{Kind: sources.KindConflict, Op: "test", Message: fmt.Sprintf(format, args...)}
}

var errGone = &sources.Error{Kind: sources.KindMissing, Op: "test", Message: "none", Err: sources.ErrGone}

// fakeIronic is an Ironic of one node at the most.
type fakeIronic struct{ *world }

func (f *fakeIronic) record() *sources.Record {
	n := f.node
	n.Traits, n.Properties = slices.Clone(n.Traits), maps.Clone(n.Properties)
	return &sources.Record{Ref: f.uuid, Name: n.Name.Value, Ironic: &n}
}

func (f *fakeIronic) read(name string, is func() bool) (r *sources.Record, err error) {
	err = f.call(name, func() (string, error) {
		if !is() {
			return "", errGone
		}
		r = f.record()
		return "", nil
	})
	return r, err
}

func (f *fakeIronic) Get(_ context.Context, ref string) (*sources.Record, error) {
	if f.away > 0 {
		f.away--
		f.node.ProvisionState = facts.ProvisionStateManageable
		return nil, fault{kind: sources.KindTransient}.error("ironic get")
	}
	return f.read("ironic get", func() bool { return f.uuid != "" && ref == f.uuid })
}

func (f *fakeIronic) Find(_ context.Context, name string) (*sources.Record, error) {
	return f.read("ironic find", func() bool { return f.uuid != "" && name == f.node.Name.Value })
}

func (f *fakeIronic) Create(_ context.Context, n ironic.NewNode) (r *sources.Record, err error) {
	err = f.call("ironic create", func() (string, error) {
		if f.uuid != "" && f.uuid != n.UUID {
			return "", conflict("the name is that of the node %s", f.uuid)
		}
		did := ""
		if f.uuid == "" {
			did = "create node"
			f.uuid, f.info = n.UUID, n.DriverInfo
			f.node = facts.Ironic{
				Name: facts.TextOf(n.Name), Driver: facts.TextOf(n.Driver), ResourceClass: facts.TextOf(n.ResourceClass), Lessee: facts.TextOf(n.Lessee),
				ProvisionState: facts.ProvisionStateEnroll, Maintenance: facts.False, InstanceBound: facts.False, Reservation: facts.TextOf(""), Traits: []string{},
			}
		}
		r = f.record()
		return did, nil
	})
	return r, err
}

func (f *fakeIronic) AddPort(_ context.Context, _ string, p ironic.NewPort) error {
	return f.call("ironic port", func() (string, error) {
		if slices.Contains(f.macs, p.MAC) {
			return "", nil
		}
		f.macs = append(f.macs, p.MAC)
		return "add port " + p.MAC, nil
	})
}

func (f *fakeIronic) Ports(context.Context, string) (ports []ironic.Port, err error) {
	err = f.call("ironic ports", func() (string, error) {
		for _, mac := range f.macs {
			ports = append(ports, ironic.Port{MAC: mac})
		}
		return "", nil
	})
	return ports, err
}

func (f *fakeIronic) Inventory(context.Context, string) (in *ironic.Inventory, err error) {
	err = f.call("ironic inventory", func() (string, error) {
		if f.inventory == nil {
			return "", errGone
		}
		in = f.inventory
		return "", nil
	})
	return in, err
}

func (f *fakeIronic) Details(context.Context, string) (d ironic.Details, err error) {
	err = f.call("ironic details", func() (string, error) {
		d.Inspected = f.looked
		return "", nil
	})
	return d, err
}

func (f *fakeIronic) write(name string, change func() (string, error)) (*sources.Record, error) {
	var r *sources.Record
	err := f.call(name, func() (did string, err error) {
		if f.uuid == "" {
			return "", errGone
		}
		did, err = change()
		r = f.record()
		return did, err
	})
	return r, err
}

func (f *fakeIronic) ClearMaintenance(_ context.Context, _, mark string, _ ironic.Repair) (*sources.Record, error) {
	return f.write("ironic clear", func() (string, error) {
		if f.node.MaintenanceReason.Value == "bad fan" {
			return "", &sources.Error{Kind: sources.KindConflict, Err: ironic.ErrForeign}
		}
		f.node.Maintenance = facts.False
		return "clear " + mark, nil
	})
}

func (f *fakeIronic) SetProvision(_ context.Context, _ string, verb nodes.ProvisionStateOpts) (*sources.Record, error) {
	return f.write("ironic "+string(verb.Target), func() (string, error) {
		to := map[nodes.TargetProvisionState]facts.ProvisionState{
			nodes.TargetManage: facts.ProvisionStateManageable, nodes.TargetInspect: facts.ProvisionStateManageable, nodes.TargetProvide: facts.ProvisionStateAvailable, nodes.TargetAbort: facts.ProvisionStateInspectFailed,
		}[verb.Target]
		if elsewhere, is := f.inspects[verb.Target]; is {
			to = elsewhere
		}
		f.node.ProvisionState = to
		return string(verb.Target), nil
	})
}

func (f *fakeIronic) Settle(ctx context.Context, ref string, _ time.Duration) (*sources.Record, error) {
	return f.read("ironic settle", func() bool { return ref == f.uuid })
}

func (f *fakeIronic) SetLessee(_ context.Context, _, from, to string) (*sources.Record, error) {
	return f.write("ironic lessee", func() (string, error) {
		if f.node.Lessee.Value == to {
			return "", nil
		}
		f.node.Lessee = facts.TextOf(to)
		return "lease to " + to, nil
	})
}

func (f *fakeIronic) RemoveTrait(_ context.Context, _, trait string) (*sources.Record, error) {
	return f.write("ironic trait", func() (string, error) {
		if !slices.Contains(f.node.Traits, trait) {
			return "", nil
		}
		f.node.Traits = slices.DeleteFunc(f.node.Traits, func(t string) bool { return t == trait })
		return "remove " + trait, nil
	})
}

func (f *fakeIronic) Delete(_ context.Context, ref, mark string) error {
	return f.call("ironic delete", func() (string, error) {
		switch {
		case f.uuid != ref:
			return "", nil
		case f.node.InstanceBound == facts.True:
			return "", conflict("an instance is bound to it")
		case f.node.Maintenance == facts.True && f.node.MaintenanceReason.Value != mark+" to be deleted":
			return "", &sources.Error{Kind: sources.KindConflict, Err: ironic.ErrForeign}
		}
		f.uuid = ""
		return "delete node as " + mark, nil
	})
}

func (f *fakeIronic) Unbind(_ context.Context, _, instance string) (*sources.Record, error) {
	return f.write("ironic unbind", func() (string, error) {
		switch {
		case f.node.InstanceBound == facts.True && f.node.InstanceUUID.Value != instance:
			return "", conflict("another instance is bound to it")
		case f.node.ProvisionState != facts.ProvisionStateAvailable:
			return "", conflict("it is %s, not available", f.node.ProvisionState)
		}
		f.node.InstanceBound, f.node.InstanceUUID = facts.False, facts.TextOf("")
		return "unbind", nil
	})
}
