// Package capture takes down what a BMC answers, so that it can be replayed
// without it: a crawl of its Redfish service, the file that it is kept in, and
// the redaction that makes the file fit to be passed on.
//
// A crawl only reads, asks one thing at a time and never for accounts, sessions,
// logs, certificates, licences or jobs. Redaction takes every string away that is
// not known to be harmless, and puts a pseudonym of the same shape in its place.
//
// It knows nothing of the simulated world; simulator/redfish replays its trees.
package capture
