// Package ironic is the face that a simulated site's Ironic shows: the REST API
// of Ironic 21.4 (versions 1.1 to 1.82) as far as anybody needs it who runs a
// fleet. What it says and refuses, in which words and with which status, is held
// against the real one.
//
// It keeps nothing: every answer is read from the world, every request changes
// it once or not at all. What a verb sets going is the world's business.
package ironic
