// Package workflows does the work that package jobs has admitted: it hands
// executions to Temporal, runs them there as workflows and activities, and keeps
// the rows and Temporal agreed. A Runner is the role worker of a replica; any
// number of them share one database and one namespace.
//
// It decides neither whether work may be (jobs, by the policies) nor what a
// device is (devices, by what sources say). Rows are written through jobs.Service
// alone; the systems of a site are reached through package sources.
//
// There are two kinds of task queues: "muster" for workflows and for activities
// that write rows, "site/<name>" for activities that touch a site.
//
// # Life of a unit
//
// One workflow works on one device of one job, under the id that the row of the
// execution has. Its first activity (begin) makes the row running before any
// effect; its steps are activities that read what is so right before they write,
// and may run again at any time; finish ends the row. On a cancel the row is
// ended at once, then every activity is waited for, and only then does close
// free the device. The frame (deviceWorkflow) does all of this: a workflow is
// its steps.
//
// # Errors
//
// An activity fails with a code of package codes as the type of its error, by
// fail (tried again) or failFinal. An error without a code ends the device with
// INTERNAL_ERROR and counts in muster_job_internal_errors_total.
//
// Workflow code that has run somewhere is changed by workflow.GetVersion only;
// the histories in testdata are replayed by the tests.
package workflows
