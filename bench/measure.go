package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// contender is one way to do a piece of work. op does it n times.
type contender struct {
	name string
	op   func(n int)
}

// figure is what was measured of one contender.
type figure struct {
	name      string
	ns        float64 // per op, median of the rounds, CPU time of the process
	low, high float64 // the quarter and three-quarter points of the rounds
	ratio     float64 // to the first contender: median of the ratios round by round
	allocs    float64 // per op
	bytes     float64
}

// effort bounds a race.
type effort struct {
	rounds int
	slice  time.Duration // of CPU time that one contender gets in a round, at least one op
}

// race runs contenders by turns, so that what else the machine does meets them
// all. Each round starts with another one.
func race(e effort, contenders ...contender) []figure {
	runtime.GC() // of what was prepared
	counts := make([]int, len(contenders))
	for i, c := range contenders {
		counts[i] = calibrate(c, e.slice)
	}
	times := make([][]float64, len(contenders))
	for round := range e.rounds {
		for i := range contenders {
			k := (i + round) % len(contenders)
			times[k] = append(times[k], float64(cpuTime(func() { contenders[k].op(counts[k]) }))/float64(counts[k]))
		}
	}
	figures := make([]figure, len(contenders))
	for i, c := range contenders {
		ratios := make([]float64, e.rounds)
		for round := range ratios {
			ratios[round] = times[i][round] / times[0][round]
		}
		f := figure{name: c.name, ns: quantile(times[i], 0.5), low: quantile(times[i], 0.25), high: quantile(times[i], 0.75), ratio: quantile(ratios, 0.5)}
		f.allocs, f.bytes = allocations(c, counts[i])
		figures[i] = f
	}
	return figures
}

// calibrate finds how many ops fill a slice. Of three timings the shortest
// counts: what else the process still has to clean up is no part of the op.
func calibrate(c contender, slice time.Duration) int {
	c.op(1)
	for n := 1; ; n *= 2 {
		took := slice
		for try := 0; try < 3 && took >= slice/4; try++ {
			took = min(took, cpuTime(func() { c.op(n) }))
		}
		if took >= slice/4 || n >= 1<<30 {
			return max(1, int(float64(n)*float64(slice)/float64(max(took, 1))))
		}
	}
}

// allocations counts what one op allocates, over as many as fit a tenth of a slice.
func allocations(c contender, count int) (objects, bytes float64) {
	n := max(1, count/10)
	c.op(1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.op(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

// cpuTime is what f costs this process, its garbage collection with it.
func cpuTime(f func()) time.Duration {
	before := processTime()
	f()
	return processTime() - before
}

func processTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // the kernel has had this clock for twenty years
	}
	return time.Duration(ts.Nano())
}

// quantile of values, which it leaves as they are.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// perOp spells nanoseconds in the unit that reads best.
func perOp(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.2f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.2f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ms", ns/1e6)
}

// sink keeps what a benchmark computes, so that it is computed.
var sink uint64
