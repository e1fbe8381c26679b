package world

import (
	"encoding/json"
	"fmt"
	"strings"
)

// FaultClean is the fault of a node whose cleaning failed.
const FaultClean = "clean failure"

// fakeHardware is the driver of nodes without a machine.
const fakeHardware = "fake-hardware"

// fail ends a work that failed.
func (s *State) fail(n *Node, why string) {
	work := n.Work
	if n.Fails == work {
		n.Fails = ""
	}
	state, target := map[string]string{
		WorkVerify: Enroll, WorkClean: CleanFailed, WorkDeploy: DeployFailed, WorkInspect: InspectFailed, WorkAdopt: AdoptFailed,
		WorkDelete: Failed, WorkRescue: RescueFailed, WorkUnrescue: UnrescueFailed,
	}[work], n.TargetProvision
	if state == Enroll || state == Failed {
		target = ""
	}
	n.LastError = failureText(n, work, why)
	s.rest(n, state)
	n.TargetProvision = target
	if work == WorkClean && !unsupported(n) && s.reach(n) == "" { // Ironic sets it once a step was under way
		n.Maintenance, n.Fault = true, FaultClean
		if n.Reason == "" {
			n.Reason = n.LastError
		}
	}
	n.Steps = nil
	s.instanceFailed(n, work)
}

// failureText is how Ironic words the failure of a work.
func failureText(n *Node, work, why string) string {
	switch work {
	case WorkVerify:
		return fmt.Sprintf("Failed to get power state for node %s. Error: %s", n.UUID, why)
	case WorkClean:
		switch {
		case unsupported(n):
			return why
		case strings.Contains(why, "Redfish"):
			return fmt.Sprintf("Failed to prepare node %s for cleaning: %s", n.UUID, why)
		}
		return fmt.Sprintf("Node %s failed step %s: %s", n.UUID, stepText(n), why)
	case WorkDeploy:
		return fmt.Sprintf("Deploy step deploy.deploy failed on node %s. %s", n.UUID, why)
	case WorkInspect:
		return "Failed to inspect hardware. Reason: " + why
	case WorkAdopt:
		return fmt.Sprintf("Error while attempting to adopt node %s: %s", n.UUID, why)
	case WorkDelete:
		return "Failed to tear down. Error: " + why
	case WorkRescue:
		return "Failed to rescue. Error: " + why
	}
	return "Failed to unrescue. Error: " + why
}

// cleanFault gives what a manual clean trips over: a step that the node's fake
// interfaces lack, settings that the step cannot read.
func cleanFault(n *Node) string {
	if unsupported(n) {
		return fmt.Sprintf("Cannot clean node %s: node does not support this clean step: {'interface': '%s', 'step': '%s'}",
			n.UUID, n.Steps[0].Interface, n.Steps[0].Step)
	}
	for _, step := range n.Steps {
		settings, _ := step.Args["settings"].([]any)
		for _, one := range settings {
			if setting, _ := one.(map[string]any); setting["name"] == nil {
				return "'name'"
			}
		}
	}
	if n.Fails == WorkClean {
		return "the simulated clean was told to fail"
	}
	return ""
}

// cleanSteps are the steps that nodes know, by their interface.
var cleanSteps = map[string]string{
	"bios":       " factory_reset apply_configuration ",
	"raid":       " create_configuration delete_configuration ",
	"management": " reset_idrac clear_job_queue reset_bios_to_default update_firmware ",
	"deploy":     " erase_devices erase_devices_metadata burnin_cpu burnin_memory burnin_disk burnin_network ",
	"power":      " ",
}

func unsupported(n *Node) bool {
	for _, step := range n.Steps {
		if !strings.Contains(cleanSteps[step.Interface], " "+step.Step+" ") {
			return true
		}
	}
	return false
}

// stepText is a step as Python prints it.
func stepText(n *Node) string {
	step := Step{Interface: "deploy", Step: "erase_devices_metadata"}
	if len(n.Steps) > 0 {
		step = n.Steps[0]
	}
	args := ""
	if step.Args != nil {
		if body, err := json.Marshal(step.Args); err == nil {
			args = ", 'args': " + strings.ReplaceAll(string(body), `"`, "'")
		}
	}
	return fmt.Sprintf("{'interface': '%s', 'step': '%s'%s, 'abortable': False, 'priority': 0}", step.Interface, step.Step, args)
}

// abort ends a waiting work on request.
func (s *State) abort(n *Node) {
	state, text := CleanFailed, "By request, the clean operation was aborted"
	switch n.ProvisionState {
	case InspectWait:
		state, text = InspectFailed, "Inspection was aborted by request."
	case RescueWait:
		state, text = RescueFailed, "By request, the rescue operation was aborted."
	}
	target := n.TargetProvision
	s.rest(n, state)
	n.LastError, n.TargetProvision, n.Steps = text, target, nil
}
