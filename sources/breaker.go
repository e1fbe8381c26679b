package sources

import (
	"fmt"
	"sync"
	"time"
)

// outcome is what one call says of its endpoint.
type outcome int

const (
	unclear outcome = iota // the caller gave up: nothing is learnt
	worked
	failed
)

// breaker refuses calls to an endpoint that failed several times in a row.
// After the cool-down one call probes it: its success closes the breaker, its
// failure opens it for another cool-down.
type breaker struct {
	endpoint string
	failures int // in a row, to open; negative: never
	coolDown time.Duration
	clock    Clock
	meter    Meter

	mu      sync.Mutex
	inRow   int
	why     string
	open    bool
	since   time.Time // of the first failure of the row that opened it
	next    time.Time // of the next probe
	probing uint64    // the number of the probe in flight, 0 none
	calls   uint64
}

// enter admits a call or refuses it with an *Error of KindOpen. done is called
// once with what the call said.
func (b *breaker) enter() (done func(outcome, string), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	b.calls++
	call := b.calls
	if b.open {
		if now.Before(b.next) {
			return nil, b.refusal(now)
		}
		// A probe that never ends does not hold the breaker open for ever.
		b.probing, b.next = call, now.Add(b.coolDown)
	}
	return func(o outcome, why string) { b.leave(call, o, why) }, nil
}

func (b *breaker) refusal(now time.Time) error {
	return &Error{
		Kind: KindOpen,
		Op:   "call " + b.endpoint,
		Message: fmt.Sprintf("its circuit breaker is open: it fails since %s, %d times in a row, last: %s; next try at %s",
			b.since.UTC().Format(time.RFC3339), b.inRow, b.why, b.next.UTC().Format(time.RFC3339)),
		RetryAfter: b.next.Sub(now),
	}
}

func (b *breaker) leave(call uint64, o outcome, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	probe := b.open && b.probing == call
	if b.open && !probe {
		return // begun before it opened: the probe decides
	}
	switch o {
	case unclear:
		if probe {
			b.probing, b.next = 0, now
		}
	case worked:
		b.inRow, b.why, b.probing = 0, "", 0
		if b.open {
			b.open = false
			b.meter.Breaker(b.endpoint, false)
		}
	case failed:
		if b.inRow == 0 {
			b.since = now
		}
		b.inRow++
		b.why = CleanText(why, 256)
		if probe {
			b.probing, b.next = 0, now.Add(b.coolDown)
		} else if b.failures > 0 && b.inRow >= b.failures {
			b.open, b.next = true, now.Add(b.coolDown)
			b.meter.Breaker(b.endpoint, true)
		}
	}
}
