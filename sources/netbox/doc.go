// Package netbox reads the devices of one site from NetBox, 3.7 to 4.7, and
// writes what workflows change there: status, tags and custom fields.
//
// Data comes from GET /api/dcim/devices/ and /api/dcim/racks/ and goes out as
// facts.Netbox keyed by the device's id. Every generation's form of a field
// becomes one; what a role, a status or a tag means is policy and not known
// here. Nor does the package conclude anything from a device's absence: NetBox
// answers alike for what is deleted and for what a token may not see.
package netbox
