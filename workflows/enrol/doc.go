// Package enrol brings machines under muster's control and lets them go again:
// enrollment, which takes a racked machine to a clean node of Ironic that is shown
// to be what its resource class says, and node_unenrollment, which undoes it.
//
// What is done with an enrolled node is elsewhere (workflows/node,
// workflows/handover). What a machine has to have is said by policies/hardware,
// which stages a site has and what its nodes are made from by the site's row
// (enrolment), the rest by the inventory: the addresses by the device's row, the
// interfaces by NetBox.
//
// No step of enrollment does anything to a node that carries somebody's instance,
// nor to one that is available or active: such a node is looked at only. A BMC's
// password is read where it is used and kept nowhere.
package enrol

import "github.com/musterhq/muster/workflows/act"

// Family is the workflows of this package.
func Family() act.Family {
	return act.Family{
		Workflows: map[string]act.Workflow{"enrollment": enrollment, "node_unenrollment": unenrollment},
		Activities: func(s *act.Site) map[string]any {
			e, r := &enrolling{site: s}, &removing{site: s}
			return map[string]any{
				actPlan: e.plan, actReserve: e.reserve, actBMC: e.configureBMC, actActivate: e.activate, actTag: e.tag,
				actNode: e.node, actRest: e.rest, actPorts: e.ports, actManage: e.manage, actInspect: e.inspect, actInspected: e.inspected,
				actValidate: e.validate, actLease: e.lease, actProvide: e.provide, actCleaned: e.cleaned,
				actProve: e.prove, actUnprove: e.unprove,

				actRemovalPlan: r.plan, actPreflight: r.preflight, actDeclare: r.declare, actDeleteNode: r.letGo,
				actDeleteProvider: r.deleteProvider, actStage: r.stage, actSync: r.sync, actResetBMC: r.resetBMC, actForget: r.forget,
			}
		},
	}
}
