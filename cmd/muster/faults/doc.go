// Package faults holds the tests of what muster makes of sources that fail: a
// whole simulated site behind the fault proxy, muster's own clients, reconciler
// and PostgreSQL before it. While the world stands still, no fault of a source
// may change what is stored of a device; every fault is told; and once it is
// over, everything is as before without anybody's help.
package faults
