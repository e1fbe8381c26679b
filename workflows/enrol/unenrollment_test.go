package enrol

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/placement"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

// inService is a machine that was enrolled.
func inService(t *testing.T, site *act.Site, name string) *world {
	w := newWorld(t, site, name)
	w.ironicNode(other1, facts.ProvisionStateAvailable)
	w.exec(`update devices set infrastructure_ref = $2 where id = $1`, w.id, other1)
	w.status, w.tags, w.stored, w.lets, w.provider = "active", []string{"gpu", "provisioned"}, true, password, true
	return w
}

// left checks what an unenrolment leaves behind.
func (w *world) left(t *testing.T, status string) {
	t.Helper()
	if w.uuid != "" || w.provider || w.status != status || !slices.Equal(w.tags, []string{"gpu"}) || w.stored || w.lets != factory {
		t.Errorf("node %q, provider %t, %s %q, stored %t, the BMC takes %q", w.uuid, w.provider, w.status, w.tags, w.stored, w.lets)
	}
	resets := 0
	for _, did := range w.did {
		if did == "reset bmc" {
			resets++
		}
	}
	if resets != 1 {
		t.Errorf("the BMC was reset %d times: %q", resets, w.did)
	}
}

func TestAnUnenrolmentGoesInItsOrder(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
	want := []string{"declare unenrollment-c1-7", "delete node as muster:7", "delete provider", "status staged", "declare unenrollment-c1-7", "reset bmc", "remove credential"}
	if !slices.Equal(w.did, want) {
		t.Errorf("it did\n%q\nwant\n%q", w.did, want)
	}
}

// What gets the UUID of a deleted node later is not proven by that; the proof of
// another node stays.
func TestTheProofOfADeletedNodeEnds(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	for ref, after := range map[string]string{other1: "", "u-2": "u-2"} {
		w := inService(t, site, "proven-"+ref)
		w.exec(`update devices set enrollment_validated_ref = $2, enrollment_proof_source = 'enrolled', enrollment_validated_at = now() where id = $1`, w.id, ref)
		if err := w.run(unenrollment, nil); err != nil {
			t.Fatal(err)
		}
		if got := w.device().Proof; got.ValidatedRef != after {
			t.Errorf("of %s the proof is %+v", ref, got)
		}
	}
}

func TestAnUnenrolmentThatFailsOnceConverges(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	clean := inService(t, site, "clean")
	if err := clean.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	for i, call := range clean.calls {
		for name, f := range map[string]fault{
			"is not reached":     {kind: sources.KindTransient},
			"loses its answer":   {kind: sources.KindTransient, after: true},
			"is refused":         {kind: sources.KindRefused},
			"is done and denied": {kind: sources.KindForbidden, after: true},
		} {
			if call == "bmc reset" && f.after && f.kind == sources.KindTransient {
				continue // the client says that it does not know: see below
			}
			t.Run(fmt.Sprintf("%d %s %s", i+1, call, name), func(t *testing.T) {
				t.Parallel()
				w := inService(t, site, fmt.Sprintf("c%d-%s-%t", i, f.kind, f.after))
				w.failAt, w.fault = i+1, f
				err := w.run(unenrollment, nil)
				if err != nil && f.kind == sources.KindTransient {
					t.Fatal(err)
				}
				if err != nil {
					if act.Code(err) == "" {
						t.Errorf("it failed without a code: %v", err)
					}
					if err := w.runAs(unenrollment, 8, nil); err != nil {
						t.Fatal(err)
					}
				}
				if call == "store delete" && f.kind == sources.KindForbidden && f.after {
					return // all was done: the next job finds a BMC as it came, and resets it as it is asked to
				}
				w.left(t, "staged")
			})
		}
	}
}

func TestWhatAnUnenrolmentIsRefusedFor(t *testing.T) {
	t.Parallel()
	all, plain := spec(), spec()
	plain.PlacementEnabled = false
	nova1, ironicAlone := lab(t, all), lab(t, plain)
	for name, c := range map[string]struct {
		at   *act.Site
		set  func(*world)
		code codes.Failure // "": it is not refused
	}{
		"a server that Nova confirms":    {nova1, func(w *world) { bound(w); w.servers = []nova.Server{{ID: "i-1", Status: "ACTIVE"}} }, codes.UnenrollmentInstancePresent},
		"a server that Ironic lost":      {nova1, func(w *world) { w.servers = []nova.Server{{ID: "i-2", Status: "ERROR"}} }, codes.UnenrollmentInstancePresent},
		"a binding that Nova denies":     {nova1, bound, ""},
		"one of a node that is in use":   {nova1, func(w *world) { bound(w); w.node.ProvisionState = facts.ProvisionStateActive }, codes.IronicStateUnexpected},
		"allocations that outlived it":   {nova1, func(w *world) { w.held = []placement.Allocation{{Consumer: "i-3"}} }, codes.UnenrollmentProviderInUse},
		"without Nova, a bound instance": {ironicAlone, bound, codes.UnenrollmentInstancePresent},
		"without Nova, none":             {ironicAlone, func(w *world) { w.provider = false }, ""},
		"a BMC that nobody knows":        {nova1, func(w *world) { w.exec("update devices set bmc_address = '' where id = $1", w.id) }, codes.BMCAddressMissing},
		"a BMC that lets nobody in":      {nova1, func(w *world) { w.lets = "lost" }, codes.BMCCredentialRefused},
		"a binding that nobody can read": {nova1, func(w *world) { w.node.InstanceBound = facts.Null }, codes.IronicUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inService(t, c.at, name)
			c.set(w)
			err := w.run(unenrollment, nil)
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if err != nil && len(w.did) > 0 {
				t.Errorf("it was refused, and %q was done", w.did)
			}
		})
	}
}

func TestWhatBecomesOfTheStatusInNetBox(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	for _, c := range []struct{ was, is string }{
		{"active", "staged"}, {"failed", "staged"}, {"offline", "staged"}, {"staged", "staged"},
		{"rma", "rma"}, {"decommissioning", "decommissioning"}, {"decommissioned", "decommissioned"},
	} {
		t.Run(c.was, func(t *testing.T) {
			t.Parallel()
			w := inService(t, site, c.was)
			w.status = c.was
			if err := w.run(unenrollment, nil); err != nil {
				t.Fatal(err)
			}
			w.left(t, c.is)
			if declared := len(w.intents) > 0; declared != (c.was == "active") {
				t.Errorf("declared: %+v", w.intents)
			}
		})
	}
}

// A device that comes into the topology service's sight while its node is deleted
// is declared before it goes out of it.
func TestADeviceThatIsDiscoveredMeanwhileIsDeclared(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	w.status = "offline"
	w.meanwhile = map[string]func(){"placement delete": func() { w.status = "active" }}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
	declared, staged := slices.Index(w.did, "declare unenrollment-c1-7"), slices.Index(w.did, "status staged")
	if declared < 0 || declared > staged {
		t.Errorf("it did %q", w.did)
	}
}

// One that comes into sight right before it goes out of it is declared, too.
func TestADeviceThatIsDiscoveredAtTheLastMomentIsDeclared(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	w.status = "offline"
	reads := 0
	w.meanwhile = map[string]func(){"netbox read": func() {
		if reads++; reads == 3 {
			w.status = "active"
		}
	}}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
	declared, staged := slices.Index(w.did, "declare unenrollment-c1-7"), slices.Index(w.did, "status staged")
	if declared < 0 || declared > staged || len(w.intents) != 2 {
		t.Errorf("it did %q", w.did)
	}
}

func TestATopologyThatIsNotSyncedIsAWarning(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	w := inService(t, site, "c1")
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	last := 0
	for i, call := range w.calls {
		if call == "topology declare" {
			last = i + 1
		}
	}
	w = inService(t, site, "c2")
	w.failAt, w.fault = last, fault{kind: sources.KindRefused}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
	if last := w.phases()[len(w.phases())-1]; !strings.Contains(last, "warning: the topology was not synced") {
		t.Errorf("nobody is told: %q", w.phases())
	}
}

// Ironic takes a binding off an available node only, and a node that is to be
// deleted is brought to manageable first.
func TestADeletionThatCameHalfWayGoesOn(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	w := inService(t, site, "c1")
	bound(w)
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(w.calls, "ironic delete") + 1
	w = inService(t, site, "c2")
	bound(w)
	w.meanwhile = map[string]func(){"ironic delete": func() { w.node.ProvisionState = facts.ProvisionStateManageable }}
	w.failAt, w.fault = at, fault{kind: sources.KindTransient}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
}

// The device's row loses its node once Ironic is read without it.
func TestAResourceProviderThatOutlivedItsNodeIsDeleted(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	for _, c := range []struct {
		name    string
		set     func(*world)
		deletes bool
	}{
		{"the node is gone", func(w *world) { w.uuid = "" }, true},
		{"the node is another device's now", func(w *world) { w.node.Name = facts.TextOf("another") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := inService(t, site, c.name)
			w.exec(`insert into facts (device_id, source, site_id, ref, ref_gone, hash, body, seen_at) values ($1, 'ironic', $2, $3, true, '\x00', '{}', now())`, w.id, w.site.ID, fmt.Sprint("gone-", w.id))
			w.exec(`update devices set infrastructure_ref = '' where id = $1`, w.id)
			w.uuid = fmt.Sprint("gone-", w.id)
			c.set(w)
			if err := w.run(unenrollment, nil); err != nil {
				t.Fatal(err)
			}
			if w.provider == c.deletes || slices.ContainsFunc(w.did, func(did string) bool { return strings.HasPrefix(did, "delete node") }) {
				t.Errorf("provider %t, it did %q", w.provider, w.did)
			}
		})
	}
}

func TestANodeIsDeletedInOurOwnMaintenanceOnly(t *testing.T) {
	t.Parallel()
	site := lab(t, spec())
	for reason, code := range map[string]codes.Failure{"muster:5 to be deleted": "", "bad fan": codes.MaintenanceForeign} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := inService(t, site, strings.Fields(reason)[0])
			w.node.Maintenance, w.node.MaintenanceReason = facts.True, facts.TextOf(reason)
			err := w.run(unenrollment, nil)
			if act.Code(err) != code || code == "" && err != nil {
				t.Fatalf("%v, want %q", err, code)
			}
			if err == nil {
				w.left(t, "staged")
			}
		})
	}
}

// A worker that is lost in a reset may have made it: it is not made again.
func TestALostWorkerDoesNotResetAgain(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	w.before = func(walk *acttest.Walk) {
		walk.Env.OnActivity(actResetBMC, mock.Anything, mock.Anything).Return(false, temporal.NewHeartbeatTimeoutError()).Once()
	}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(w.did, "reset bmc") {
		t.Errorf("it did %q", w.did)
	}
	w.keptCredential(t)
	w.before = nil
	if err := w.runAs(unenrollment, 8, nil); err != nil { // the BMC was not reset
		t.Fatal(err)
	}
	w.left(t, "staged")
}

// Whether a reset whose answer is lost was made, nobody knows: the next job finds
// out.
func TestAResetIsNotAskedForTwice(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	w.lostReset = &sources.Error{Kind: sources.KindTransient, Op: "reset", Message: "lost", Err: redfish.ErrUnknownOutcome}
	if err := w.run(unenrollment, nil); err != nil {
		t.Fatal(err)
	}
	w.keptCredential(t)
	if err := w.runAs(unenrollment, 8, nil); err != nil {
		t.Fatal(err)
	}
	w.left(t, "staged")
}

// keptCredential checks that a reset which nobody confirms costs no credential.
func (w *world) keptCredential(t *testing.T) {
	t.Helper()
	if !w.stored {
		t.Errorf("the credential of a BMC that may still have it is gone: %q", w.did)
	}
	if last := w.phases()[len(w.phases())-1]; !strings.Contains(last, "kept the credential: the reset is not confirmed") {
		t.Errorf("nobody is told: %q", w.phases())
	}
}

func TestABMCThatLetsInAndRefusesItsResetKeepsItsCredential(t *testing.T) {
	t.Parallel()
	w := inService(t, lab(t, spec()), "c1")
	w.noReset = true
	if err := w.run(unenrollment, nil); act.Code(err) != codes.BMCFactoryResetRefused {
		t.Fatalf("%v, want %q", err, codes.BMCFactoryResetRefused)
	}
	if !w.stored {
		t.Errorf("its credential is gone: %q", w.did)
	}
}
