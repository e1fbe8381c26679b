// Package simulator runs one simulated fleet as a process: it opens the world of
// a directory, puts the faces of the systems around it (Ironic, Keystone,
// Placement, Nova, slurmrestd, NetBox, Redfish, muster's own small contracts) on two ports of the loopback and
// says in a file of the directory where they are and with which secrets.
//
// One port speaks HTTP and tells the systems apart by path: /keystone/,
// /netbox/, /SITE/ironic/ and so on, /control/ for the simulator's own. The
// other one speaks TLS for every BMC: each is known by the local address, one of
// 127/8, that it is asked at.
//
// It knows nothing of muster; what muster calls a site is made of what it says
// elsewhere (cmd/muster/dev).
package simulator
