// Package contract speaks, for one site of a simulated world, the small contracts
// of muster's own (docs/contracts.md): DHCP reservations, credentials of BMCs,
// topology intents. What is asked of them is kept in the world and told as its
// effects; no effect has a secret in it.
package contract
