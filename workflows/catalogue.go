package workflows

import (
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/bmc"
	"github.com/musterhq/muster/workflows/enrol"
	"github.com/musterhq/muster/workflows/handover"
	"github.com/musterhq/muster/workflows/node"
)

// families are all that this version can do.
func families() []act.Family {
	return []act.Family{bmc.Family(), node.Family(), enrol.Family(), handover.Family()}
}

// works gives what this version can do with one device, by the slug of the
// catalogue.
func works() map[string]act.Workflow {
	all := map[string]act.Workflow{}
	for _, f := range families() {
		for slug, do := range f.Workflows {
			all[slug] = do
		}
	}
	return all
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

// registerActivities gives a worker every activity that touches a site.
func registerActivities(w worker.ActivityRegistry, s *act.Site) {
	for _, f := range families() {
		for name, do := range f.Activities(s) {
			w.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
		}
	}
}

const mainQueue = "muster" // of workflows and of activities that write rows

func siteQueue(prefix, site string) string { return SiteQueue(prefix, site) }

// SiteQueue is where activities that touch a site are taken from.
func SiteQueue(prefix, site string) string { return prefix + "site/" + site }
