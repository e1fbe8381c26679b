package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// pageSize is what a site's Ironic is asked for at a time, by default.
const pageSize = 1000

// listing is a source in memory. Nobody changes it while it is listed.
type listing struct {
	clock sources.Clock
	pages int
	page  func(i int) []sources.Record
}

// List gives the pages as fast as they are taken.
func (l *listing) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	end := sources.End{At: l.clock(), Complete: true}
	for i := range l.pages {
		at := l.clock()
		page := slices.Clone(l.page(i))
		for n := range page {
			page[n].At = at
		}
		end.Records += len(page)
		if err := yield(page); err != nil {
			return end, err
		}
	}
	return end, ctx.Err()
}

// Get gives what the listing says of one thing.
func (l *listing) Get(_ context.Context, ref string) (*sources.Record, error) {
	at := l.clock()
	for i := range l.pages {
		for _, record := range l.page(i) {
			if record.Ref == ref {
				record.At = at
				return &record, nil
			}
		}
	}
	return nil, fmt.Errorf("get %s: %w", ref, sources.ErrGone)
}

// Close has nothing to close.
func (l *listing) Close() {}

// siteOf draws the nodes of one site: each is in Ironic and in SLURM, so each
// has ten conditions.
func siteOf(site, devices int, now time.Time) (ironic, slurm []sources.Record) {
	rng := rand.New(rand.NewPCG(seed, uint64(site)))
	for i := range devices {
		name := fmt.Sprintf("gpu-%d-%06d", site+1, i+1)
		node, state := drawIronic(rng, name, now), drawSlurm(rng)
		ironic = append(ironic, sources.Record{Ref: fmt.Sprintf("%08x-1111-4222-8333-%012x", site, i), Name: name, Serial: fmt.Sprintf("S%d%07d", site, i), Ironic: &node})
		slurm = append(slurm, sources.Record{Ref: name, Name: name, Slurm: &state})
	}
	return ironic, slurm
}

// inMemory lists records that are all there.
func inMemory(records []sources.Record) *listing {
	pages := slices.Collect(slices.Chunk(records, pageSize))
	return &listing{pages: len(pages), page: func(i int) []sources.Record { return pages[i] }}
}

// toggle puts every step-th node from first on in maintenance, or takes it out.
func toggle(ironic []sources.Record, first, step int) (changed int) {
	for i := first; i < len(ironic); i += step {
		node := *ironic[i].Ironic
		if node.Maintenance == facts.True {
			node.Maintenance, node.MaintenanceReason = facts.False, facts.TextOf("")
		} else {
			node.Maintenance, node.MaintenanceReason = facts.True, facts.TextOf("benchmark")
		}
		ironic[i].Ironic = &node
		changed++
	}
	return changed
}
