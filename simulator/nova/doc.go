// Package nova is the face that a simulated site's Nova shows: the compute API
// 2.1 (to 2.93) for servers on bare metal, as its reference describes it: no
// real Nova was at hand to hold it against.
//
// It keeps nothing: servers are rows of the world, and what becomes of one is
// what becomes of its Ironic node.
package nova
