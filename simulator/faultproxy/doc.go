// Package faultproxy lets an HTTP server misbehave by rules: answer with an
// error, late, never, half, in drops, with a page of HTML, with an empty listing,
// with pages that repeat or never end, by a clock that is off. The same rules
// stand as a middleware before a handler and, as a reverse proxy, before a real
// system.
//
// It knows the listings of the systems by their shape alone, and none of what
// they mean.
package faultproxy
