// Package handover is what moves a machine between customers and us:
// move_to_test_cluster takes it from them and puts it into SLURM with an image of
// ours, release_to_customer_pool takes it out of SLURM again and hands it back.
// What custody means at a site decides what either does (engagement_mode).
//
// The state that a step finds decides what it does, so that a job that was broken
// off is gone on with by the next one. An instance is deleted only if it is the
// one that was approved, or one that we bound: its node is leased to SLURM's
// project, or carries our mark, which names it. What a customer's hand-off rests
// on is read again by the activity that makes it (devices.HandOff).
//
// Nodes are read, and cleaned, by package workflows/node.
package handover

import "github.com/musterhq/muster/workflows/act"

// Family is the workflows of this package.
func Family() act.Family {
	return act.Family{
		Workflows: map[string]act.Workflow{"move_to_test_cluster": move, "release_to_customer_pool": release},
		Activities: func(s *act.Site) map[string]any {
			h := &hand{site: s}
			return map[string]any{
				actCordon: h.cordon, actReclaim: h.reclaim, actSettle: h.settle, actLease: h.lease, actDeploy: h.deploy, actAwaitDeploy: h.awaitDeploy,
				actRegister: h.register, actWithdraw: h.withdraw,
				actLook: h.look, actDrain: h.drain, actUndrain: h.undrain, actRemove: h.remove, actUnbind: h.unbind, actReturn: h.giveBack, actHandOff: h.handOff,
				actAwaitGone: h.awaitGone,
			}
		},
	}
}

// hand is the activities at one site.
type hand struct{ site *act.Site }
