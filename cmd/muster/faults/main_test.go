package faults

import (
	"flag"
	"testing"

	"github.com/musterhq/muster/embedded/pgtest"
)

// atATime is how many tests run side by side, whatever the machine has: most of
// their time they wait for a fault to be met, and for it to pass.
const atATime = "6"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", atATime) // what the command line says is read later and counts
	pgtest.Main(m)
}
