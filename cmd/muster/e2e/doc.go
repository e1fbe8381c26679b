// Package e2e holds the end-to-end tests: the built binary, an embedded
// PostgreSQL, a real Ironic and a real SLURM, driven as an operator drives
// them. They need MUSTER_PEERS=1 (`make test-peers`), since they start the
// peers by the scripts of testdata/peers.
package e2e
