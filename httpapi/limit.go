package httpapi

import (
	"math"
	"sync"
	"time"
)

// Rate is how many requests one principal may make.
type Rate struct {
	PerSecond float64 // 0: 100
	Burst     float64 // 0: 400
}

// maxBuckets bounds the memory of a limiter. Full buckets are forgotten first:
// they say nothing.
const maxBuckets = 10000

// limiter gives every caller a bucket of its own.
type limiter struct {
	rate  Rate
	clock func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

func newLimiter(rate Rate, clock func() time.Time) *limiter {
	if rate.PerSecond <= 0 {
		rate.PerSecond = 100
	}
	if rate.Burst <= 0 {
		rate.Burst = 4 * rate.PerSecond
	}
	return &limiter{rate: rate, clock: clock, buckets: map[string]bucket{}}
}

// take lets one request of a caller pass. Where it may not, wait is how long
// until it may, at least a second.
func (l *limiter) take(caller string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	b := l.fill(caller, now)
	if b.left >= 1 {
		b.left--
		l.buckets[caller] = b
		return 0, true
	}
	l.buckets[caller] = b
	seconds := math.Ceil((1 - b.left) / l.rate.PerSecond)
	return time.Duration(math.Max(1, seconds)) * time.Second, false
}

func (l *limiter) fill(caller string, now time.Time) bucket {
	b, known := l.buckets[caller]
	if !known {
		if len(l.buckets) >= maxBuckets {
			l.forget(now)
		}
		return bucket{left: l.rate.Burst, at: now}
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.left, b.at = math.Min(l.rate.Burst, b.left+passed*l.rate.PerSecond), now
	}
	return b
}

func (l *limiter) forget(now time.Time) {
	for caller, b := range l.buckets {
		if b.left+now.Sub(b.at).Seconds()*l.rate.PerSecond >= l.rate.Burst {
			delete(l.buckets, caller)
		}
	}
	if len(l.buckets) >= maxBuckets { // all of them busy: whoever comes next starts anew
		clear(l.buckets)
	}
}
