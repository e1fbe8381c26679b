// Package service speaks to the small services that a site may have beside its
// large systems: dhcp, credentials and topology (docs/contracts.md). It knows
// what their contracts have in common: JSON over HTTP below /v1/, a bearer
// token, the form of a refusal, and that a 404 counts only where the service
// itself says it.
//
// It is not for systems with an API of their own: each of these has a folder
// beside this one. What the calls mean is said by the packages that use it.
package service
