//go:build race

package schema_test

// underRace says that the race detector makes every load of a bundle some seven
// times as dear: what another test of the same code has shown is then left out.
const underRace = true
