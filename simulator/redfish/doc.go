// Package redfish is the Redfish face of the simulated world: one handler that
// is the BMC of every machine. Which one is asked is told by the local address
// that the connection came in at. What it tells is rendered from the machine's
// row at each request, and what it is told to do is done to that row, so that
// Ironic, SLURM and the BMC never tell different worlds.
//
// The shapes are those of an OpenBMC on GB200 trays (host system and baseboard
// apart, resets by ActionInfo), an NVLink switch tray and a power shelf. It is
// strict by default: ETags that are enforced, sessions that run out, parameters
// that are checked, updates that are tasks and may fail.
//
// Besides it replays a captured tree (Replay) and makes the certificates that
// the BMCs answer with (Authority). It opens no ports.
package redfish
