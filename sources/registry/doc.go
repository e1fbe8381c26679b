// Package registry gives the client of each source of each site: built when
// first used from the site's row, shared by all who use it (and with it the
// limits and the breaker of its endpoint), built anew when the row's revision
// changes, closed when nobody uses it any more.
//
// Secrets are named in the row and read here, when a client is built. A client
// that is refused for its credentials is dropped by its user, so that a secret
// that was rotated is read again.
//
// It lies under sources because adapters import package sources: this package
// imports them.
package registry
