package main

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/embedded/pgtest"
)

// TestJobsOutliveTheirWorkersAndTemporal runs jobs on a real Temporal and a real
// database against the simulated fleet. Each step goes on where the one before has
// left it.
func TestJobsOutliveTheirWorkersAndTemporal(t *testing.T) {
	t.Parallel()
	p, whole := newPlant(t, pgtest.Template(t, "migrated", migrated)), t // what a step starts is there for the next ones
	p.startTemporal(t)
	p.serve(t, "api,reconciler")
	worker := p.serve(t, "worker")
	t.Run("a BMC that takes the credential", func(t *testing.T) {
		job := p.submit(t, "verify_connectivity", "sim1-r01-c01")
		p.ends(t, job, "succeeded", "")
		p.keepHistory(t, job, "verify_connectivity")
	})
	t.Run("a BMC that refuses it", func(t *testing.T) {
		p.fault(t, "bmc-refuses", "sim1-r01-c03")
		job := p.submit(t, "verify_connectivity", "sim1-r01-c03")
		p.ends(t, job, "failed", "BMC_CREDENTIAL_REFUSED")
		p.keepHistory(t, job, "verify_connectivity_refused")
	})
	t.Run("a cancel while a BMC hangs", func(t *testing.T) {
		p.fault(t, "bmc-hangs", "sim1-r01-c04")
		job := p.submit(t, "verify_connectivity", "sim1-r01-c04")
		p.until(t, "its work to begin", "select phase <> '' from job_devices where job_id = $1", job)
		p.run(t, "job", "cancel", fmt.Sprint(job), "--reason", "test")
		p.ends(t, job, "cancelled", "")
		p.until(t, "the device to be free", "select not exists (select from device_locks where holder = $1)", fmt.Sprintf("job/%d", job))
		p.keepHistory(t, job, "verify_connectivity_cancelled")
	})
	t.Run("kill -9 of the worker and of Temporal in a clean", func(t *testing.T) {
		job := p.submit(t, "ironic_node_clean", "sim1-r01-c02")
		p.until(t, "the clean", "select phase = 'clean' from job_devices where job_id = $1", job)
		worker.kill(t)
		kill(t, p.temporal)
		p.startTemporal(whole)
		p.serve(whole, "worker")
		p.ends(t, job, "succeeded", "")
		p.keepHistory(t, job, "ironic_node_clean")
		did := p.effects(t, "sim1-r01-c02")
		for _, once := range []string{"clear maintenance", "set provision manage", "set provision provide"} {
			if n := did[once]; n != 1 {
				t.Errorf("%s was done %d times: %v", once, n, did)
			}
		}
	})
	t.Run("a job that waits for Temporal", func(t *testing.T) {
		kill(t, p.temporal)
		job := p.submit(t, "verify_connectivity", "sim1-r01-c01")
		p.until(t, "a try", "select tries > 0 from executions where job_id = $1", job)
		p.startTemporal(whole)
		p.ends(t, job, "succeeded", "")
	})
}
