package devices

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// FinishSweep ends a complete listing, under the check of its lease: the
// watermark moves to its instant, never back, unless it is withheld; the
// source no longer fails; the findings replace those of the listing before. What
// is to be said of the devices' axes is added here, when the source is the
// site's inventory, and what others hold them by at Ironic and SLURM.
func (s *Service) FinishSweep(ctx context.Context, f Finish) error {
	err := s.leased(ctx, f.SiteID, f.Source, f.Owner, f.Epoch, func(tx pgx.Tx) error {
		at := micros(f.At)
		if f.Withhold {
			at = zero
		}
		if err := store.AdvanceWatermark(ctx, tx, f.SiteID, f.Source, at, f.Alert); err != nil {
			return err
		}
		site, err := store.SiteByID(ctx, tx, f.SiteID)
		if err != nil {
			return err
		}
		kinds, findings := f.Kinds, f.Findings
		if site.Spec.InventorySource() == f.Source {
			axes, err := store.AxisFindings(ctx, tx, f.SiteID, f.Source, ReasonRoleUnmapped, ReasonStatusUnmapped)
			if err != nil {
				return err
			}
			kinds = append(slices.Clone(kinds), fleet.FindingUnmapped, fleet.FindingDifference, fleet.FindingSharedBMC)
			findings = append(slices.Clone(findings), axes...)
		}
		marks, ok, err := s.foreignMarks(ctx, tx, f.SiteID, f.Source)
		if err != nil {
			return err
		}
		if ok {
			kinds, findings = append(slices.Clone(kinds), fleet.FindingForeignMark), append(slices.Clone(findings), marks...)
		}
		return store.ReplaceFindings(ctx, tx, f.SiteID, f.Source, kinds, findings)
	})
	if err != nil {
		return fmt.Errorf("finish the sweep of %s: %w", f.Source, err)
	}
	return nil
}

// FailSweep records a failed listing, under the check of its lease: since when,
// unless it failed before, and why. Nothing of a device changes: what the source
// gave grows stale with time.
func (s *Service) FailSweep(ctx context.Context, siteID int64, source, owner string, epoch int64, reason string) error {
	err := s.leased(ctx, siteID, source, owner, epoch, func(tx pgx.Tx) error {
		return store.FailWatermark(ctx, tx, siteID, source, reason, micros(s.clock()))
	})
	if err != nil {
		return fmt.Errorf("record the failed sweep of %s: %w", source, err)
	}
	return nil
}

func (s *Service) leased(ctx context.Context, siteID int64, source, owner string, epoch int64, f func(tx pgx.Tx) error) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error {
		mine, err := store.LockSweep(ctx, tx, siteID, source, owner, epoch)
		if err != nil {
			return err
		}
		if !mine {
			s.metrics.leaseLosses.Inc()
			return ErrLeaseLost
		}
		return f(tx)
	})
}
