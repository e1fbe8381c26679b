// Package bmc is what workflows do with the BMC of a machine: verify_connectivity,
// which shows that it answers and takes the credential that we have for it.
package bmc

import "github.com/musterhq/muster/workflows/act"

// Family is the workflows of this package.
func Family() act.Family {
	return act.Family{
		Workflows: map[string]act.Workflow{"verify_connectivity": verifyConnectivity},
		Activities: func(s *act.Site) map[string]any {
			v := &verification{site: s}
			return map[string]any{actVerifyBMC: v.verify}
		},
	}
}
