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
	cause := fleet.Cause{Type: "operator", Actor: by.Name, Note: "promoted: " + reason}
	err := s.one(ctx, id, cause, func(tx pgx.Tx, r *round, all *subjects, d *subject) (Rows, error) {
		if !d.device.InventoryOnly {
			return Rows{}, nil
		}
		d.device.InventoryOnly = false
		if err := store.PromoteDevice(ctx, tx, id); err != nil {
			return Rows{}, err
		}
		rows, err := r.settle(ctx, tx, all)
		if err != nil {
			return Rows{}, err
		}
		return rows, by.audit(ctx, tx, "device.promote", deviceTarget(id), map[string]any{
			"site": r.site.Spec.Name, "name": d.device.Name, "reason": reason, "operational_status": d.device.Operational,
		})
	})
	if err != nil {
		return refusedOr(err, fmt.Sprintf("promote device %d", id))
	}
	return nil
}

// deviceTarget names a device in the audit log.
func deviceTarget(id int64) string { return fmt.Sprintf("device %d", id) }
