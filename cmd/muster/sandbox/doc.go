// Package sandbox runs a command again in a child process that may use only so
// much memory, CPU and time. Policies under review are untrusted input: one
// that CUE needs forever or all memory for must end the command, not the
// machine that reviews it.
//
// It does not keep a child from files or the network: loading a bundle reads
// its folder alone and resolves no module.
package sandbox
