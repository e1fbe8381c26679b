// Package facts holds what the source systems say of a device, typed and
// unjudged. The types, the enum tables and the table of fields are generated
// from schema/facts.cue, so that Go and policy cannot drift; the absent value
// of every fact is its Go zero value, null. Complete adds the few derived
// facts. The package knows no policy, no database and no network: adapters
// make facts, the engine judges them, the store keeps them as JSON.
package facts

//go:generate go run ./gen
