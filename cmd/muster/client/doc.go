// Package client asks a running server over its API, for the commands. It finds
// out where the server is and by which token: from flags, from the environment,
// or from the cli.json that `muster dev` leaves in its data directory. It keeps
// no state and decides nothing.
package client
