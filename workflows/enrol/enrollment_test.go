package enrol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
)

var inspecting = map[string]any{"run_inspection": true}

// enrolled checks everything that an enrolment leaves behind.
func (w *world) enrolled(t *testing.T) {
	t.Helper()
	d := w.device()
	if w.uuid == "" || w.node.ProvisionState != facts.ProvisionStateAvailable || w.node.Lessee.Value != "enrol" || slices.Contains(w.node.Traits, "CUSTOM_READY") {
		t.Errorf("the node %q is %+v", w.uuid, w.node)
	}
	if w.status != "active" || !slices.Equal(w.tags, []string{"gpu", "provisioned"}) {
		t.Errorf("in NetBox it is %s with the tags %q", w.status, w.tags)
	}
	if w.lets != password || w.reserved.MAC != bmcMAC1 || w.reserved.Address != address || !slices.Equal(w.macs, []string{hostMAC}) {
		t.Errorf("the BMC takes %q, DHCP has %+v, Ironic the ports %q", w.lets, w.reserved, w.macs)
	}
	if d.Proof.ValidatedRef != w.uuid || d.Proof.Source != "enrolled" {
		t.Errorf("the proof is %+v", d.Proof)
	}
	for i, effect := range w.did {
		if slices.Contains(w.did[:i], effect) && effect != "inspect" && !strings.HasPrefix(effect, "tag ") { // another job looks anew
			t.Errorf("%q was done twice: %q", effect, w.did)
		}
	}
}

func TestAnEnrolmentGoesStageByStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab(t, spec()), "c1")
	if err := w.run(enrollment, inspecting); err != nil {
		t.Fatal(err)
	}
	w.enrolled(t)
	want := []string{
		"reserve " + address + " for " + bmcMAC1, "tag dhcp-configured", "make credential", "set password", "tag bmc-configured", "status active",
		"create node", "add port " + hostMAC, "manage", "inspect", "tag ironic-enrolled", "provide", "tag provisioned",
	}
	if !slices.Equal(w.did, want) {
		t.Errorf("it did\n%q\nwant\n%q", w.did, want)
	}
	if w.info["redfish_address"] != "https://"+address || w.info["redfish_username"] != "muster" || w.info["redfish_password"] != password {
		t.Errorf("the node has the driver_info %v", w.info)
	}
}

// Whichever call fails, before it had an effect or after: what trying again mends
// is mended, and after any other failure the next job converges. Nothing is done
// twice.
func TestAnEnrolmentThatFailsOnceConverges(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	clean := newWorld(t, site, "clean")
	if err := clean.run(enrollment, inspecting); err != nil {
		t.Fatal(err)
	}
	for i, call := range clean.calls {
		for name, f := range map[string]fault{
			"is not reached":     {kind: sources.KindTransient},
			"loses its answer":   {kind: sources.KindTransient, after: true},
			"is refused":         {kind: sources.KindRefused},
			"is done and denied": {kind: sources.KindForbidden, after: true},
		} {
			t.Run(fmt.Sprintf("%d %s %s", i+1, call, name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, site, fmt.Sprintf("c%d-%s-%t", i, f.kind, f.after))
				w.failAt, w.fault = i+1, f
				err := w.run(enrollment, inspecting)
				if err != nil && f.kind == sources.KindTransient {
					t.Fatal(err)
				}
				if err != nil {
					if act.Code(err) == "" {
						t.Errorf("it failed without a code: %v", err)
					}
					if err := w.runAs(enrollment, 8, inspecting); err != nil {
						t.Fatal(err)
					}
				}
				w.enrolled(t)
			})
		}
	}
}

// ironicNode gives the world a node that is there already, and a BMC that it gets
// into with the device's own credential.
func (w *world) ironicNode(uuid string, state facts.ProvisionState, set ...func(*world)) {
	w.uuid, w.stored, w.lets = uuid, true, password
	w.node = facts.Ironic{
		Name: facts.TextOf(w.device().Name), Driver: facts.TextOf("redfish"), Lessee: facts.TextOf(""), ProvisionState: state, Maintenance: facts.False,
		InstanceBound: facts.False, Reservation: facts.TextOf(""), Traits: []string{"CUSTOM_READY"},
	}
	for _, f := range set {
		f(w)
	}
}

func bound(w *world) { w.node.InstanceBound, w.node.InstanceUUID = facts.True, facts.TextOf("i-1") }

func none(w *world) { w.inventory = nil }

func sized(w *world) {
	w.looked, w.inventory, w.macs = time.Now(), nil, []string{hostMAC}
	w.node.Properties = map[string]any{"cpus": "144", "memory_mb": float64(983_040), "cpu_arch": "aarch64"}
}

func maintained(reason string) func(*world) {
	return func(w *world) { w.node.Maintenance, w.node.MaintenanceReason = facts.True, facts.TextOf(reason) }
}

// What is found decides: a node that is in use, or ready for it, is looked at only.
func TestWhatAnEnrolmentMakesOfANodeThatIsThere(t *testing.T) {
	t.Parallel()
	whole := []string{"manage", "inspect", "lease to enrol", "remove CUSTOM_READY", "provide"}
	site := lab(t, spec())
	for name, c := range map[string]struct {
		state  facts.ProvisionState
		set    []func(*world)
		asks   []string // of Ironic
		code   codes.Failure
		proven bool
	}{
		"racked anew":                      {facts.ProvisionStateEnroll, nil, whole, "", true},
		"under management":                 {facts.ProvisionStateManageable, nil, whole[1:], "", true},
		"its clean failed":                 {facts.ProvisionStateCleanFailed, []func(*world){maintained("clean failed")}, append([]string{"clear muster:7"}, whole...), "", true},
		"its inspection failed":            {facts.ProvisionStateInspectFailed, nil, whole, "", true},
		"available":                        {facts.ProvisionStateAvailable, nil, nil, "", true},
		"available, inspected by Redfish":  {facts.ProvisionStateAvailable, []func(*world){sized}, nil, "", true},
		"inspected by Redfish now":         {facts.ProvisionStateManageable, []func(*world){sized, func(w *world) { w.looked = time.Time{} }}, whole[1:], "", true},
		"available, sized by hand":         {facts.ProvisionStateAvailable, []func(*world){sized, func(w *world) { w.looked = time.Time{} }}, nil, codes.EnrollmentInventoryIncomplete, false},
		"available, never inspected":       {facts.ProvisionStateAvailable, []func(*world){none}, nil, codes.EnrollmentInventoryIncomplete, false},
		"a customer's":                     {facts.ProvisionStateActive, []func(*world){bound}, nil, "", true},
		"manageable, an instance bound":    {facts.ProvisionStateManageable, []func(*world){bound}, nil, "", true},
		"in error":                         {facts.ProvisionStateError, nil, nil, codes.IronicStateUnexpected, false},
		"its adoption failed":              {facts.ProvisionStateAdoptFailed, nil, nil, codes.IronicStateUnexpected, false},
		"in an operator's maintenance":     {facts.ProvisionStateManageable, []func(*world){maintained("bad fan")}, nil, codes.MaintenanceForeign, false},
		"with the BMC's first credential":  {facts.ProvisionStateActive, []func(*world){bound, func(w *world) { w.stored, w.lets = false, factory }}, nil, codes.BMCConfigurationFailed, false},
		"its BMC was exchanged":            {facts.ProvisionStateManageable, []func(*world){func(w *world) { w.lets = factory }}, nil, codes.BMCConfigurationFailed, false},
		"of another driver":                {facts.ProvisionStateEnroll, []func(*world){func(w *world) { w.node.Driver = facts.TextOf("ipmi") }}, nil, codes.IronicDriverMismatch, false},
		"of another machine's BMC":         {facts.ProvisionStateEnroll, []func(*world){func(w *world) { w.node.BMCAddress = facts.TextOf("192.0.2.11") }}, nil, codes.IronicNodeConflict, false},
		"Ironic does not reach its BMC":    {facts.ProvisionStateEnroll, []func(*world){leads(nodes.TargetManage, facts.ProvisionStateEnroll, "no route")}, whole[:1], codes.IronicManageFailed, false},
		"its inspection fails":             {facts.ProvisionStateManageable, []func(*world){leads(nodes.TargetInspect, facts.ProvisionStateInspectFailed, "timed out")}, whole[1:2], codes.IronicInspectionFailed, false},
		"there is nothing to inspect with": {facts.ProvisionStateManageable, []func(*world){leads(nodes.TargetInspect, facts.ProvisionStateInspectFailed, "Validation of image href http://x/ipa.kernel failed, reason: Got HTTP code 404")}, whole[1:2], codes.IronicInspectionIPAImageNotFound, false},
		"its clean fails":                  {facts.ProvisionStateManageable, []func(*world){leads(nodes.TargetProvide, facts.ProvisionStateCleanFailed, "disk")}, whole[1:], codes.IronicCleanFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, site, name)
			w.ironicNode(other1, c.state, c.set...)
			err := w.run(enrollment, inspecting)
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.code)
			}
			asked := slices.DeleteFunc(slices.Clone(w.did), func(did string) bool {
				return !slices.Contains(append(whole, "clear muster:7", "abort", "create node"), did)
			})
			if !slices.Equal(asked, c.asks) {
				t.Errorf("Ironic was asked for %q, want %q", asked, c.asks)
			}
			if c.code == codes.BMCConfigurationFailed && (slices.Contains(w.did, "set password") || slices.Contains(w.did, "make credential")) {
				t.Errorf("Ironic is locked out of the BMC: %q", w.did)
			}
			if proven := w.device().Proof.ValidatedRef == other1; proven != c.proven {
				t.Errorf("the proof is %+v", w.device().Proof)
			}
		})
	}
}

func TestANetBoxThatMayNotBeReadRefusesNoUpdate(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	clean := newWorld(t, site, "clean")
	if err := clean.run(enrollment, inspecting); err != nil {
		t.Fatal(err)
	}
	for call, code := range map[string]codes.Failure{
		"netbox read": codes.NetboxUnavailable, "netbox interfaces": codes.NetboxUnavailable, "netbox status": codes.NetboxUpdateRefused, "netbox tag": codes.NetboxUpdateRefused,
	} {
		w := newWorld(t, site, call)
		w.failAt, w.fault = slices.Index(clean.calls, call)+1, fault{kind: sources.KindForbidden}
		if err := w.run(enrollment, inspecting); w.failAt == 0 || act.Code(err) != code {
			t.Errorf("%s: %v, want %s", call, err, code)
		}
	}
}

// A node may be on its way for a day: that Ironic is away now and then ends nothing.
func TestTheWaitForANodeOutlastsAnIronicThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab(t, spec()), "c1")
	w.ironicNode(other1, facts.ProvisionStateCleaning)
	w.away = 20
	if err := w.run(enrollment, inspecting); err != nil {
		t.Fatal(err)
	}
	if d := w.device(); w.away != 0 || d.Proof.ValidatedRef != other1 {
		t.Errorf("%d readings left, the proof is %+v", w.away, d.Proof)
	}
}

func leads(verb nodes.TargetProvisionState, to facts.ProvisionState, why string) func(*world) {
	return func(w *world) {
		w.inspects = map[nodes.TargetProvisionState]facts.ProvisionState{verb: to}
		w.node.LastError = facts.TextOf(why)
	}
}

func TestWhichNodeIsTheDevices(t *testing.T) {
	t.Parallel()
	const pinned = "00000000-0000-4000-8000-0000000000aa"
	site := lab(t, spec())
	for name, c := range map[string]struct {
		there, named string // the node; "" none
		carries      string // the device
		pin          string
		uuid         string // found or made; "" any
		code         codes.Failure
	}{
		"none":                               {"", "", "", "", "", ""},
		"of its name":                        {other1, "n", "", "", other1, ""},
		"that it carries, by another name":   {other1, "old-name", other1, "", other1, ""},
		"gone, another of its name is there": {other1, "n", pinned, "", other1, ""},
		"pinned and there":                   {pinned, "n", "", pinned, pinned, ""},
		"pinned, there is none":              {"", "", other1, pinned, pinned, ""},
		"pinned, the old one is still there": {other1, "n", other1, pinned, "", codes.IronicNodeConflict},
		"pinned, and another machine's":      {pinned, "c2", "", pinned, "", codes.IronicNodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, site, name)
			if c.there != "" {
				w.ironicNode(c.there, facts.ProvisionStateAvailable)
				if w.node.Name = facts.TextOf(c.named); c.named == "n" {
					w.node.Name = facts.TextOf(w.device().Name)
				}
			}
			w.exec(`update devices set infrastructure_ref = $2 where id = $1`, w.id, c.carries)
			err := w.run(enrollment, map[string]any{"run_inspection": false, "node_uuid": c.pin, "infrastructure_ref": c.carries})
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if err == nil && (w.uuid == "" || c.uuid != "" && w.uuid != c.uuid) {
				t.Errorf("the node is %s, want %s", w.uuid, c.uuid)
			}
		})
	}
}

func TestWhatTheHardwareHasToBe(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	for name, c := range map[string]struct {
		class string
		set   func(*ironic.Inventory)
		code  codes.Failure
	}{
		"as its profile says":              {"gb200", func(*ironic.Inventory) {}, ""},
		"of a class that nobody describes": {"gb999", func(*ironic.Inventory) {}, codes.EnrollmentHardwareProfileMissing},
		"fewer processors":                 {"gb200", func(in *ironic.Inventory) { in.CPUs = 72 }, codes.EnrollmentHardwareMismatch},
		"no word of its memory":            {"gb200", func(in *ironic.Inventory) { in.MemoryMB = 0 }, codes.EnrollmentInventoryIncomplete},
		"neither memory nor processors":    {"gb200", func(in *ironic.Inventory) { in.MemoryMB, in.CPUs = 0, 72 }, codes.EnrollmentHardwareMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, site, name)
			w.exec(`update devices set resource_class = $2 where id = $1`, w.id, c.class)
			c.set(w.inventory)
			err := w.run(enrollment, inspecting)
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if slices.Contains(w.did, "provide") == (err != nil) {
				t.Errorf("it did %q", w.did)
			}
		})
	}
}

// A run proves only what it validated, and one that fails revokes nothing.
func TestWhatBecomesOfTheProof(t *testing.T) {
	t.Parallel()
	const pinned1 = "00000000-0000-4000-8000-0000000000aa"
	whole, off := lab(t, spec()), spec()
	off.Enrolment.Ironic = false
	without := lab(t, off)
	for name, c := range map[string]struct {
		at         *act.Site
		inspection bool
		code       codes.Failure
		before     fleet.Proof
		ref        string // the device's, at the request
		after      string // the node that is proven
	}{
		"proven before, fails":                    {whole, true, codes.IronicStateUnexpected, fleet.Proof{ValidatedRef: other1, Source: "enrolled"}, other1, other1},
		"an old node's, fails":                    {whole, true, codes.IronicStateUnexpected, fleet.Proof{ValidatedRef: "old", Source: "enrolled"}, other1, ""},
		"nothing is inspected":                    {whole, false, "", fleet.Proof{}, "", ""},
		"made under the UUID of a proven node":    {whole, false, "", fleet.Proof{ValidatedRef: pinned1, Source: "enrolled"}, "", ""},
		"nothing is inspected, proven before":     {whole, false, "", fleet.Proof{ValidatedRef: other1, Source: "legacy"}, other1, other1},
		"no node is made here, proven by another": {without, true, "", fleet.Proof{ValidatedRef: other1, Source: "legacy"}, other1, other1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.at, name)
			if c.ref != "" {
				w.ironicNode(other1, facts.ProvisionStateAvailable)
				w.exec(`update devices set infrastructure_ref = $2 where id = $1`, w.id, c.ref)
			}
			if c.code != "" {
				w.node.ProvisionState = facts.ProvisionStateError
			}
			if c.before.Source != "" {
				w.exec(`update devices set enrollment_validated_ref = $2, enrollment_proof_source = $3, enrollment_validated_at = now() where id = $1`, w.id, c.before.ValidatedRef, c.before.Source)
			}
			parameters := map[string]any{"run_inspection": c.inspection, "infrastructure_ref": c.ref}
			if c.before.ValidatedRef == pinned1 {
				parameters["node_uuid"] = pinned1
			}
			err := w.run(enrollment, parameters)
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if got := w.device().Proof; got.ValidatedRef != c.after {
				t.Errorf("the proof is %+v, want of %q", got, c.after)
			}
		})
	}
}

// What of several differences is told first, and that all are.
func TestTheWorstDifferenceGivesTheCode(t *testing.T) {
	t.Parallel()
	profile := &engine.HardwareProfile{}
	differs := func(kinds ...engine.Kind) (all []engine.Difference) {
		for i, kind := range kinds {
			all = append(all, engine.Difference{Part: fmt.Sprintf("part%d", i), Expected: "a", Actual: "b", Kind: kind})
		}
		return all
	}
	for name, c := range map[string]struct {
		all  []engine.Difference
		code codes.Failure
	}{
		"none":                    {nil, ""},
		"not told":                {differs(engine.Incomplete), codes.EnrollmentInventoryIncomplete},
		"a slow link":             {differs(engine.Incomplete, engine.Link), codes.EnrollmentLinkMismatch},
		"a wrong cable":           {differs(engine.Link, engine.Wrong), codes.EnrollmentCableMismatch},
		"another part and cables": {differs(engine.Incomplete, engine.Wrong, engine.Link, engine.Mismatch), codes.EnrollmentHardwareMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := differences(profile, c.all)
			if act.Code(err) != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			for _, d := range c.all {
				if !strings.Contains(err.Error(), d.Part) {
					t.Errorf("%v says nothing of %s", err, d.Part)
				}
			}
		})
	}
}

// A swapped machine's node is proven once the device carries it.
func TestAProofWaitsForTheDeviceToCarryTheNode(t *testing.T) {
	t.Parallel()
	const pinned = "00000000-0000-4000-8000-0000000000aa"
	site := lab(t, spec())
	for name, joins := range map[string]bool{"it does": true, "it never does": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, site, name)
			w.exec(`update devices set infrastructure_ref = $2 where id = $1`, w.id, other1)
			if joins { // while the last tag is set
				w.meanwhile = map[string]func(){"ironic provide": func() { w.exec(`update devices set infrastructure_ref = $2 where id = $1`, w.id, pinned) }}
			}
			err := w.run(enrollment, map[string]any{"run_inspection": true, "node_uuid": pinned, "infrastructure_ref": other1})
			if joins && err != nil || !joins && act.Code(err) != codes.EnrollmentProofUnavailable {
				t.Fatal(err)
			}
			d := w.device()
			if proven := d.ProvenRef() == pinned; proven != joins || w.uuid != pinned {
				t.Errorf("node %s, %+v", w.uuid, d.Proof)
			}
		})
	}
}
