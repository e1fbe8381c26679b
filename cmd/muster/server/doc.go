// Package server makes one replica of muster out of its parts: the database
// behind them, the policy that all of them follow, the reconciler and the API
// as roles, one registry of metrics, one end. `muster serve` and `muster dev`
// run it; what each of them starts from is theirs. It decides nothing.
package server
