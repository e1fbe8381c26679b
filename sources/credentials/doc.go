// Package credentials reads, makes and removes a device's own credential for its
// BMC in a site's credentials service (docs/contracts.md, credentials). It gives
// the credential to nobody: package redfish logs in with it.
//
// A password never leaves this package but in the field that holds it: no error,
// no log, no JSON and no formatting shows it.
package credentials
