// Package jobs admits work on devices and keeps account of it, all in
// PostgreSQL: whether a submission may be (Check), the submission itself with its
// locks in one transaction (Submit), what the running work says of itself (Begin,
// Progress, Finish, Child, Close), its cancel (Cancel), and what is still to be
// handed to Temporal or agreed with it (Dispatch, Expire, Missing, Found).
//
// It speaks to no Temporal and to no source: package workflows runs what is in
// the table of executions and calls back here from its activities; httpapi and
// the command line call Check, Submit, Cancel and ResetBreaker, and read lists
// from package store (ListJobs, JobDevices, JobExecutions, LocksOf, Breakers).
// Listeners hear of changes on store.JobsChannel, dispatchers of new work on
// store.ExecutionsChannel. What a gate, a cap or a breaker is, policies say.
//
// Work that is no workflow, an operation on a rack, is judged here too (Judge) and
// trips the same breakers (Trip). What is said of an execution that is a task's is
// handed on to who keeps tasks (Join): one dispatcher and one converger serve both.
//
// # Order of locks
//
// Whoever takes several kinds takes them in this order, so that nobody waits in
// a circle: the idempotency key, the active bundle (shared), the devices' rows by
// id, the caps by name, the job's row, its devices' rows, its executions, the
// locks of devices, breakers by name. A dispatcher holds one execution and
// nothing else.
//
// # Life of an execution
//
// Submit stores it unsent. Dispatch starts it by its workflow id under the lock
// of its row, so that a start and a cancel come in one order; it is sent then.
// Begin, its first activity, makes its devices running before any effect, or
// says that nothing may be done. Finish ends devices. An execution that came to
// its end by itself is closed with its last device; after a cancel, or where
// Temporal ended it, Close does so when every child and activity has ended, and
// only then are the devices free.
package jobs
