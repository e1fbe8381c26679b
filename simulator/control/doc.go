// Package control commands a running simulator over HTTP: what happens to its
// machines, how its faces misbehave, its time, and what was done to it. A token
// of its own keeps the door; `muster simulator` and the tests of kills and faults
// come through it.
//
//	GET    /world       what the fleet is and when it is
//	GET    /effects     ?since=N&face=F: what was done from outside, in its order
//	POST   /advance     {"by": "10m"}: time moves on
//	GET    /faults      the rules in force
//	POST   /faults      a fault of a face, or of a machine (the field device)
//	DELETE /faults      all rules; /faults/ID: one
//
// Faults of machines are changes of the world and are kept with it; rules of
// faces end with the process.
package control
