// Package recorded reads a source from a file: a listing as `muster snapshot`
// writes it, DIR/<site>/<source>.json. The file is read anew for every listing
// and counts as read now, so that editing it is the world changing. It is for
// `muster dev --facts`, for sites whose inventory is a file, and for tests.
//
// It holds raw facts of one family, no conditions and no judgement. A missing
// or broken file is a failed listing; one bad record costs that record, one
// bad fact that fact.
package recorded
