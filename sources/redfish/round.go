package redfish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

const (
	pageSize   = 200                    // records that are given at a time
	pageWait   = 500 * time.Millisecond // how long an answer waits for others of its page
	slowAfter  = 10 * time.Second       // a BMC that took longer is asked apart in the next round
	aloneShare = 4                      // one in so many of those in flight is kept for BMCs that were silent or slow
)

// List is a round: every BMC is asked once. Those that answer are given as
// they come. Those that gave no answer at all are given at the end, and only if
// at least half of the round answered: else the fault is rather ours, and the
// round fails with nothing said of them. No absence is to be concluded from a
// round.
func (c *Client) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	const op = "ask the BMCs"
	began := c.clock()
	targets, err := c.config.Targets(ctx)
	if err != nil {
		return sources.End{}, fmt.Errorf("%s: list the site's BMCs: %w", op, err)
	}
	targets, dropped := distinct(targets)
	r := c.newRound(targets)
	if err := r.run(ctx, yield); err != nil {
		return sources.End{}, err
	}
	c.remember(r)
	c.config.Meter.Round(r.answered, len(r.silent), r.refused, c.clock().Sub(began))
	c.log.Debug("asked the BMCs", "answered", r.answered, "silent", len(r.silent), "refused", r.refused, "took", c.clock().Sub(began))
	if len(r.silent) > r.answered {
		return sources.End{}, &sources.Error{
			Kind: sources.KindTransient, Op: op,
			Message: fmt.Sprintf("only %d of %d answered, so the fault is rather between them and muster; %s: %s",
				r.answered, r.answered+len(r.silent), r.silent[0].Ref, r.silent[0].Unanswered),
		}
	}
	for page := range slices.Chunk(r.silent, pageSize) {
		if err := yield(page); err != nil {
			return sources.End{}, err
		}
	}
	return sources.End{At: began, Complete: true, Records: len(targets), Dropped: dropped, Refused: r.blocked(ctx, targets)}, nil
}

// distinct leaves out targets without an address and all but the first of those
// with the same.
func distinct(targets []Target) (kept []Target, dropped int) {
	seen := make(map[string]bool, len(targets))
	for _, t := range targets {
		key := fleet.AddressKey(t.Address)
		switch {
		case key == "":
			dropped++
		case !seen[key]:
			seen[key] = true
			kept = append(kept, t)
		}
	}
	return kept, dropped
}

// round is one List under way.
type round struct {
	client   *Client
	logins   *logins
	targets  []Target
	suspects []Target // asked by a part of the workers of their own, so that they delay nobody

	mu       sync.Mutex
	next     int // of targets
	nextSlow int // of suspects
	slow     map[string]struct{}

	answered, refused int
	silent            []sources.Record
}

// newRound shuffles the targets, so that no BMC is always the last.
func (c *Client) newRound(targets []Target) *round {
	c.purgeOwn()
	r := &round{client: c, logins: c.logins(), slow: map[string]struct{}{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range targets {
		if _, suspect := c.suspects[fleet.AddressKey(t.Address)]; suspect {
			r.suspects = append(r.suspects, t)
		} else {
			r.targets = append(r.targets, t)
		}
	}
	for _, list := range [][]Target{r.targets, r.suspects} {
		for i := len(list) - 1; i > 0 && c.config.Rand != nil; i-- {
			j := int(c.config.Rand() * float64(i+1))
			list[i], list[j] = list[j], list[i]
		}
	}
	return r
}

// remember keeps which BMCs to ask apart next time, and drops what is kept of
// those that the inventory no longer has.
func (c *Client) remember(r *round) {
	for _, record := range r.silent {
		r.slow[fleet.AddressKey(record.Ref)] = struct{}{}
	}
	keys := make(map[string]bool, len(r.targets)+len(r.suspects))
	for _, list := range [][]Target{r.targets, r.suspects} {
		for _, t := range list {
			keys[fleet.AddressKey(t.Address)] = true
		}
	}
	c.firmware.keep(keys)
	c.refusals.keep(keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspects = r.slow
}

func (r *refusals) keep(keys map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.by, func(key string, _ refusal) bool { return !keys[key] })
}

// blocked lists the addresses at which the credential is not tried any more.
func (r *round) blocked(ctx context.Context, targets []Target) (addresses []string) {
	for _, t := range targets {
		if l := r.logins.of(ctx, t.Name); l.usable() && r.client.refusals.blocked(t.Address, l) {
			addresses = append(addresses, t.Address)
		}
	}
	return addresses
}

// take gives the next BMC to ask. A worker of the suspects' share takes them
// first, any other last.
func (r *round) take(suspectsFirst bool) (Target, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if suspectsFirst && r.nextSlow < len(r.suspects) {
		r.nextSlow++
		return r.suspects[r.nextSlow-1], true
	}
	if r.next < len(r.targets) {
		r.next++
		return r.targets[r.next-1], true
	}
	if r.nextSlow < len(r.suspects) {
		r.nextSlow++
		return r.suspects[r.nextSlow-1], true
	}
	return Target{}, false
}

// run asks all and yields the answers. It returns when every worker has ended.
func (r *round) run(ctx context.Context, yield func([]sources.Record) error) error {
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := min(r.client.config.InFlight, len(r.targets)+len(r.suspects))
	results := make(chan sources.Record, workers)
	var running sync.WaitGroup
	for i := range workers {
		running.Add(1)
		go func() {
			defer running.Done()
			r.work(ctx, i%aloneShare == aloneShare-1, results)
		}()
	}
	go func() {
		running.Wait()
		close(results)
	}()
	err := r.collect(results, yield)
	cancel()
	for range results { // until the last worker has ended
	}
	if err != nil {
		return err
	}
	return parent.Err()
}

func (r *round) work(ctx context.Context, suspectsFirst bool, results chan<- sources.Record) {
	for ctx.Err() == nil {
		target, more := r.take(suspectsFirst)
		if !more {
			return
		}
		began := time.Now()
		record := r.client.poll(ctx, target, r.logins)
		if ctx.Err() != nil {
			return // cut short by us: it says nothing of the BMC
		}
		if time.Since(began) > slowAfter {
			r.mu.Lock()
			r.slow[fleet.AddressKey(target.Address)] = struct{}{}
			r.mu.Unlock()
		}
		results <- record
	}
}

// collect yields answers in pages and keeps the silent for the end.
func (r *round) collect(results <-chan sources.Record, yield func([]sources.Record) error) error {
	var page []sources.Record
	tick := time.NewTicker(pageWait)
	defer tick.Stop()
	for {
		full := false
		select {
		case record, more := <-results:
			if !more {
				return give(page, yield)
			}
			switch {
			case record.Unanswered != "":
				r.silent = append(r.silent, record)
				continue
			case record.BMC != nil:
				r.answered++
				if record.BMC.Refusal != facts.BMCRefusal(0) {
					r.refused++
				}
			}
			page = append(page, record)
			full = len(page) >= pageSize
		case <-tick.C:
			full = true
		}
		if full {
			if err := give(page, yield); err != nil {
				return err
			}
			page = nil
		}
	}
}

func give(page []sources.Record, yield func([]sources.Record) error) error {
	if len(page) == 0 {
		return nil
	}
	return yield(page)
}
