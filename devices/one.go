package devices

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// one runs f over one unretired device whose row it holds, in the judgement of
// its site. f gives what it wrote, and may run again from the start.
func (s *Service) one(ctx context.Context, id int64, cause fleet.Cause, f func(tx pgx.Tx, r *round, all *subjects, d *subject) (Rows, error)) error {
	siteID, err := s.siteOf(ctx, id)
	if err != nil {
		return err
	}
	var rows Rows
	var events map[string]int
	err = s.judging(ctx, siteID, cause, func(tx pgx.Tx, r *round) error {
		all, err := lock(ctx, tx, []int64{id})
		if err != nil {
			return err
		}
		d := all.byID[id]
		switch {
		case d == nil || d.device.SiteID != r.site.ID:
			return &RefusedError{CodeDeviceNotFound, messageMissing}
		case !d.device.RetiredAt.IsZero():
			return &RefusedError{CodeDeviceRetired, messageRetired}
		}
		rows, err = f(tx, r, all, d)
		events = r.events
		return err
	})
	if err == nil {
		s.metrics.wrote(rows, events)
	}
	return err
}
