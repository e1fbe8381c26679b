// Package netbox is the simulator's NetBox: the inventory of all sites of the
// world over REST, in the ways of seven releases from 3.7 to 4.7, as recordings
// of real ones show them.
//
// It serves devices with their filters, pages, writes and bulk writes, and what
// devices refer to: racks, locations, sites, roles, types, manufacturers,
// platforms, tenants, tags, addresses of BMCs, custom fields. Interfaces, cables,
// users, the change log, event rules and GraphQL are not served. What may be
// written of anything but a device is what importing a rack needs.
package netbox
