// Package nova reads servers of one OpenStack Nova and deletes them, for the
// workflows that release, reclaim and unenrol nodes. It gives no facts and is
// never listed as a source: which instance a node has, Ironic and Placement say.
//
// Servers are decoded from the raw body, one at a time and one field at a time.
// Nova ignores a filter that its caller may not use, so what is asked for is
// checked again here. "No such server" is told from what Nova hides only by
// reading as an administrator: a user without that role gets 404 for every
// server of another project, and the node of none is shown to it. A server
// without a readable node is refused, not taken for one on no node.
package nova
