package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// is waits for a status of the machine, which its newest history must tell too.
func (w *walk) is(t *testing.T, status want) {
	t.Helper()
	w.expect(t, machine, status)
	w.expectHistory(t, machine, status)
}

func (w *walk) racked(t *testing.T) {
	w.is(t, gone)
	w.until(t, "the BMC's address to be known", func() error {
		d, err := w.find(machine)
		if err == nil && (said(d.BMCAddress) != "127.84.0.2" || d.InventoryStatus != "staged" || d.DeviceClass != "cpu_baremetal") {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	w.refused(t, "enrollment_proof_missing", "move_to_test_cluster", machine)
}

func (w *walk) verified(t *testing.T) {
	w.toBMC.cut()
	w.ends(t, w.submit(t, "verify_connectivity", machine), "failed", "BMC_UNREACHABLE")
	w.toBMC.mend(t)
	w.does(t, "verify_connectivity", machine)
}

// gaveUp runs a workflow until it is in a phase that does not end, and cancels it
// there. What was cut is mended before the device is let go of.
func (w *walk) gaveUp(t *testing.T, cut *wire, phase, workflow string) {
	t.Helper()
	cut.cut()
	job := w.submit(t, workflow, machine)
	w.reaches(t, job, phase)
	w.cli(t, "job", "cancel", fmt.Sprint(job), "--reason", "it takes too long")
	w.ends(t, job, "cancelled", "")
	cut.mend(t)
	w.frees(t, job, workflow, machine)
}

// enrolled is given up while the BMC is silent, fails at hardware that is not what
// was ordered, and waits for a dead Ironic.
func (w *walk) enrolled(t *testing.T) {
	w.gaveUp(t, w.toBMC, "configure the BMC", "enrollment")
	w.inNetBox(t, "staged")
	w.is(t, gone)

	message := w.ends(t, w.submit(t, "enrollment", machine), "failed", "ENROLLMENT_HARDWARE_MISMATCH")
	if !strings.Contains(message, "cpus") || !strings.Contains(message, "policies/hardware/baremetal.cue:") {
		t.Errorf("the failure says %s", message)
	}
	w.inNetBox(t, "active", "ironic-enrolled")
	n := w.isNode(t, "manageable", enrolProject, "nobody's", false)
	if n.Driver != "fake-hardware" || n.Class != "baremetal" || n.Deploy != "fake" || n.Info["redfish_username"] != "admin" || !strings.HasPrefix(fmt.Sprint(n.Info["redfish_address"]), "https://127.84.0.2:") {
		t.Errorf("the node is %+v", n)
	}
	w.nodes[machine] = n.UUID
	w.is(t, notEnrolled)

	if err := w.ironic.Set(t.Context(), n.UUID, "/properties/cpus", 8); err != nil {
		t.Fatal(err)
	}
	w.ironic.kill(t)
	job := w.submit(t, "enrollment", machine)
	w.reaches(t, job, "find or create the node")
	w.ironic.start(t)
	w.ends(t, job, "succeeded", "")
	w.inNetBox(t, "active", "provisioned")
	w.isNode(t, "available", enrolProject, "nobody's", false)
	w.is(t, unleased)
	w.until(t, "the proof", func() error {
		d, err := w.find(machine)
		if err == nil && (said(d.ValidatedRef) != n.UUID || said(d.InfrastructureRef) != n.UUID) {
			err = fmt.Errorf("it is of %s", said(d.ValidatedRef))
		}
		return err
	})
	if !slices.ContainsFunc(w.events(t, machine), func(e event) bool { return e.Kind == "inventory" && e.Value == "active" }) {
		t.Error("its history does not tell that it became active in NetBox")
	}
	w.does(t, "enrollment", machine) // once more changes nothing
	w.isNode(t, "available", enrolProject, "nobody's", false)
}

// moved is cancelled while SLURM is silent, and carries on from its instance.
func (w *walk) moved(t *testing.T) {
	w.gaveUp(t, w.toSlurm, "register in SLURM", "move_to_test_cluster")
	before := w.isNode(t, "active", slurmProject, "ours", false)
	w.ofSlurm(t, false)
	w.is(t, unschedulable)

	w.does(t, "move_to_test_cluster", machine)
	if after := w.isNode(t, "active", slurmProject, "ours", false); said(after.Instance) != said(before.Instance) {
		t.Errorf("it was deployed twice: %s after %s", said(after.Instance), said(before.Instance))
	}
	w.ofSlurm(t, true)
	w.is(t, validating)
}

// released waits for the work that runs on the node, though muster is killed
// meanwhile, and is refused the hand-off when NetBox has changed its mind.
func (w *walk) released(t *testing.T) {
	finish := w.busy(t)
	job := w.submit(t, "release_to_customer_pool", machine)
	w.reaches(t, job, "drain the node and take it out of SLURM")
	w.until(t, "the drain", func() error {
		if said := w.scontrol(t, "show", "node", machine); !strings.Contains(said, "Reason=muster:") {
			return errors.New(said)
		}
		return nil
	})
	w.kill(t)
	w.isNode(t, "active", slurmProject, "ours", false)
	w.setNetBox(t, "offline")
	finish()
	w.start(t)
	w.ends(t, job, "failed", "RELEASE_INVENTORY_NOT_ACTIVE")
	w.ofSlurm(t, false)
	w.isNode(t, "available", enrolProject, "nobody's", false)
	w.until(t, "NetBox's word", func() error { return w.inventory("offline") })
	w.refused(t, "inventory_status_not_allowed", "release_to_customer_pool", machine)

	w.setNetBox(t, "active")
	w.until(t, "NetBox's word", func() error { return w.inventory("active") })
	w.is(t, unleased)
	w.does(t, "release_to_customer_pool", machine)
	w.ofSlurm(t, false)
	w.isNode(t, "available", enrolProject, "nobody's", true)
	w.is(t, available)
}

func (w *walk) inventory(status string) error {
	d, err := w.find(machine)
	if err == nil && d.InventoryStatus != status {
		err = fmt.Errorf("it is %s", d.InventoryStatus)
	}
	return err
}

// cordoned takes the machine from the pool without touching it, when it is free
// and when a customer has it.
func (w *walk) cordoned(t *testing.T) {
	w.does(t, "move_to_test_cluster", machine, "--param", "cordon_only=true")
	w.isNode(t, "available", enrolProject, "nobody's", false)
	w.is(t, unleased)
	w.does(t, "release_to_customer_pool", machine)
	w.is(t, available)

	if err := w.ironic.Deploy(t.Context(), w.nodes[machine], instance(3), ""); err != nil {
		t.Fatal(err)
	}
	w.is(t, inUse)
	w.refused(t, "instance_present", "move_to_test_cluster", machine)
	w.does(t, "move_to_test_cluster", machine, "--param", "cordon_only=true")
	w.isNode(t, "active", enrolProject, instance(3), false)
	w.until(t, "the cordon", func() error { return w.hasStatus(machine, "quarantine") })
	w.does(t, "release_to_customer_pool", machine)
	w.isNode(t, "active", enrolProject, instance(3), true)
	w.is(t, inUse)
}

// reclaimed takes the machine from its customer, and hands it to the next.
func (w *walk) reclaimed(t *testing.T) {
	w.does(t, "move_to_test_cluster", machine, "--param", "force_reclaim=true", "--reason", "the customer has left")
	w.isNode(t, "active", slurmProject, "ours", false)
	w.ofSlurm(t, true)
	w.is(t, validating)
	w.does(t, "release_to_customer_pool", machine)
	w.isNode(t, "available", enrolProject, "nobody's", true)
	w.is(t, available)
}

// cleaned recovers a node whose clean failed, once nobody else's hand is on it.
func (w *walk) cleaned(t *testing.T) {
	ctx, id := t.Context(), w.nodes[machine]
	if err := w.ironic.FailCleaning(ctx, id); err != nil {
		t.Fatal(err)
	}
	w.is(t, failed)
	if err := w.ironic.Unhold(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := w.ironic.Hold(ctx, id, "a hand on it"); err != nil {
		t.Fatal(err)
	}
	w.condition(t, machine, "Maintenance", "True", "MaintenanceSet")
	w.refused(t, "maintenance_foreign", "ironic_node_clean", machine)
	if err := w.ironic.Unhold(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := w.ironic.FailCleaning(ctx, id); err != nil { // Ironic's own maintenance again
		t.Fatal(err)
	}
	w.condition(t, machine, "Maintenance", "True", "MaintenanceFault")

	w.toIronic.cut()
	job := w.submit(t, "ironic_node_clean", machine)
	w.reaches(t, job, "clear maintenance")
	w.toIronic.mend(t)
	w.ends(t, job, "succeeded", "")
	w.isNode(t, "available", enrolProject, "nobody's", true)
	w.is(t, available)
}

// letGo refuses while the BMC is not reached: nothing is torn down before. A BMC
// that cannot be reset, as sushy-tools' cannot, is somebody else's to reset.
func (w *walk) letGo(t *testing.T) {
	w.refused(t, "operational_status_not_allowed", "node_unenrollment", machine)
	w.does(t, "move_to_test_cluster", machine, "--param", "cordon_only=true")
	w.is(t, unleased)

	w.gaveUp(t, w.toBMC, "see that nobody holds the node", "node_unenrollment")
	w.inNetBox(t, "active", "provisioned")
	w.isNode(t, "available", enrolProject, "nobody's", false)

	w.ends(t, w.submit(t, "node_unenrollment", machine), "failed", "BMC_FACTORY_RESET_REFUSED")
	w.inNetBox(t, "staged")
	if n, has := w.inIronic(t); has {
		t.Errorf("Ironic still has %+v", n)
	}
	w.is(t, gone)
	if d := w.device(t, machine); d.InfrastructureRef != nil {
		t.Errorf("it still carries the node %s", *d.InfrastructureRef)
	}
	w.refused(t, "enrollment_proof_missing", "move_to_test_cluster", machine)

	text, err := os.ReadFile(w.site)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.site, []byte(strings.Replace(string(text), "bmc: true", "bmc: false", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.cli(t, "site", "apply", "--data-dir", w.data, w.site)
	w.does(t, "node_unenrollment", machine)
	w.inNetBox(t, "staged")
	w.is(t, gone)
}
