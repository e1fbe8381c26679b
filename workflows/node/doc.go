// Package node is what workflows do with one node of Ironic: reading what decides
// a step, telling failures apart by their codes, and ironic_node_clean, which takes
// a node whose clean failed back to available.
//
// It writes through package sources/ironic, which sees to it that a write is done
// once and read back. What is done with customers' machines is elsewhere
// (workflows/handover), as is the making of nodes (workflows/enrol).
package node

import "github.com/musterhq/muster/workflows/act"

// Family is the workflows of this package.
func Family() act.Family {
	return act.Family{
		Workflows: map[string]act.Workflow{"ironic_node_clean": cleanNode},
		Activities: func(s *act.Site) map[string]any {
			c := &cleaning{site: s}
			return map[string]any{actCleanPrepare: c.prepareClean, actCleanManage: c.manage, actCleanProvide: c.provide, actCleanAwait: c.awaitClean}
		},
	}
}
