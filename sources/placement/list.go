package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

const (
	listOp    = "list resource providers of Placement"
	pageSize  = 500             // records given at once
	pageWait  = time.Second     // what is read waits no longer for its page to fill
	trustIdle = 5 * time.Minute // that a provider of the same generation holds nothing
)

// idle is a provider that held no allocation.
type idle struct {
	generation int64
	read       time.Time // when it was asked
}

// List gives every provider that is in none.
func (c *Client) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	l := &listing{client: c, start: c.clock(), idle: map[string]idle{}}
	body, err := c.call(ctx, http.MethodGet, listOp, "resource_providers")
	if err != nil {
		return sources.End{}, err
	}
	if err := l.take(body); err != nil {
		return sources.End{}, err
	}
	if err := l.give(l.settled, yield); err != nil {
		return sources.End{}, err
	}
	if err := l.ask(ctx, yield); err != nil {
		return sources.End{}, err
	}
	c.mu.Lock()
	c.idle = l.idle
	c.mu.Unlock()
	return sources.End{At: l.start, Complete: true, Records: l.given, Dropped: l.dropped}, nil
}

// listing is one reading of all providers.
type listing struct {
	client  *Client
	start   time.Time
	settled []sources.Record // of providers that need not be asked
	open    []*Provider      // to be asked
	idle    map[string]idle  // for the next listing
	given   int
	dropped int
}

// take sorts the providers of a listing: who must be asked, who need not.
func (l *listing) take(body []byte) error {
	elements, err := decodeProviders(listOp, body)
	if err != nil {
		return err
	}
	l.client.mu.Lock()
	known := maps.Clone(l.client.idle)
	l.client.mu.Unlock()
	seen := make(map[string]bool, len(elements))
	for _, element := range elements {
		p, ok := decodeProvider(element)
		switch {
		case !ok:
			l.dropped++
			continue
		case seen[p.UUID] || p.Root != "" && p.Root != p.UUID:
			continue
		}
		seen[p.UUID] = true
		if was, ok := known[p.UUID]; ok && was.generation == p.Generation && l.start.Sub(was.read) < trustIdle {
			l.idle[p.UUID] = was
			l.settled = append(l.settled, record(p.UUID, p.Name, facts.False, l.start))
			continue
		}
		l.open = append(l.open, p)
	}
	return nil
}

func record(uuid, name string, allocated facts.Bool, at time.Time) sources.Record {
	return sources.Record{Ref: uuid, Name: name, At: at, Placement: &facts.Placement{ProviderExists: facts.True, Allocated: allocated}}
}

func (l *listing) give(records []sources.Record, yield func([]sources.Record) error) error {
	for len(records) > 0 {
		page := records[:min(pageSize, len(records))]
		records = records[len(page):]
		l.given += len(page)
		if err := yield(page); err != nil {
			return fmt.Errorf("take a page of resource providers: %w", err)
		}
	}
	return nil
}

// answer is what one provider said of its allocations.
type answer struct {
	provider *Provider
	record   sources.Record
	gone     bool
	err      error
}

// ask reads the allocations of the open providers, so many at a time as the
// transport lets through, and gives them as they come. The first failure ends
// it; every reader has ended when it returns.
func (l *listing) ask(ctx context.Context, yield func([]sources.Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	todo := make(chan *Provider)
	answers := make(chan answer)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	for range min(l.client.config.HTTP.InFlight, len(l.open)) {
		readers.Go(func() {
			for p := range todo {
				a := l.client.ask(ctx, p)
				select {
				case answers <- a:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	readers.Go(func() {
		defer close(todo)
		for _, p := range l.open {
			select {
			case todo <- p:
			case <-ctx.Done():
				return
			}
		}
	})
	return l.collect(ctx, answers, yield)
}

func (l *listing) collect(ctx context.Context, answers <-chan answer, yield func([]sources.Record) error) error {
	var page []sources.Record
	tick := time.NewTicker(pageWait)
	defer tick.Stop()
	flush := func() error {
		err := l.give(page, yield)
		page = nil
		return err
	}
	for left := len(l.open); left > 0; {
		select {
		case <-ctx.Done():
			return sources.Failure(listOp, context.Cause(ctx))
		case <-tick.C:
			if err := flush(); err != nil {
				return err
			}
			continue
		case a := <-answers:
			left--
			if a.err != nil {
				return a.err
			}
			if a.gone {
				continue
			}
			if a.record.Placement != nil && a.record.Placement.Allocated == facts.False && a.provider.Generation >= 0 {
				l.idle[a.provider.UUID] = idle{generation: a.provider.Generation, read: l.start}
			}
			page = append(page, a.record)
		}
		if len(page) >= pageSize {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// ask reads the allocations of one provider. An answer that cannot be read costs
// that record; one that was deleted meanwhile is not listed.
func (c *Client) ask(ctx context.Context, p *Provider) answer {
	r, err := c.read(ctx, p.UUID, p.Name)
	switch {
	case errors.Is(err, sources.ErrGone):
		return answer{provider: p, gone: true}
	case err != nil:
		return answer{provider: p, err: err}
	}
	return answer{provider: p, record: *r}
}

// Get reads one provider by its uuid.
func (c *Client) Get(ctx context.Context, ref string) (*sources.Record, error) {
	return c.read(ctx, ref, "")
}

func (c *Client) read(ctx context.Context, uuid, name string) (*sources.Record, error) {
	const op = "read the allocations of a resource provider"
	if !validRef(uuid) {
		return nil, refused(sources.KindRefused, op, "%q is no uuid of a provider", sources.CleanText(uuid, 64))
	}
	at := c.clock()
	body, err := c.call(ctx, http.MethodGet, op, "resource_providers", uuid, "allocations")
	if err != nil {
		return nil, keystone.Gone(err)
	}
	held, err := decodeAllocations(op, body, func(consumer string) Allocation { return Allocation{Consumer: consumer, Provider: uuid} })
	if errors.Is(err, errNoAllocations) {
		return &sources.Record{Ref: uuid, Name: name, At: at, Undecodable: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	r := record(uuid, name, facts.BoolOf(len(held) > 0), at)
	return &r, nil
}
