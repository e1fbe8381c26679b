package devices

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Promote makes an inventory-only device one that is observed and derived, for
// good: a person says so, and why. One that is so already stays as it is.
// Refusals are RefusedErrors; nothing was changed then.
func (s *Service) Promote(ctx context.Context, id int64, reason string, by Caller) error {
	reason = store.Clean(reason)
	siteID, err := s.siteOf(ctx, id)
	if err != nil {
		return err
	}
	var rows Rows
	var events map[string]int
	err = s.judging(ctx, siteID, fleet.Cause{Type: "operator", Actor: by.Name, Note: "promoted: " + reason}, func(tx pgx.Tx, r *round) error {
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
		case !d.device.InventoryOnly:
			return nil
		}
		d.device.InventoryOnly = false
		if err := store.PromoteDevice(ctx, tx, id); err != nil {
			return err
		}
		if rows, err = r.settle(ctx, tx, all); err != nil {
			return err
		}
		events = r.events
		return by.audit(ctx, tx, "device.promote", fmt.Sprintf("device %d", id), map[string]any{
			"site": r.site.Spec.Name, "name": d.device.Name, "reason": reason, "operational_status": d.device.Operational,
		})
	})
	if err != nil {
		return refusedOr(err, fmt.Sprintf("promote device %d", id))
	}
	s.metrics.wrote(rows, events)
	return nil
}
