// Package slurm is the simulator's slurmrestd: one site's cluster of the world
// in the words of the API versions that one release serves, mistakes and refusals
// included.
//
// Three generations are spoken, each named by its newest API version: 38 (SLURM
// 22.05), 42 (24.11) and 45 (26.05). What an object looks like in a version lies
// in shapes/, as a real server gave it; the values come from the world. It knows
// nodes, jobs and partitions; reservations are an empty list, accounting and
// diagnostics are not served.
package slurm
