// Package operations takes requests for operations on racks, keeps the rules by
// which they are carried out, and keeps account of the tasks that they become, all
// in PostgreSQL.
//
// A rule comes from a person (rules.go, batch.go), is checked by package rule
// alone, and is kept in its normal form; it is checked again whenever it is
// loaded. Submit (request.go, targets.go, submit.go) makes one task of each rack:
// it resolves the rule, looks for what no component manager can do, and lets
// package jobs judge every device that the task locks, as it judges jobs. A task
// that may wait for others holds nothing meanwhile; Promote (promote.go) judges
// everything anew but the rule. What the running task says of itself comes in by
// Begin (begin.go), Note, Component, Finish, Child and Close (run.go).
//
// Nothing here speaks to Temporal or to a machine: package operations/rack runs
// what is in the table of executions.
//
// # Order of locks
//
// That of package jobs, with the racks' rows by id before the devices' rows, the
// rules that were resolved (shared) before those, and a task where a job stands.
package operations
