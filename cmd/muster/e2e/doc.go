// Package e2e holds the end-to-end tests: the built binary with its embedded
// PostgreSQL on real systems, driven as an operator drives them: Ironic with
// SLURM, with Placement, on BMCs that muster reads too, and below a NetBox; with a
// Temporal beside it jobs on all of these at once, and operations on a rack of
// BMCs. They need MUSTER_PEERS=1 (`make test-peers`), since they start the Ironics,
// SLURMs and BMCs that they kill or cut off by the scripts of testdata/peers; the
// others are those that MUSTER_PEER_* name.
package e2e
