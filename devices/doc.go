// Package devices writes every change of a device, in one transaction with its
// history. Apply takes what a source said, Project verifies what is stored,
// Post and PostSnapshot take what others assert; all of them come to the same
// judgement: facts are merged under the row's lock, observed by the active
// bundle, and the device's conditions, scope, status and health follow. Reading
// is here too where it needs the same judgement: Standings and Explain.
//
// The package decides nothing that a policy decides, speaks to no source (the
// reconciler brings readings) and holds no SQL but a few words (package store).
package devices
