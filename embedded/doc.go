// Package embedded starts the servers that muster can bring along when an
// operator gives it none, and owns them: a private PostgreSQL, for `muster dev`
// and for tests (package pgtest), and a private Temporal, whose program is built
// from a module of its own, cmd/muster-temporal. A server is a child of this
// process, keeps everything under one directory, and ends with its owner
// however the owner ends, SIGKILL included; the next start picks the same
// directory up again, whatever was killed and when.
//
// It is not for production, where database.url and temporal.address name servers
// that others run, and it holds no schema and no query: callers get a URL and connect by
// themselves. Programs come from the machine (FindPostgres), never from the
// network. Nothing here deletes data, but for Discard, which tests use on servers
// made to throw away: a directory that this build cannot read is refused, and
// at most moved aside.
//
// DataDir is the guard of the directory as a whole: one owner at a time, and
// a record of the versions that wrote it.
//
// Linux only. Elsewhere the package compiles, and every start answers
// ErrUnsupported.
package embedded
