// Package dhcp has a site's DHCP service give a device's interface always the
// same address, and ends that (docs/contracts.md, DHCP). It decides neither
// which interface nor which address: enrolment takes both from the inventory.
package dhcp
