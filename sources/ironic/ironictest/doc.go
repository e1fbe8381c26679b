// Package ironictest plays, in tests, everybody but muster at an Ironic: it
// makes fake-hardware nodes, deploys and undeploys them, makes a clean fail,
// holds maintenance as an operator would. It works on a real Ironic (the one of
// testdata/peers/ironic-up.sh) and on any stand-in that speaks its API, and
// shares no code with the adapter that is tested against it.
package ironictest
