// Command bench measures what muster promises to be fast at, each beside a
// reference in the same run: hand-written Go, other policy engines, CUE itself,
// plain COPY and upsert. Only the ratios mean something on a shared machine.
//
// It is a module of its own, so that the engines it compares with stay out of
// muster's. It uses muster as the server does: the shipped bundle, the
// reconciler's sweeps, a real PostgreSQL that it starts for itself and throws
// away. The contenders' answers are compared before anything is timed: where
// one differs, it exits with 1 and no figures.
//
//	cd bench && go run .          # everything, some minutes
//	cd bench && go run . -quick   # a smoke test of it, about a minute
//
// The table goes to stdout, or with -out to a file as Markdown too.
package main
