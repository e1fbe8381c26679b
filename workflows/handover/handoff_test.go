package handover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

func latch(name string) func(t *testing.T, m *machine) {
	return func(t *testing.T, m *machine) {
		_, err := m.site.Devices.Latch(t.Context(), devices.LatchPost{
			DeviceID: m.device, Type: name, Status: fleet.True, Reason: devices.ReasonManualIsolation, Note: "by hand", By: devices.Caller{Name: "test"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func sql(text string) func(t *testing.T, m *machine) {
	return func(t *testing.T, m *machine) { m.exec(t, text) }
}

// What must be so when a customer gets a machine is read again at that moment: what
// came up while the job ran refuses it, and nothing is written.
func TestAHandOffReadsAgainWhatItRestsOn(t *testing.T) {
	none := func(*testing.T, *machine) {}
	given := []string{"trait on"}
	inventory := func(s facts.InventorySource) func(*fleet.SiteSpec) {
		return func(spec *fleet.SiteSpec) { spec.Inventory = s }
	}
	for site, of := range map[string]struct {
		spec  fleet.SiteSpec
		cases map[string]handOffCase
	}{
		"with NetBox": {direct(), map[string]handOffCase{
			"all is well":                          {before: none, did: given},
			"done before":                          {before: none, found: func(p *plant) { p.f.Traits = []string{"CUSTOM_READY"} }},
			"a customer is on it":                  {before: none, found: occupiedBy(customers, "customer", "customer")},
			"NetBox says rma":                      {before: none, found: func(p *plant) { p.netbox = "rma" }, code: codes.ReleaseInventoryNotActive},
			"NetBox says what nobody maps":         {before: none, found: func(p *plant) { p.netbox = "on-loan" }, code: codes.ReleaseInventoryNotActive},
			"NetBox has it no more":                {before: none, found: func(p *plant) { p.netbox = "" }, code: codes.ReleaseInventoryNotActive},
			"NetBox never had it":                  {before: sql("delete from facts where device_id = $1"), code: codes.ReleaseInventoryNotActive},
			"NetBox is away":                       {before: none, found: fails("netbox", sources.KindTransient), code: codes.NetboxUnavailable, again: true},
			"NetBox refuses":                       {before: none, found: fails("netbox", sources.KindForbidden), code: codes.NetboxUnavailable, again: true},
			"the stored status counts for nothing": {before: sql("update devices set inventory_status = 'rma' where id = $1"), did: given},
			"no proof":                             {before: sql(unproven), code: codes.EnrollmentProofMissing},
			"another node is proven":               {before: sql(elsewhere), code: codes.EnrollmentProofMissing},
			"the repair partition":                 {before: latch(devices.LatchNvLink), code: codes.ReleaseNvlinkLatchRefused},
			"the maintenance VRF":                  {before: latch(devices.LatchBackend), code: codes.ReleaseBackendVRFLatchRefused},
			"triage":                               {before: sql("update devices set in_triage = true, entered_triage_at = now() where id = $1"), code: codes.ReleaseHoldRefused},
			"an impairment":                        {before: sql(`update devices set annotations = '{"impairment-event-id": "e1"}' where id = $1`), code: codes.ReleaseHoldRefused},
			"a partner's custody":                  {before: sql("update devices set operational_status = 'drained' where id = $1"), code: codes.ReleaseHoldRefused},
			"retired":                              {before: sql("update devices set retired_at = now() where id = $1"), code: codes.ReleaseInventoryNotActive},
			"our instance is on it":                {before: none, found: func(p *plant) { inCluster(p) }, code: codes.IronicStateUnexpected},
			"it is not available":                  {before: none, found: in(facts.ProvisionStateManageable), code: codes.IronicStateUnexpected},
			"Ironic refuses the trait":             {before: none, found: fails("add trait", sources.KindForbidden), code: codes.CustomerTraitNotAdded},
			"Ironic is away":                       {before: none, found: fails("add trait", sources.KindTransient), code: codes.IronicUnavailable, again: true},
			"whose it is is unread":                {before: none, found: func(p *plant) { occupiedBy(customers, "customer", "customer")(p); unleased(p) }, code: codes.IronicUnavailable, again: true},
			"whether it is SLURM's is unread":      {before: none, found: func(p *plant) { p.f.Traits = nil; unleased(p) }, code: codes.IronicUnavailable, again: true},
		}},
		"without NetBox": {direct(inventory(facts.InventorySourceIronic)), map[string]handOffCase{
			"all is well":        {before: none, did: given},
			"it is not active":   {before: sql("update devices set inventory_status = 'rma' where id = $1"), code: codes.ReleaseInventoryNotActive},
			"nobody asks NetBox": {before: none, found: fails("netbox", sources.KindTransient), did: given},
		}},
		"metal": {direct(metal), map[string]handOffCase{
			"all is well":          {before: none, delegate: true},
			"no proof is needed":   {before: sql(unproven), delegate: true},
			"NetBox says rma":      {before: none, delegate: true, found: func(p *plant) { p.netbox = "rma" }, code: codes.ReleaseInventoryNotActive},
			"the repair partition": {before: latch(devices.LatchNvLink), delegate: true, code: codes.ReleaseNvlinkLatchRefused},
			"a partner's custody":  {before: sql("update devices set operational_status = 'pending_handover' where id = $1"), delegate: true, code: codes.ReleaseHoldRefused},
		}},
	} {
		t.Run(site, func(t *testing.T) {
			w := newWorld(t, of.spec)
			for name, c := range of.cases {
				t.Run(name, func(t *testing.T) { c.try(t, w) })
			}
		})
	}
}

type handOffCase struct {
	before   func(t *testing.T, m *machine)
	found    func(*plant)
	delegate bool

	did   []string
	code  codes.Failure
	again bool
}

func (c handOffCase) try(t *testing.T, w *world) {
	p := newPlant(func(p *plant) { p.f.Traits = nil })
	if c.found != nil {
		c.found(p)
	}
	if !c.delegate && c.did == nil && c.code == "" { // done before, or by this
		defer func() {
			if !slices.Contains(p.f.Traits, "CUSTOM_READY") {
				t.Error("customers cannot have it")
			}
		}()
	}
	m := w.machine(t, p)
	c.before(t, m)
	_, err := acttest.Run(&m.site, Family(), actHandOff, HandOff{Node: Node{Job: 7, Device: m.device, Name: m.name, UUID: m.uuid}, Delegate: c.delegate})
	if act.Code(err) != c.code || err != nil && act.IsFinal(err) == c.again || c.code == "" && err != nil {
		t.Errorf("%v, want %q", err, c.code)
	}
	if c.did != nil || c.code != "" {
		if !slices.Equal(p.did, c.did) {
			t.Errorf("it did %q, want %q", p.did, c.did)
		}
	}
	if d, err := m.site.Device(t.Context(), m.device); err != nil || (d.Operational == facts.OperationalStatusDelegated) != (c.delegate && c.code == "") {
		t.Errorf("it is %s (%v)", d.Operational, err)
	}
}

// A machine that an earlier try gave to customers is out of their reach again when
// a later one is refused.
func TestWhatIsRefusedAfterATryIsTakenBack(t *testing.T) {
	triage := "update devices set in_triage = true, entered_triage_at = now() where id = $1"
	for name, c := range map[string]struct {
		spec    fleet.SiteSpec
		found   func(*plant)
		lost    string
		comes   string // SQL on the device
		changes func(*plant)
		did     []string
		code    codes.Failure
		says    string
	}{
		"by the trait": {spec: direct(), lost: "add trait", comes: triage,
			did: []string{"trait on", "trait off"}, code: codes.ReleaseHoldRefused, says: "taken off again"},
		"NetBox says rma by then": {spec: direct(), lost: "add trait", changes: func(p *plant) { p.netbox = "rma" },
			did: []string{"trait on", "trait off"}, code: codes.ReleaseInventoryNotActive, says: "taken off again"},
		"the device has another node by then": {spec: direct(), lost: "add trait", comes: elsewhere,
			did: []string{"trait on", "trait off"}, code: codes.EnrollmentProofMissing, says: "taken off again"},
		"the customer's server is on it by then": {spec: direct(), lost: "add trait", comes: triage, changes: occupiedBy(customers, "customer", "customer"),
			did: []string{"trait on", "trait off"}, code: codes.ReleaseHoldRefused, says: customers + " is on it and stays"},
		"nothing had come about": {spec: direct(), lost: "get", comes: triage, code: codes.ReleaseHoldRefused},
		"by the lease": {spec: direct(legacy), found: leased("maintenance"), lost: "lease", comes: triage,
			did: []string{"lease ", "lease maintenance"}, code: codes.ReleaseHoldRefused, says: "was made again"},
		"by the lease, and a customer has it": {spec: direct(legacy), found: leased("maintenance"), lost: "lease", comes: triage, changes: occupiedBy(customers, "", ""),
			did: []string{"lease "}, code: codes.ReleaseHoldRefused, says: customers + " is on it and stays"},
		"no hold came": {spec: direct(), lost: "add trait", did: []string{"trait on"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.spec)
			p := newPlant(func(p *plant) { p.f.Traits, p.lost = nil, c.lost })
			if c.found != nil {
				c.found(p)
			}
			m := w.machine(t, p)
			p.then = func() {
				if c.changes != nil {
					c.changes(p)
				}
				came := make(chan struct{})
				p.came = came
				go func() { // the device's row is held until the write has returned
					defer close(came)
					if c.comes == "" {
						return
					}
					if _, err := m.site.DB.Exec(t.Context(), c.comes, m.device); err != nil {
						t.Error(err)
					}
				}()
			}
			walk := acttest.NewWalk(nil)
			walk.Family(&m.site, Family())
			err := walk.Go(t, func(ctx workflow.Context, u *act.Unit) error {
				return u.Do(ctx, step("", 0, actHandOff, codes.CustomerTraitNotAdded), HandOff{Node: Node{Job: 7, Device: m.device, Name: m.name, UUID: m.uuid}}, nil)
			})
			if act.Code(err) != c.code || c.code == "" && err != nil || c.says != "" && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.code)
			}
			if !slices.Equal(p.did, c.did) {
				t.Errorf("it did %q, want %q", p.did, c.did)
			}
		})
	}
}

// A machine of delegated metal goes to its customer by its status alone, and comes
// back by it.
func TestMetalGoesAndComesByItsStatus(t *testing.T) {
	w := newWorld(t, direct(metal))
	m := w.machine(t, newPlant(func(p *plant) { p.f.Traits, p.f.Lessee = nil, facts.TextOf("slurm") }))
	parameters := func() map[string]any {
		return map[string]any{"engagement_mode": "metal_delegated", "release_to_customer_pool": true}
	}
	if err := m.run(t, release, parameters()); err != nil {
		t.Fatal(err)
	}
	m.is(t, facts.OperationalStatusDelegated)
	if want := []string{"lease enrol"}; !slices.Equal(m.did, want) {
		t.Errorf("it did %q, want %q", m.did, want)
	}
	asked := m.calls
	if err := m.run(t, move, parameters()); err != nil {
		t.Fatal(err)
	}
	m.is(t, facts.OperationalStatusQuarantine)
	if m.calls != asked {
		t.Error("taking it back touched something outside")
	}
	if err := m.run(t, move, parameters()); act.Code(err) != codes.CustodyChanged {
		t.Errorf("taking back what nobody has: %v", err)
	}
}

func (m *machine) is(t *testing.T, status facts.OperationalStatus) {
	t.Helper()
	if d, err := m.site.Device(t.Context(), m.device); err != nil || d.Operational != status {
		t.Fatalf("it is %s (%v), want %s", d.Operational, err, status)
	}
}

// What a job does is decided by custody, and by what it was asked.
func TestWhichStepsAJobHas(t *testing.T) {
	t.Parallel()
	adoption := []string{"at 30 wait until the node comes to rest", actSettle, "at 32 lease the node to SLURM", actLease, "at 55 begin to deploy", actDeploy,
		"at 60 deploy", actAwaitDeploy, "at 90 register in SLURM", actRegister}
	cordoned := []string{"at 5 take the node from the customers' pool", actCordon}
	looked := []string{"at 5 look at the node", actLook}
	left := []string{"at 10 drain the node and take it out of SLURM", actDrain, "at 35 wait until the node is clean", actAwaitGone,
		"at 80 clear what is left of the instance", actUnbind, "at 85 return the lease", actReturn}
	given := []string{"at 90 hand the device off", actHandOff}
	for name, c := range map[string]struct {
		do    act.Workflow
		mode  string
		flags []string
		found Occupied
		want  []string
		fails bool
	}{
		"move: to a partner":         {do: move, mode: "external_partner"},
		"move: self-managed":         {do: move, mode: "self_managed", fails: true},
		"move: metal":                {do: move, mode: "metal_delegated", want: []string{"at 50 take the device back", actWithdraw}},
		"move":                       {do: move, want: slices.Concat(cordoned, adoption)},
		"move: a cordon":             {do: move, flags: []string{"cordon_only"}, want: cordoned},
		"move: by force":             {do: move, flags: []string{"force_reclaim"}, want: slices.Concat(cordoned, []string{"at 10 delete the customer's instance", actReclaim, "at 15 wait until the instance is gone and the node clean", actAwaitGone}, adoption)},
		"release: to a partner":      {do: release, mode: "external_partner"},
		"release: self-managed":      {do: release, mode: "self_managed", fails: true},
		"release":                    {do: release, flags: []string{"release_to_customer_pool"}, want: slices.Concat(looked, left, given)},
		"release: not to customers":  {do: release, want: slices.Concat(looked, left)},
		"release: a customer's node": {do: release, flags: []string{"release_to_customer_pool"}, found: Occupied{Foreign: true}, want: slices.Concat(looked, given)},
		"release: a customer's node, and not to customers": {do: release, found: Occupied{Foreign: true}, want: looked},
		"release: metal": {do: release, mode: "metal_delegated", flags: []string{"release_to_customer_pool"}, want: slices.Concat(looked, left, given)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parameters := map[string]any{"engagement_mode": "fully_managed"}
			if c.mode != "" {
				parameters["engagement_mode"] = c.mode
			}
			for _, flag := range c.flags {
				parameters[flag] = true
			}
			w := acttest.NewWalk(parameters)
			n := Node{Job: 7, Device: 9, Name: "c1", UUID: theNode}
			c.found.Node = n
			done := func(name string) { w.Note("%s", name) }
			w.Act(actCordon, func(act.Target) (Node, error) { done(actCordon); return n, nil })
			w.Act(actLook, func(act.Target) (Occupied, error) { done(actLook); return c.found, nil })
			w.Act(actWithdraw, func(act.Target) error { done(actWithdraw); return nil })
			w.Act(actSettle, func(Node) (Found, error) { done(actSettle); return Found{}, nil })
			w.Act(actHandOff, func(h HandOff) error {
				done(actHandOff)
				if h.Delegate != (c.mode == "metal_delegated") || h.Node != n {
					t.Errorf("hands off %+v", h)
				}
				return nil
			})
			for _, name := range []string{actLease, actRegister, actDrain, actReturn} {
				w.Act(name, func(in Node) error {
					done(name)
					if in != n {
						t.Errorf("%s of %+v", name, in)
					}
					return nil
				})
			}
			for _, name := range []string{actReclaim, actDeploy, actRemove} {
				w.Act(name, func(in Instance) (Instance, error) { done(name); return in, nil })
			}
			for _, name := range []string{actAwaitDeploy, actAwaitGone, actUnbind} {
				w.Act(name, func(Instance) error { done(name); return nil })
			}
			if err := w.Run(t, c.do, c.want...); (err != nil) != c.fails {
				t.Error(err)
			}
		})
	}
}

// Nova's only server of the machine's name in SLURM's project is that of an earlier
// try; what else there is of the name is left to people.
func TestAServerIsRecoveredByItsName(t *testing.T) {
	w := newWorld(t, direct(throughNova))
	for name, c := range map[string]struct {
		there []nova.Server
		code  codes.Failure
	}{
		"one, without a node yet": {[]nova.Server{{Status: "BUILD"}}, ""},
		"one, on this node":       {[]nova.Server{{Status: "ACTIVE", Node: "this"}}, ""},
		"one, on another node":    {[]nova.Server{{Status: "ACTIVE", Node: theNode}}, codes.ImageServerAmbiguous},
		"one that failed":         {[]nova.Server{{Status: "ERROR"}}, codes.ImageServerFailed},
		"one that is going":       {[]nova.Server{{Status: "ACTIVE", TaskState: "deleting"}}, codes.ImageServerFailed},
		"two":                     {[]nova.Server{{Status: "BUILD"}, {Status: "ERROR"}}, codes.ImageServerAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.machine(t, newPlant())
			for i, s := range c.there {
				s.ID, s.Name, s.Project = fmt.Sprintf("s%d", i), m.name, "slurm"
				if s.Node == "this" {
					s.Node = m.uuid
				}
				m.servers[s.ID] = s
			}
			var got Instance
			value, err := acttest.Run(&m.site, Family(), actDeploy, Instance{Node: Node{Job: 7, Device: m.device, Name: m.name, UUID: m.uuid}})
			if act.Code(err) != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			if err == nil && (value.Get(&got) != nil || got.Instance != "s0" || !got.Nova) {
				t.Errorf("it is %+v", got)
			}
			if len(m.did) != 0 {
				t.Errorf("it did %q", m.did)
			}
		})
	}
}

// A server that Nova has not yet put on its node is what a release of that node has
// to delete, or it would come to the customers' machine.
func TestAReleaseFindsTheServerThatIsOnItsWay(t *testing.T) {
	w := newWorld(t, direct(throughNova))
	for name, c := range map[string]struct {
		there []nova.Server
		found string
		code  codes.Failure
	}{
		"none":                     {},
		"one, without a node yet":  {[]nova.Server{{Status: "BUILD"}}, "s0", ""},
		"one, on this node":        {[]nova.Server{{Status: "ACTIVE", Node: "this"}}, "s0", ""},
		"one that failed":          {[]nova.Server{{Status: "ERROR"}}, "s0", ""},
		"one, on another node":     {[]nova.Server{{Status: "ACTIVE", Node: theNode}}, "", ""},
		"one that was put away":    {[]nova.Server{{Status: "SHELVED_OFFLOADED"}}, "", ""},
		"one, and one elsewhere":   {[]nova.Server{{Status: "BUILD"}, {Status: "ACTIVE", Node: theNode}}, "s0", ""},
		"two, without a node":      {[]nova.Server{{Status: "BUILD"}, {Status: "BUILD"}}, "", codes.ImageServerAmbiguous},
		"one of a customer's name": {[]nova.Server{{Status: "BUILD", Project: "customer"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.machine(t, newPlant(leased("slurm")))
			for i, s := range c.there {
				s.ID, s.Name = fmt.Sprintf("s%d", i), m.name
				if s.Project == "" {
					s.Project = "slurm"
				}
				if s.Node == "this" {
					s.Node = m.uuid
				}
				m.servers[s.ID] = s
			}
			var got Occupied
			value, err := acttest.Run(&m.site, Family(), actLook, act.Target{Job: 7, Device: m.device})
			if act.Code(err) != c.code {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if err == nil && (value.Get(&got) != nil || got.Instance.Instance != c.found || got.Nova != (c.found != "") || got.Foreign) {
				t.Errorf("it is %+v", got)
			}
			if err != nil || c.found == "" {
				return
			}
			if _, err := acttest.Run(&m.site, Family(), actRemove, got.Instance); err != nil || !slices.Equal(m.did, []string{"delete server"}) {
				t.Errorf("it did %q: %v", m.did, err)
			}
		})
	}
}

// A release that ends before anything was deleted leaves no drain of its own.
func TestAReleaseThatEndsInItsDrainTakesItBack(t *testing.T) {
	t.Parallel()
	for name, cancels := range map[string]bool{"by a cancel": true, "because it fails": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := Node{Job: 7, Device: 9, Name: "c1", UUID: theNode}
			w := acttest.NewWalk(managed())
			w.Act(actLook, func(act.Target) (Occupied, error) { return Occupied{Instance: Instance{Node: n}}, nil })
			w.Act(actDrain, func(Node) error {
				if cancels {
					w.Env.CancelWorkflow()
					return temporal.NewCanceledError()
				}
				return act.Final(codes.SlurmDrainTimeout, "work is left")
			})
			undrained := 0
			w.Act(actUndrain, func(in Node) error {
				if undrained++; in != n {
					t.Errorf("it ends the drain of %+v", in)
				}
				return nil
			})
			err := w.Go(t, release)
			if cancelled := temporal.IsCanceledError(err); cancelled != cancels || !cancels && act.Code(err) != codes.SlurmDrainTimeout || undrained != 1 {
				t.Errorf("%v, having ended its drain %d times", err, undrained)
			}
		})
	}
}

// A machine is out of SLURM only if SLURM, asked by the name that it has there, says
// so, or a whole listing lacked it: what runs on it would die with its disks.
func TestADrainConcludesNothingFromAGuessedName(t *testing.T) {
	const (
		known  = `insert into facts (device_id, site_id, source, ref, ref_gone, hash, body, seen_at) select id, site_id, 'slurm', 'Node-1', true, '\x00000000000000000000000000000000', '{}', now() from devices where id = $1`
		unread = "delete from watermarks where site_id = (select site_id from devices where id = $1)"
	)
	for name, c := range map[string]struct {
		rows   []string
		called string
		did    []string
		code   codes.Failure
	}{
		"the name that SLURM showed once":      {[]string{unread, known}, "Node-1", []string{"drain"}, ""},
		"the device's name in small letters":   {nil, "rack-7", []string{"drain"}, ""},
		"no name of its, of all that it lists": {nil, "other", nil, ""},
		"no name of its, and unread":           {[]string{unread}, "other", nil, codes.SlurmUnavailable},
		"its name, and unread":                 {[]string{unread}, "Rack-7", []string{"drain"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, direct())
			m := w.machine(t, newPlant(inCluster, func(p *plant) { p.jobs, p.called = 0, c.called }))
			for _, row := range c.rows {
				m.exec(t, row)
			}
			_, err := acttest.Run(&m.site, Family(), actDrain, Node{Job: 7, Device: m.device, Name: "Rack-7", UUID: m.uuid})
			if act.Code(err) != c.code || c.code == "" && err != nil || !slices.Equal(m.did, c.did) {
				t.Errorf("it did %q: %v", m.did, err)
			}
		})
	}
}
