package devices

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// TriagePost puts devices in triage or takes them out of it.
type TriagePost struct {
	Devices   []int64 // at most 500
	InTriage  bool
	TicketURL *string // of this cycle; nil: as it is
	ParentURL *string // of the device, across cycles; nil: as it is. Once set, it stays
	By        Caller
}

// Triage puts devices in triage or takes them out, all of them or none. A device
// keeps the instant at which it entered until it leaves, and its ticket with it;
// the parent ticket stays. Refusals are RefusedErrors and name the device.
func (s *Service) Triage(ctx context.Context, p TriagePost) error {
	if len(p.Devices) == 0 || len(p.Devices) > maxBatch {
		return &RefusedError{CodeInvalid, fmt.Sprintf("name between one device and %d", maxBatch)}
	}
	first, err := s.siteOf(ctx, slices.Min(p.Devices))
	if err != nil {
		return err
	}
	var rows Rows
	var events []map[string]int
	cause := p.By.cause("triage")
	err = s.judging(ctx, first, cause, func(tx pgx.Tx, r *round) error {
		rows, events = Rows{}, nil
		all, err := lock(ctx, tx, slices.Clone(p.Devices))
		if err != nil {
			return err
		}
		sites := map[int64]*subjects{}
		for _, id := range p.Devices {
			d := all.byID[id]
			if d == nil {
				return &RefusedError{CodeDeviceNotFound, messageMissing}
			}
			of := sites[d.device.SiteID]
			if of == nil {
				of = &subjects{byID: map[int64]*subject{}}
				sites[d.device.SiteID] = of
			}
			if of.byID[id] == nil {
				of.add(d)
			}
		}
		for id, of := range sites {
			if id != first {
				if r, err = s.round(ctx, tx, r.bundle, id, cause); err != nil {
					return err
				}
			}
			more, err := r.triage(ctx, tx, of, &p)
			if err != nil {
				return err
			}
			rows.add(more)
			events = append(events, r.events)
		}
		return nil
	})
	if err != nil {
		return refusedOr(err, fmt.Sprintf("write the triage of %d devices", len(p.Devices)))
	}
	for i := range events {
		s.metrics.wrote(rows, events[i])
		rows = Rows{}
	}
	return nil
}

// triage writes the triage of locked devices of one site, and judges them.
func (r *round) triage(ctx context.Context, tx pgx.Tx, all *subjects, p *TriagePost) (Rows, error) {
	for _, s := range all.list {
		d, was := &s.device, s.device
		if !d.RetiredAt.IsZero() {
			return Rows{}, &RefusedError{CodeDeviceRetired, fmt.Sprintf("device %d (%s): %s", d.ID, d.Name, messageRetired)}
		}
		if parent := p.ParentURL; parent != nil && *parent != d.ParentTicketURL {
			if d.ParentTicketURL != "" {
				return Rows{}, &RefusedError{CodeParentTicket, fmt.Sprintf("device %d (%s) has the parent ticket %s, which stays: leave it out", d.ID, d.Name, d.ParentTicketURL)}
			}
			d.ParentTicketURL = *parent
		}
		r.enterTriage(d, p)
		d.UpdatedAt = r.now
		if err := store.SetTriage(ctx, tx, d); err != nil {
			return Rows{}, err
		}
		if err := p.By.audit(ctx, tx, "device.triage", deviceTarget(d.ID), map[string]any{
			"site": r.site.Spec.Name, "name": d.Name, "in_triage": d.InTriage, "was_in_triage": was.InTriage,
			"triage_ticket_url": d.TriageTicketURL, "parent_ticket_url": d.ParentTicketURL,
		}); err != nil {
			return Rows{}, err
		}
	}
	return r.settle(ctx, tx, all)
}

func (r *round) enterTriage(d *fleet.Device, p *TriagePost) {
	switch {
	case !p.InTriage:
		d.InTriage, d.EnteredTriageAt, d.TriageTicketURL = false, zero, ""
		return
	case !d.InTriage:
		d.InTriage, d.EnteredTriageAt, d.TriageTicketURL = true, r.now, ""
	}
	if p.TicketURL != nil {
		d.TriageTicketURL = *p.TicketURL
	}
}
