// Package engine loads a bundle of policies, vets it, compiles it and judges
// by it. A bundle is a CUE module: schema/ says what shapes and facts exist,
// policies/ says what the operators decided. CUE is the meaning of a policy,
// not its runtime: every pattern is compiled once, at load, by asking CUE which
// values it accepts, so that one judgement costs nanoseconds, allocates nothing
// and never calls CUE.
//
// The package is pure. It has no database, no network and no clock: facts come
// from the caller (package facts), a bundle comes as an fs.FS, and what is
// returned are values. Who stores a condition, locks a device or starts a
// workflow is none of its business.
//
// The way through it: source.go reads and hashes the tree, load.go builds it
// with CUE, pattern.go, leaf.go and compile.go turn patterns into cubes of
// field tests, ladder.go and table.go turn rungs into tables, family_*.go
// decode what each family gives, and observe.go, derive.go, judge.go and
// admit.go answer. The explain files answer the same questions slowly, with
// the whole trace.
package engine
