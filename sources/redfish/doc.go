// Package redfish reads the BMCs of one site and does to them what workflows
// and operation rules ask for.
//
// Which BMCs there are, under which name and of which class, is the inventory's
// to say and is given by Config.Targets. A listing is a round: every BMC is
// asked once, a bounded number at a time, each with a deadline of its own; what
// it answers goes out as facts.BMC keyed by its address. Reading is by plain GETs
// of named paths into small tolerant forms of our own, so that one odd field
// costs that field; writing (sessions, resets, boot overrides, updates) is by
// gofish, each write read back by an observation newer than it.
//
// The package concludes nothing: what a health means for a device, which
// kind of reset stands for an operation and when a silent BMC counts as dead
// are policy. It dials only addresses inside the site's networks and never
// follows a link or a redirect to another host.
package redfish
