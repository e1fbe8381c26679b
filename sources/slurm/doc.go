// Package slurm reads the nodes of one SLURM cluster through slurmrestd, drains
// and resumes them, and takes them out of the cluster's service and back.
//
// Data comes from GET /slurm/VERSION/nodes and /node/NAME, of any version from
// v0.0.36 to the newest known, and goes out as facts.Slurm keyed by the node's
// name. Every spelling of a node's state becomes one set of tokens; what a
// token means for a device is policy and not known here. Nor does the package
// conclude anything from a node's absence, or wait for a drain to finish.
package slurm
