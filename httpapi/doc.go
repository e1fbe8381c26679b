// Package httpapi serves what muster knows over HTTP: devices with their
// explained status, conditions, history, sites and their sources, policies. Its
// contract is the OpenAPI document in openapi/, which is served and by which
// every request is checked before a handler sees it.
//
// A handler reads rows through package store, asks package devices where age or
// judgement is needed, and writes through both; it decides nothing itself. What
// a caller may do is said once, in the table of routes: a route without a scope
// cannot be registered, and a device outside a caller's sites does not exist for
// it.
//
// The way of a request: server.go (limits, identity of the request, log),
// routes.go (which operation), auth.go (who, and may they), document.go (is it
// well formed), then one handler, then respond.go or problem.go.
package httpapi
