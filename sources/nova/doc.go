// Package nova reads servers of one OpenStack Nova, deletes them and creates them
// on a named node, for the workflows that move, release, reclaim and unenrol
// nodes. It gives no facts and is
// never listed as a source: which instance a node has, Ironic and Placement say.
//
// Servers are decoded from the raw body, one at a time and one field at a time.
// Nova ignores a filter that its caller may not use, so what is asked for is
// checked again here. "No such server" is told from what Nova hides only by
// reading as an administrator: a user without that role gets 404 for every
// server of another project, and the node of none is shown to it. A server
// without a readable node is refused, not taken for one on no node.
//
// Creating is not repeatable in Nova: a server is known by its exact name in its
// project, which is looked for before and, where the answer was lost, after. The
// microversion is agreed on anew for each: in 2.74 the node is told to the
// scheduler, which refuses one that is not free; before, zone::node goes past
// it. Either needs an administrator's role in the project, or a policy that
// gives compute:servers:create:requested_destination (before 2.74
// create:forced_host).
package nova
