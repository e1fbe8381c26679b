// Package topology declares to a site's topology service what is to be changed
// in the fabric around a device (docs/contracts.md, topology): a declaration has
// a name, and declaring it again asks for the same once more. It changes no
// fabric itself and waits for no change.
package topology
