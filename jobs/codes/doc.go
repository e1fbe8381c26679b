// Package codes holds the failure codes of policies/failures as constants, so
// that a code that is none does not compile. What a code means, whose it is and
// what an operator does about it stays in the policy (engine.Bundle.Failure): the
// constants say only that the shipped catalogue has it.
//
// They are generated from policies/failures; make check tells when they are not
// what the policies say.
package codes

//go:generate go run ./gen

// Failure is a code that a device's work may fail with.
type Failure string
