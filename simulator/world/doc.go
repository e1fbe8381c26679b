// Package world is the one simulated fleet behind every protocol that the
// simulator speaks: its machines, and what Ironic, Placement, Nova, SLURM and
// NetBox hold of them. The faces read and change it and nothing else, so that
// what one system says and what another says always follow from the same world.
//
// Identities come from a seed: the same shape and seed give the same fleet. What
// happens to it is kept in a journal in the data directory; a request from
// outside is on the disk before it is answered, and the next start begins where
// the last one ended, however that was. Time is the caller's clock, moved on by
// Advance; what takes time (a deployment, a boot, a power cycle) is a timer of
// its row and is settled when somebody looks.
//
// It knows no protocol and nothing of muster.
package world
