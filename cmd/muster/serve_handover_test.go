package main

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/simulator"
)

// withSLURM gives the site's SLURM to muster, and an image that Ironic deploys by
// itself.
func withSLURM(spec object, e *simulator.Endpoints, site *simulator.Site) {
	spec["sources"].(object)["slurm"] = object{"url": site.SlurmURL, "user": "root", "token": "file:" + e.Secrets.Slurm, "interval": "2s"}
	spec["imaging"] = object{"direct": object{"image": "http://images.example/test.raw", "checksum": "d41d8cd98f00b204e9800998ecf8427e", "ssh_keys": []string{"ssh-ed25519 AAAA test"}}}
	spec["force_reclaim_enabled"] = true
}

// prove takes it that an enrolment has validated the node that a device has.
func (p *plant) prove(t *testing.T, devices ...string) {
	t.Helper()
	p.until(t, "nodes", "select count(*) = $2 from devices where name = any($1) and infrastructure_ref <> ''", devices, len(devices))
	if _, err := p.rows.Exec(t.Context(), `update devices set enrollment_validated_ref = infrastructure_ref, enrollment_proof_source = 'enrolled', enrollment_validated_at = now()
		where name = any($1)`, devices); err != nil {
		t.Fatal(err)
	}
}

// becomes waits for a device's operational status.
func (p *plant) becomes(t *testing.T, device, status string) {
	t.Helper()
	p.until(t, device+" to be "+status, "select operational_status = $2 from devices where name = $1", device, status)
}

// phase waits until a job is in a phase.
func (p *plant) phase(t *testing.T, job int64, phase string) {
	t.Helper()
	p.until(t, fmt.Sprintf("job %d to %s", job, phase), "select phase = $2 from job_devices where job_id = $1", job, phase)
}

func (p *plant) cancel(t *testing.T, job int64) {
	t.Helper()
	p.run(t, "job", "cancel", fmt.Sprint(job), "--reason", "test")
	p.ends(t, job, "cancelled", "")
	p.until(t, "the device to be free", "select not exists (select from device_locks where holder = $1)", fmt.Sprintf("job/%d", job))
}

// once fails for each effect on a machine that there was not exactly once.
func once(t *testing.T, did map[string]int, effects ...string) {
	t.Helper()
	for _, effect := range effects {
		if did[effect] != 1 {
			t.Errorf("%s was done %d times: %v", effect, did[effect], did)
		}
	}
}

// TestMachinesGoToSLURMAndBack moves machines of the simulated fleet into the test
// cluster and releases them, at a site whose images Ironic deploys by itself. Each
// step goes on where the one before has left it.
func TestMachinesGoToSLURMAndBack(t *testing.T) {
	t.Parallel()
	const machine, taken, lent, held, strange = "sim1-r01-c16", "sim1-r01-c05", "sim1-r01-c04", "sim1-r01-c15", "sim1-r01-c01"
	p, whole := newPlant(t, pgtest.Template(t, "migrated", migrated), withSLURM), t
	p.startTemporal(t)
	p.serve(t, "api,reconciler")
	worker := p.serve(t, "worker")
	p.prove(t, machine, taken, lent, held, strange)
	p.becomes(t, machine, "available")
	t.Run("moved, the worker being killed in the deployment", func(t *testing.T) {
		job := p.submit(t, "move_to_test_cluster", machine)
		p.phase(t, job, "deploy")
		worker.kill(t)
		worker = p.serve(whole, "worker")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, machine, "validation")
		p.keepHistory(t, job, "move_to_test_cluster")
		did := p.effects(t, machine)
		once(t, did, "remove trait CUSTOM_CUSTOMER_READY", "set provision active")
		once(t, p.effectsOf(t, "slurm", machine), "create node")
		if did["patch node"] != 2 { // its lease and our binding
			t.Errorf("the node was changed %d times", did["patch node"])
		}
	})
	t.Run("released, the worker being killed while it is cleaned", func(t *testing.T) {
		job := p.submit(t, "release_to_customer_pool", machine)
		p.phase(t, job, "wait until the node is clean")
		worker.kill(t)
		worker = p.serve(whole, "worker")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, machine, "available")
		p.keepHistory(t, job, "release_to_customer_pool")
		did := p.effects(t, machine)
		once(t, did, "set provision deleted", "add trait CUSTOM_CUSTOMER_READY")
		once(t, p.effectsOf(t, "slurm", machine), "update DRAIN", "delete node")
		if did["patch node"] != 4 { // besides: what is left of the binding, and the lease
			t.Errorf("the node was changed %d times", did["patch node"])
		}
	})
	t.Run("a cordon, and a release that undoes it", func(t *testing.T) {
		p.becomes(t, lent, "in_use")
		job := p.submit(t, "move_to_test_cluster", lent, "--param", "cordon_only=true")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, lent, "quarantine")
		p.keepHistory(t, job, "move_to_test_cluster_cordon")
		job = p.submit(t, "release_to_customer_pool", lent)
		p.ends(t, job, "succeeded", "")
		p.becomes(t, lent, "in_use")
		p.keepHistory(t, job, "release_to_customer_pool_cordoned")
		if did := p.effects(t, lent); len(did) != 2 {
			t.Errorf("its customer was not left alone: %v", did)
		}
	})
	t.Run("by force", func(t *testing.T) {
		p.becomes(t, taken, "in_use")
		job := p.submit(t, "move_to_test_cluster", taken, "--param", "force_reclaim=true", "--reason", "CHG-1")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, taken, "validation")
		p.keepHistory(t, job, "move_to_test_cluster_force")
		once(t, p.effects(t, taken), "set provision deleted", "set provision active")
	})
	t.Run("somebody else's drain", func(t *testing.T) {
		p.fault(t, "drain", taken)
		job := p.submit(t, "release_to_customer_pool", taken)
		p.ends(t, job, "failed", "SLURM_DRAIN_FOREIGN")
		p.keepHistory(t, job, "release_to_customer_pool_drained")
		p.fault(t, "resume", taken)
	})
	t.Run("a release that stays with us, cancelled while the node is cleaned and gone on with", func(t *testing.T) {
		job := p.submit(t, "release_to_customer_pool", taken, "--param", "release_to_customer_pool=false")
		p.phase(t, job, "wait until the node is clean")
		p.cancel(t, job)
		p.keepHistory(t, job, "release_to_customer_pool_cancelled")
		p.becomes(t, taken, "quarantine")
		job = p.submit(t, "release_to_customer_pool", taken, "--param", "release_to_customer_pool=false")
		p.ends(t, job, "succeeded", "")
		p.keepHistory(t, job, "release_to_customer_pool_internal")
		did := p.effects(t, taken)
		if did["set provision deleted"] != 2 || did["add trait CUSTOM_CUSTOMER_READY"] != 0 { // by force, and now
			t.Errorf("what was done: %v", did)
		}
	})
	t.Run("a deployment that fails", func(t *testing.T) {
		p.fault(t, "deploy-fails", taken)
		job := p.submit(t, "move_to_test_cluster", taken)
		p.ends(t, job, "failed", "IRONIC_DEPLOY_FAILED")
		p.becomes(t, taken, "failed")
		p.keepHistory(t, job, "move_to_test_cluster_failed")
		job = p.submit(t, "move_to_test_cluster", taken)
		p.ends(t, job, "failed", "IRONIC_DEPLOY_FAILED")
		p.keepHistory(t, job, "move_to_test_cluster_failed_before")
		if n := p.effects(t, taken)["set provision deleted"]; n != 2 {
			t.Errorf("an instance was deleted: %d", n)
		}
	})
	t.Run("a move that is cancelled in the deployment and gone on with", func(t *testing.T) {
		job := p.submit(t, "move_to_test_cluster", machine)
		p.phase(t, job, "deploy")
		p.cancel(t, job)
		p.keepHistory(t, job, "move_to_test_cluster_cancelled")
		p.until(t, "the mark to be seen", "select operational_status <> 'available' from devices where name = $1", machine)
		job = p.submit(t, "move_to_test_cluster", machine)
		p.ends(t, job, "succeeded", "")
		p.becomes(t, machine, "validation")
		p.keepHistory(t, job, "move_to_test_cluster_gone_on_with")
		if n := p.effects(t, machine)["set provision active"]; n != 2 {
			t.Errorf("it was deployed %d times, in two moves", n)
		}
	})
	t.Run("what a move and a release leave alone", func(t *testing.T) {
		job := p.submit(t, "move_to_test_cluster", held)
		p.ends(t, job, "failed", "MAINTENANCE_FOREIGN")
		p.keepHistory(t, job, "move_to_test_cluster_held")
		job = p.submit(t, "release_to_customer_pool", strange) // leased to SLURM, and nobody of ours put the instance there
		p.ends(t, job, "failed", "INSTANCE_NOT_OURS")
		p.keepHistory(t, job, "release_to_customer_pool_strange")
		for _, device := range []string{held, strange} {
			if did := p.effects(t, device); len(did) != 0 {
				t.Errorf("%s: %v", device, did)
			}
		}
		if did := p.effectsOf(t, "slurm", strange); len(did) != 0 {
			t.Errorf("%v", did)
		}
	})
}

// withNova gives the site's Nova to muster, and an image that Nova deploys.
func withNova(spec object, e *simulator.Endpoints, site *simulator.Site) {
	withSLURM(spec, e, site)
	sources := spec["sources"].(object)
	openstack := func(url string) object {
		return object{
			"url": url, "auth": site.IronicAuth, "username": e.User, "password": "file:" + e.Secrets.Password,
			"keystone": object{"url": site.Keystone, "project": site.Project, "region": site.Name},
		}
	}
	sources["placement"], sources["nova"] = openstack(site.Placement), openstack(site.Nova)
	sources["placement"].(object)["interval"] = "2s"
	spec["placement_enabled"] = true
	spec["imaging"] = object{"nova": object{
		"image": "6d757374-6572-4000-8000-696d61676500", "flavor": "baremetal.gb200", "network": "6d757374-6572-4000-8000-6e6574000000",
		"username": e.User, "password": "file:" + e.Secrets.Password, "project": site.Name + "-slurm",
	}}
}

// TestMachinesGoToSLURMAndBackThroughNova is the same at a site with Nova.
func TestMachinesGoToSLURMAndBackThroughNova(t *testing.T) {
	t.Parallel()
	const machine, busy, broken, taken = "sim1-r01-c07", "sim1-r01-c17", "sim1-r01-c02", "sim1-r01-c14"
	p, whole := newPlant(t, pgtest.Template(t, "migrated", migrated), withNova), t
	p.startTemporal(t)
	p.serve(t, "api,reconciler")
	worker := p.serve(t, "worker")
	p.prove(t, machine, busy, broken, taken)
	p.becomes(t, machine, "validation")
	t.Run("released, the worker being killed while it is cleaned", func(t *testing.T) {
		job := p.submit(t, "release_to_customer_pool", machine)
		p.phase(t, job, "wait until the node is clean")
		worker.kill(t)
		worker = p.serve(whole, "worker")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, machine, "available")
		p.keepHistory(t, job, "release_to_customer_pool_nova")
		once(t, p.effectsOf(t, "nova", machine), "delete server")
		once(t, p.effectsOf(t, "slurm", machine), "delete node")
		once(t, p.effects(t, machine), "add trait CUSTOM_CUSTOMER_READY")
	})
	t.Run("moved, the worker being killed in the deployment", func(t *testing.T) {
		job := p.submit(t, "move_to_test_cluster", machine)
		p.phase(t, job, "deploy")
		worker.kill(t)
		worker = p.serve(whole, "worker")
		p.ends(t, job, "succeeded", "")
		p.becomes(t, machine, "validation")
		p.keepHistory(t, job, "move_to_test_cluster_nova")
		once(t, p.effectsOf(t, "nova", machine), "create server")
		once(t, p.effects(t, machine), "remove trait CUSTOM_CUSTOMER_READY")
	})
	t.Run("a release that is cancelled while a job runs on the node", func(t *testing.T) {
		p.becomes(t, busy, "validation")
		job := p.submit(t, "release_to_customer_pool", busy)
		p.phase(t, job, "drain the node and take it out of SLURM")
		p.until(t, "the drain to be seen", "select slurm_states @> '{DRAIN}' from devices where name = $1", busy)
		p.cancel(t, job)
		p.until(t, "the drain to be taken back", "select not slurm_states @> '{DRAIN}' from devices where name = $1", busy)
		p.keepHistory(t, job, "release_to_customer_pool_cancelled_in_drain")
		if did := p.effectsOf(t, "nova", busy); len(did) != 0 {
			t.Errorf("its instance was touched: %v", did)
		}
	})
	t.Run("a move that is cancelled while the customer's node is cleaned", func(t *testing.T) {
		p.becomes(t, taken, "in_use")
		job := p.submit(t, "move_to_test_cluster", taken, "--param", "force_reclaim=true", "--reason", "CHG-2")
		p.phase(t, job, "wait until the instance is gone and the node clean")
		p.cancel(t, job)
		p.keepHistory(t, job, "move_to_test_cluster_cancelled_by_force")
		once(t, p.effectsOf(t, "nova", taken), "delete server")
	})
	t.Run("a machine whose clean failed is recovered, moved, and fails again when it is released", func(t *testing.T) {
		job := p.submit(t, "move_to_test_cluster", broken)
		p.phase(t, job, "clean")
		p.cancel(t, job)
		p.keepHistory(t, job, "move_to_test_cluster_cancelled_in_clean")
		job = p.submit(t, "move_to_test_cluster", broken)
		p.ends(t, job, "succeeded", "")
		p.becomes(t, broken, "validation")
		p.keepHistory(t, job, "move_to_test_cluster_recovered")
		p.fault(t, "clean-fails", broken)
		job = p.submit(t, "release_to_customer_pool", broken)
		p.ends(t, job, "failed", "IRONIC_CLEAN_FAILED")
		p.becomes(t, broken, "failed")
		p.keepHistory(t, job, "release_to_customer_pool_unclean")
		job = p.submit(t, "ironic_node_clean", broken)
		p.ends(t, job, "succeeded", "")
		p.becomes(t, broken, "quarantine")
		job = p.submit(t, "release_to_customer_pool", broken)
		p.ends(t, job, "succeeded", "")
		p.becomes(t, broken, "available")
		once(t, p.effects(t, broken), "add trait CUSTOM_CUSTOMER_READY")
	})
	t.Run("a release that is cancelled while the node is cleaned", func(t *testing.T) {
		job := p.submit(t, "release_to_customer_pool", machine)
		p.phase(t, job, "wait until the node is clean")
		p.cancel(t, job)
		p.keepHistory(t, job, "release_to_customer_pool_cancelled_nova")
	})
}
