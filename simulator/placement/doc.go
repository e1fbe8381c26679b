// Package placement is the face that a simulated site's Placement shows: the API
// of Placement 8.0 (versions 1.0 to 1.39) for flat fleets of bare metal:
// providers, inventories, traits, allocations with their generations, usages,
// candidates. It is held against the real one.
//
// It keeps nothing: providers are rows of the world, where the life of nodes and
// servers changes them too.
package placement
