package workflows

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs"
)

// works gives what this version can do with one device, by the slug of the
// catalogue.
func works() map[string]func(workflow.Context, *unit) error {
	return map[string]func(workflow.Context, *unit) error{
		"ironic_node_clean":   cleanNode,
		"verify_connectivity": verifyConnectivity,
	}
}

// Implemented tells how this version runs a workflow, and whether it does.
func Implemented(slug string) (jobs.Implementation, bool) {
	_, ok := works()[slug]
	return jobs.Implementation{}, ok
}

// registerWorkflows gives a worker every workflow, under its slug.
func registerWorkflows(w worker.WorkflowRegistry, prefix string) {
	for slug, do := range works() {
		w.RegisterWorkflowWithOptions(deviceWorkflow(prefix, do), workflow.RegisterOptions{Name: slug})
	}
}

const mainQueue = "muster" // of workflows and of activities that write rows

func siteQueue(prefix, site string) string { return prefix + "site/" + site }
