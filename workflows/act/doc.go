// Package act is the ground that the steps of workflows stand on: the work on one
// device as a workflow sees it (Unit, Step), a site as an activity sees it (Site),
// and failures with a code (Retry, Final).
//
// A family is a package of workflows that belong together, with the activities
// that are their steps. Package workflows runs them; what is around the steps (the
// row that says running, its end, a cancel) is there and no family's business.
//
// # What an activity keeps
//
// It may run again at any time, also beside a try of itself that was given up:
// it reads what is so right before it writes, and what is so already is success.
// It fails with a code of package codes, by Retry or Final; an error without a
// code ends the device with INTERNAL_ERROR. It waits with Wait. It beats by
// itself: its worker sees to that.
//
// What it is given and gives stays in Temporal's history: no secret is in it.
package act
