// Package reconciler runs the loops that make facts into statuses. Its sweeps
// read every source of every site: page by page into devices.Apply, then what
// only a whole listing can tell (what is missing, which new record is whose
// device, who is born), then the watermark. Its projections verify every device
// of a site after each watermark and whenever time alone may change one.
//
// Any number of replicas share the work through leases in the database. Leases
// save work only: correctness comes from the order of instants and the row
// locks of package devices, so a replica that was paused in the middle of a
// sweep changes nothing when it comes back.
//
// The loops hold no state between two rounds and decide no status: what a
// record means is package engine's, what is missing and who joins whom is
// package fleet's, what is written is package devices'.
package reconciler
