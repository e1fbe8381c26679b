// Package fleet is the domain: devices, sites, racks, conditions and their
// history, and the pure rules on them: how a record joins a device, what a
// listing's end allows to be concluded, what is fresh. It reads no database
// and no clock; package store keeps its types, package devices changes them.
package fleet
