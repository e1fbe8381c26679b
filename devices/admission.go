package devices

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Admission is what the devices of one site are admitted by in one transaction.
// One goroutine uses it.
type Admission struct {
	Bundle *engine.Bundle
	Site   fleet.Site
	At     time.Time
	round  *round
}

// Candidate is a device with everything that its admission depends on.
type Candidate struct {
	Device fleet.Device
	Rack   string       // "" for none
	Facts  facts.Facts  // completed
	Codes  facts.Codes  // of Facts
	Stale  uint64       // condition types that are not fresh
	Aged   []string     // families of facts that are not fresh
	Masks  engine.Masks // conditions, as they are stored
}

// Admitting runs f in a transaction in which neither the active bundle nor a
// site can change; f admits by them. It may run f again from the start.
func (s *Service) Admitting(ctx context.Context, siteID int64, f func(tx pgx.Tx, a *Admission) error) error {
	return s.judging(ctx, siteID, fleet.Cause{Type: "job"}, func(tx pgx.Tx, r *round) error {
		return f(tx, admissionOf(r))
	})
}

// Surveying runs f over one instant of the sites, without locking anything, by
// the bundle that this replica has.
func (s *Service) Surveying(ctx context.Context, f func(tx pgx.Tx, bundle *engine.Bundle, of func(siteID int64) (*Admission, error)) error) error {
	bundle := s.policies.Current()
	if bundle == nil {
		var err error
		if bundle, err = s.policies.Refresh(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrPolicyNotLoaded, err)
		}
	}
	return s.db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set transaction isolation level repeatable read read only"); err != nil {
			return fmt.Errorf("begin to read: %w", err)
		}
		return f(tx, bundle, func(siteID int64) (*Admission, error) {
			r, err := s.round(ctx, tx, bundle, siteID, fleet.Cause{})
			if err != nil {
				return nil, err
			}
			return admissionOf(r), nil
		})
	})
}

func admissionOf(r *round) *Admission {
	return &Admission{Bundle: r.bundle, Site: r.site, At: r.now, round: r}
}

// Candidates reads what the admission of these devices of the site depends on.
// To decide by it, hold the devices' rows.
func (a *Admission) Candidates(ctx context.Context, q store.Querier, devices []fleet.Device) ([]Candidate, error) {
	r := a.round
	ids, racks := make([]int64, len(devices)), []int64{}
	for i := range devices {
		ids[i] = devices[i].ID
		if rack := devices[i].RackID; rack != 0 && r.rackNames[rack] == "" {
			racks = append(racks, rack)
		}
	}
	if len(racks) > 0 {
		names, err := store.RackNames(ctx, q, racks)
		if err != nil {
			return nil, err
		}
		for id, name := range names {
			r.rackNames[id] = name
		}
	}
	stored, err := store.FactsOf(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	ages, err := r.ages(ctx, q, devices)
	if err != nil {
		return nil, err
	}
	said := make(map[int64][]fleet.Stored, len(devices))
	for len(stored) > 0 { // they come by devices
		n := 1
		for n < len(stored) && stored[n].DeviceID == stored[0].DeviceID {
			n++
		}
		said[stored[0].DeviceID], stored = stored[:n], stored[n:]
	}
	all := make([]Candidate, len(devices))
	decodeAll(all, func(i int) []fleet.Stored { return said[devices[i].ID] })
	for i := range devices {
		r.candidate(&all[i], &devices[i], said[devices[i].ID], ages[devices[i].ID])
	}
	return all, nil
}

// decodeAll decodes what the sources said of each candidate, which is most of the
// work of a judgement, on every processor.
func decodeAll(all []Candidate, said func(i int) []fleet.Stored) {
	var running sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), decodersMost)
	for w := range workers {
		running.Go(func() {
			for i := w * len(all) / workers; i < (w+1)*len(all)/workers; i++ {
				for _, s := range said(i) {
					decode(&all[i].Facts, s.Source, s.Body)
				}
			}
		})
	}
	running.Wait()
}

const decodersMost = 4

// candidate completes a candidate whose facts are decoded.
func (r *round) candidate(c *Candidate, d *fleet.Device, said []fleet.Stored, age *fleet.DeviceAge) {
	c.Device, c.Rack, c.Masks = *d, r.rackNames[d.RackID], engine.Masks(d.Conditions)
	c.Facts.Device, c.Facts.Site = d.Facts(c.Rack), r.siteFacts
	context := r.context(d)
	facts.Complete(&c.Facts, &context)
	c.Facts.Intern(&c.Codes)
	c.Stale = r.fresh.Device(age).Stale & d.InScope
	c.Aged = r.aged(said)
}

// aged lists the families of a device's facts that are not fresh: their source
// has not been read lately, or its newest reading gave nothing of the device. A
// source that the site has not is not missed.
func (r *round) aged(said []fleet.Stored) []string {
	var families []string
	for _, source := range r.site.Spec.SourceNames() {
		age, _ := r.fresh.Source(source)
		stale := age.Stale
		for i := range said {
			if s := &said[i]; s.Source == source {
				stale = s.Trouble.Reason != "" || age.Stale && !r.now.Before(s.SeenAt.Add(age.TTL))
			}
		}
		if family := filledBy(source); stale && !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	return families
}

// filledBy names the facts that a source fills.
func filledBy(source string) string {
	if source == "file" {
		return "netbox"
	}
	return source
}
