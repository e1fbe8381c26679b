package ironic

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic/ironictest"
)

const patience = 60 * time.Second

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it differs (-want +got):\n%s", diff)
	}
}

const instanceID = "11111111-2222-4333-8444-555555555555"

func conformLife(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	for _, step := range []struct {
		verb nodes.TargetProvisionState
		want facts.ProvisionState
	}{
		{nodes.TargetManage, facts.ProvisionStateManageable},
		{nodes.TargetManage, facts.ProvisionStateManageable}, // there already
		{nodes.TargetInspect, facts.ProvisionStateManageable},
		{nodes.TargetProvide, facts.ProvisionStateAvailable},
		{nodes.TargetActive, facts.ProvisionStateActive},
		{nodes.TargetRebuild, facts.ProvisionStateActive},
		{nodes.TargetDeleted, facts.ProvisionStateAvailable},
		{nodes.TargetDeleted, facts.ProvisionStateAvailable},
	} {
		r, err := c.Provision(t.Context(), id, nodes.ProvisionStateOpts{Target: step.verb}, patience)
		must(t, err)
		if r.Ironic.ProvisionState != step.want || r.Ironic.Reservation != facts.TextOf("") || r.Ironic.ProvisionUpdatedAt.IsZero() {
			t.Fatalf("after %s: %+v", step.verb, r.Ironic)
		}
	}
}

func conformMark(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	must(t, p.admin.Enroll(t.Context(), id))
	must(t, p.admin.Deploy(t.Context(), id, instanceID, Mark("job-7", instanceID)))
	for _, step := range []struct {
		name string
		mark any
		ours facts.Bool
	}{
		{"our mark", Mark("job-7", instanceID), facts.True},
		{"our mark of another instance", Mark("job-7", "99999999-2222-4333-8444-555555555555"), facts.False},
		{"somebody else's mark", "other:job:" + instanceID, facts.False},
		{"no mark", nil, facts.False},
	} {
		must(t, p.admin.Set(t.Context(), id, "/extra/muster", step.mark))
		r, err := c.Get(t.Context(), id)
		must(t, err)
		f := r.Ironic
		if f.OurMark != step.ours || f.InstanceBound != facts.True || f.InstanceUUID != facts.TextOf(instanceID) || f.ProvisionState != facts.ProvisionStateActive {
			t.Errorf("%s: %+v", step.name, f)
		}
	}
	must(t, p.admin.Set(t.Context(), id, "/extra/muster", Mark("job-7", instanceID)))
	must(t, p.admin.Undeploy(t.Context(), id))
	r, err := c.Get(t.Context(), id)
	must(t, err)
	if r.Ironic.InstanceBound != facts.False || r.Ironic.OurMark != facts.False || r.Ironic.InstanceUUID.Known {
		t.Errorf("after undeploy: %+v", r.Ironic)
	}
}

func conformMaintenance(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	for range 2 { // the second time it is as wanted already
		r, err := c.SetMaintenance(t.Context(), id, "muster:7", "node swap")
		must(t, err)
		if r.Ironic.Maintenance != facts.True || r.Ironic.MaintenanceReason != facts.TextOf("muster:7 node swap") {
			t.Fatalf("%+v", r.Ironic)
		}
	}
	// muster:70 is another job, though its mark begins alike.
	_, err := c.ClearMaintenance(t.Context(), id, "muster:70", Repair{CleanFailure: true})
	wantForeign(t, err)
	for range 2 {
		r, err := c.ClearMaintenance(t.Context(), id, "muster:7", Repair{})
		must(t, err)
		if r.Ironic.Maintenance != facts.False {
			t.Fatalf("%+v", r.Ironic)
		}
	}
	must(t, p.admin.Hold(t.Context(), id, "do not touch"))
	_, err = c.SetMaintenance(t.Context(), id, "muster:7", "node swap")
	wantForeign(t, err)
	_, err = c.ClearMaintenance(t.Context(), id, "muster:7", Repair{CleanFailure: true})
	wantForeign(t, err)
	r, err := c.Get(t.Context(), id)
	must(t, err)
	if r.Ironic.MaintenanceReason != facts.TextOf("do not touch") {
		t.Errorf("the operator's hold became %+v", r.Ironic)
	}
}

func conformCleanFailure(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	must(t, p.admin.Manage(t.Context(), id))
	must(t, p.admin.FailCleaning(t.Context(), id))
	r, err := c.Get(t.Context(), id)
	must(t, err)
	f := r.Ironic
	if f.ProvisionState != facts.ProvisionStateCleanFailed || f.Maintenance != facts.True || f.Fault != facts.TextOf("clean failure") || !f.LastError.Known {
		t.Fatalf("%+v", f)
	}
	_, err = c.ClearMaintenance(t.Context(), id, "muster:7", Repair{})
	wantForeign(t, err)
	r, err = c.ClearMaintenance(t.Context(), id, "muster:7", Repair{CleanFailure: true})
	must(t, err)
	if r.Ironic.Maintenance != facts.False {
		t.Fatalf("%+v", r.Ironic)
	}

	// A hold on top of Ironic's own maintenance: the fault stays, the reason is theirs.
	held := p.node(t, ironictest.Node{})
	must(t, p.admin.Manage(t.Context(), held))
	must(t, p.admin.FailCleaning(t.Context(), held))
	must(t, p.admin.Hold(t.Context(), held, "do not touch"))
	r, err = c.Get(t.Context(), held)
	must(t, err)
	if r.Ironic.Fault != facts.TextOf("clean failure") || r.Ironic.MaintenanceReason != facts.TextOf("do not touch") {
		t.Fatalf("%+v", r.Ironic)
	}
	_, err = c.ClearMaintenance(t.Context(), held, "muster:7", Repair{CleanFailure: true})
	wantForeign(t, err)
}

func wantForeign(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrForeign) {
		t.Fatalf("the error is %v, not ErrForeign", err)
	}
	wantKind(t, err, sources.KindConflict)
}

func conformLessee(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	for _, step := range [][2]string{{"", "enrol"}, {"enrol", "slurm"}, {"anything", "slurm"}, {"slurm", ""}, {"x", ""}} {
		r, err := c.SetLessee(t.Context(), id, step[0], step[1])
		must(t, err)
		if r.Ironic.Lessee != facts.TextOf(step[1]) {
			t.Fatalf("after %q: %+v", step, r.Ironic.Lessee)
		}
	}
	must(t, p.admin.Set(t.Context(), id, "/lessee", "customer"))
	_, err := c.SetLessee(t.Context(), id, "enrol", "slurm")
	wantKind(t, err, sources.KindConflict)
}

func conformTraits(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{Traits: []string{"CUSTOM_THEIRS"}}), p.client(t)
	for range 2 {
		r, err := c.AddTrait(t.Context(), id, "CUSTOM_READY")
		must(t, err)
		equal(t, r.Ironic.Traits, []string{"CUSTOM_READY", "CUSTOM_THEIRS"})
	}
	for range 2 {
		r, err := c.RemoveTrait(t.Context(), id, "CUSTOM_READY")
		must(t, err)
		equal(t, r.Ironic.Traits, []string{"CUSTOM_THEIRS"})
	}
	_, err := c.AddTrait(t.Context(), id, "../maintenance")
	wantKind(t, err, sources.KindRefused)
}

func conformPower(t *testing.T, p *peer) {
	id, c := p.node(t, ironictest.Node{}), p.client(t)
	must(t, p.admin.Manage(t.Context(), id))
	for _, step := range []struct {
		target nodes.TargetPowerState
		want   string
	}{
		{nodes.PowerOn, "power on"}, {nodes.PowerOn, "power on"}, {nodes.Rebooting, "power on"}, {nodes.SoftPowerOff, "power off"}, {nodes.PowerOff, "power off"},
	} {
		r, err := c.SetPower(t.Context(), id, step.target, patience, nil)
		must(t, err)
		if r.Ironic.PowerState != facts.TextOf(step.want) || r.Ironic.TargetPowerState.Known {
			t.Fatalf("after %s: %+v", step.target, r.Ironic)
		}
	}
}

func conformLock(t *testing.T, p *peer) {
	var m meter
	id, c := p.node(t, ironictest.Node{}), p.client(t, func(c *Config) { c.HTTP.Meter = &m })
	must(t, p.admin.Manage(t.Context(), id))
	must(t, p.admin.StartClean(t.Context(), id))
	r, err := c.SetLessee(t.Context(), id, "", "slurm")
	must(t, err)
	if r.Ironic.Lessee != facts.TextOf("slurm") {
		t.Fatalf("%+v", r.Ironic)
	}
	if m.conflicts.Load() == 0 {
		t.Error("no lock was met: start the peer with IRONIC_FAKE_BIOS=2")
	}
}

func conformCredentials(t *testing.T, p *peer) {
	c := p.client(t, func(c *Config) { c.Password = "wrong-password" })
	_, err := c.List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindForbidden)
}

func conformToken(t *testing.T, p *peer) {
	c := p.client(t)
	list(t, c)
	for range 2 {
		c.service.SetToken("not-a-token")
		list(t, c)
	}
	if c.service.Token() == "not-a-token" {
		t.Error("the token was not replaced")
	}
}

func conformApplicationCredential(t *testing.T, p *peer) {
	provider, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: p.config.Keystone.URL, Username: p.config.User, Password: p.config.Password, DomainID: "default", TenantName: p.config.Keystone.Project,
	})
	must(t, err)
	identity, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	must(t, err)
	user, err := provider.GetAuthResult().(tokens.CreateResult).ExtractUser()
	must(t, err)
	made, err := applicationcredentials.Create(t.Context(), identity, user.ID, applicationcredentials.CreateOpts{
		Name: "conformance-" + time.Now().Format(time.RFC3339Nano), Secret: "s3cret",
	}).Extract()
	must(t, err)
	c := p.client(t, func(c *Config) {
		c.User, c.Password, c.Keystone.Project = "", "", ""
		c.Keystone.ApplicationCredential, c.Keystone.ApplicationSecret = made.ID, "s3cret"
	})
	id := p.node(t, ironictest.Node{})
	if records, _ := list(t, c); records[id].Ironic == nil {
		t.Error("the listing lacks the node")
	}
	must(t, applicationcredentials.Delete(t.Context(), identity, user.ID, made.ID).ExtractErr())
	c.access.Forget(c.service)
	c.service.SetToken("not-a-token")
	_, err = c.List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindForbidden)
}
