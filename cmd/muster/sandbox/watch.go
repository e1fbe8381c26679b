package sandbox

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// watchEvery is how often the heap is looked at: short against the time that it
// takes to fill the memory of a machine.
const watchEvery = 20 * time.Millisecond

// watch ends the process, with a message, when what it uses of memory passes
// the limit. The operating system's own limit stands behind it.
func watch(limit int64) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for range tick.C {
		metrics.Read(sample)
		if used := int64(sample[0].Value.Uint64() - sample[1].Value.Uint64()); used > limit {
			fmt.Fprintln(os.Stderr, "out of memory: the policies need more than they may")
			os.Exit(exitLimit)
		}
	}
}
