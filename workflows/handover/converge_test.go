package handover

import (
	"fmt"
	"slices"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
)

const (
	customers = "cccccccc-0000-4000-8000-00000000000c" // instance of a customer
	tested    = "dddddddd-0000-4000-8000-00000000000d" // instance of ours
)

// occupiedBy has somebody's instance on the node.
func occupiedBy(instance, lessee, project string) func(*plant) {
	return func(p *plant) {
		p.f.ProvisionState, p.f.InstanceUUID, p.f.Lessee = facts.ProvisionStateActive, facts.TextOf(instance), facts.TextOf(lessee)
		p.servers[instance] = nova.Server{ID: instance, Name: "i", Project: project, Node: theNode, Status: "ACTIVE"}
	}
}

// inCluster has a machine in the middle of its tests.
func inCluster(p *plant) {
	occupiedBy(tested, "slurm", "slurm")(p)
	p.f.Traits, p.mark = nil, ironic.Mark("3", tested)
	p.inSlurm, p.states, p.jobs = true, facts.SlurmAllocated, 2
}

func cleanFailed(p *plant) {
	p.f.ProvisionState, p.f.Maintenance = facts.ProvisionStateCleanFailed, facts.True
	p.f.Fault, p.f.MaintenanceReason = facts.TextOf("clean failure"), facts.TextOf("disk")
}

// Whatever call of a client fails, before it took effect or after, the job that is
// run after the failed one ends well, and nothing was done twice.
func TestWorkIsGoneOnWithWhereItFailed(t *testing.T) {
	t.Parallel()
	move := func(m *machine, t *testing.T) error { return m.run(t, move, managed()) }
	back := func(m *machine, t *testing.T) error { return m.run(t, release, managed()) }
	for name, c := range map[string]struct {
		spec  fleet.SiteSpec
		found func(*plant)
		do    func(m *machine, t *testing.T) error
		did   []string
		ended func(p *plant) string
	}{
		"a move": {
			direct(), func(*plant) {}, move,
			[]string{"trait off", "lease slurm", "bind", "deploy", "create in slurm"}, inTests,
		},
		"a move of a node that was in the cluster before": {
			direct(), func(p *plant) { p.inSlurm, p.states, p.drainer = true, facts.SlurmIdle|facts.SlurmDrain, "muster:2" }, move,
			[]string{"trait off", "lease slurm", "bind", "deploy", "resume"}, inTests,
		},
		"a move of a node whose clean failed": {
			direct(), cleanFailed, move,
			[]string{"trait off", "lease slurm", "maintenance off", "provision manage", "provision provide", "bind", "deploy", "create in slurm"}, inTests,
		},
		"a move of a node whose clean failed, at a site without trait": {
			direct(legacy), func(p *plant) { cleanFailed(p); p.f.Traits, p.f.Lessee = nil, facts.TextOf("") }, move,
			[]string{"lease slurm", "maintenance off", "provision manage", "provision provide", "bind", "deploy", "create in slurm"}, inTests,
		},
		"a move through Nova": {
			direct(throughNova), func(*plant) {}, move,
			[]string{"trait off", "lease slurm", "create server", "create in slurm"}, inTests,
		},
		"a move at a site without trait": {
			direct(legacy), func(p *plant) { p.f.Traits, p.f.Lessee = nil, facts.TextOf("") }, move,
			[]string{"lease slurm", "bind", "deploy", "create in slurm"}, inTests,
		},
		"by force": {
			direct(), occupiedBy(customers, "customer", "customer"), forced,
			[]string{"trait off", "provision deleted", "lease slurm", "bind", "deploy", "create in slurm"}, inTests,
		},
		"by force through Nova": {
			direct(throughNova), occupiedBy(customers, "customer", "customer"), forced,
			[]string{"trait off", "delete server", "lease slurm", "create server", "create in slurm"}, inTests,
		},
		"a release": {
			direct(), inCluster, back,
			[]string{"drain", "provision deleted", "unbind", "lease enrol", "trait on"}, offered,
		},
		"a release through Nova": {
			direct(throughNova), func(p *plant) { inCluster(p); p.mark = "" }, back,
			[]string{"drain", "delete server", "lease enrol", "trait on"}, offered,
		},
		"a release at a site without trait": {
			direct(legacy), inCluster, back,
			[]string{"drain", "provision deleted", "unbind", "lease maintenance", "lease "}, offered,
		},
		"a release of what never was in the cluster": {
			direct(), func(p *plant) { p.f.Traits = nil }, back,
			[]string{"trait on"}, offered,
		},
		"a release that undoes a cordon": {
			direct(), func(p *plant) { occupiedBy(customers, "customer", "customer")(p); p.f.Traits = nil }, back,
			[]string{"trait on"}, func(p *plant) string { return fmt.Sprint(p.f.InstanceUUID.Value == customers, p.f.Lessee.Value) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.spec)
			whole := w.machine(t, newPlant(c.found))
			if err := c.do(whole, t); err != nil {
				t.Fatal(err)
			}
			want := c.ended(whole.plant)
			if !slices.Equal(whole.did, c.did) {
				t.Fatalf("it did %q, want %q", whole.did, c.did)
			}
			for call := 1; call <= whole.calls; call++ {
				for _, after := range []bool{false, true} {
					m := w.machine(t, newPlant(c.found))
					m.failAt, m.after = call, after
					if err := c.do(m, t); err == nil && m.failed != "netbox" { // which is asked again, whatever it says
						t.Fatalf("call %d of %d failed, and the job did not", call, whole.calls)
					}
					m.failAt = 0
					if err := c.do(m, t); err != nil {
						t.Errorf("after call %d failed (having taken effect: %v), doing %q: %v", call, after, m.did, err)
					}
					if got := c.ended(m.plant); got != want {
						t.Errorf("after call %d failed: %s, want %s", call, got, want)
					}
					for _, did := range m.did {
						n := m.times(did)
						if did == "drain" { // which the failed job took back
							n -= m.times("undrain")
						}
						if n != 1 {
							t.Errorf("after call %d failed: %s %d times: %q", call, did, n, m.did)
						}
					}
				}
			}
		})
	}
}

// forced moves a machine from its customer; once that is gone, no force is needed.
func forced(m *machine, t *testing.T) error {
	if m.f.InstanceUUID.Value != customers {
		return m.run(t, move, managed())
	}
	parameters := managed("force_reclaim")
	parameters["reclaim_instance"] = customers
	return m.run(t, move, parameters)
}

// inTests tells how a machine in the test cluster stands.
func inTests(p *plant) string {
	return fmt.Sprint(p.f.ProvisionState, p.f.InstanceUUID.Value != "", p.f.Lessee.Value, p.f.Traits, p.inSlurm, p.states.Tokens(), p.drainer)
}

// offered tells how a machine stands that customers may have.
func offered(p *plant) string {
	return fmt.Sprint(p.f.ProvisionState, p.f.InstanceUUID.Value, p.mark, p.f.Lessee.Value, p.f.Traits, p.states.Tokens())
}
