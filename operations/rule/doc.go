// Package rule reads operation rules: which component types of a rack an
// operation takes in which order, how many at once, and how each step is tried
// and verified.
//
// A rule comes as JSON or YAML from a person, from the API, from the database or
// from policies/operations. It is read into a tree that keeps every value's line
// and column (tree.go, json.go, yaml.go), checked by schema/operation_rule.cue,
// which alone says what a rule may be (walk.go, together.go), and becomes a Rule
// in its normal form (rule.go): every default written out, every period in one
// spelling, so that the same rule is always the same bytes.
//
// Beside it are what needs a rule alone: what is odd but allowed (warn.go), how
// long it may take at most (worst.go), what its components have to be capable of
// (needs.go). Nothing here knows a rack, a request or a database.
package rule
