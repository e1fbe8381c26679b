//go:build !race

package schema_test

const underRace = false
