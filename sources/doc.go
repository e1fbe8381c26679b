// Package sources is what every adapter to a source system gives and obeys:
// raw facts keyed by the source's own identity, page by page, and what the
// listing's end allows to be concluded. An adapter is a client and a pure
// mapping to facts. It holds no policy, joins nothing to a device and
// concludes nothing from absence: package reconciler does, against the stored
// refs.
package sources
