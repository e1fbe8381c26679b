// Package keystone gives the services of an OpenStack their clients: Ironic,
// Placement and Nova are reached through it. It finds a service's endpoint in
// Keystone's catalog, or takes the configured one, and keeps the token.
//
// A Login is one user of one Keystone. It is shared by the services of all
// sites that name the same user: each has its own transport, limits and breaker,
// and all have the same token, which is asked for again once for all when one of
// them is refused for it. A Pool shares logins.
//
// It reads no facts and knows no service's API: that is the adapters'.
package keystone
