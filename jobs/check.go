package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Check tells whether a request would be admitted at this instant, and every
// reason why not, of each device. Nothing is locked or stored: Submit judges
// again. The devices of a check may be of several sites; that a job may not is
// one of its reasons.
func (s *Service) Check(ctx context.Context, r Request) (Report, error) {
	if len(r.Devices) > MaxDevices {
		return Report{}, &Error{CodeTooManyDevices, fmt.Sprintf("a check takes at most %d devices", MaxDevices)}
	}
	r = r.clean()
	var report Report
	err := s.devices.Surveying(ctx, func(tx pgx.Tx, bundle *engine.Bundle, of func(int64) (*devices.Admission, error)) error {
		a, ok := s.open(bundle, &r)
		if ok {
			if err := s.survey(ctx, tx, a, &r, of); err != nil {
				return err
			}
		}
		report = a.report
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("check %s: %w", r.Workflow, err)
	}
	return report, nil
}

func (s *Service) survey(ctx context.Context, tx pgx.Tx, a *admission, r *Request, of func(int64) (*devices.Admission, error)) error {
	all, err := a.findWhole(ctx, tx, r)
	if err != nil {
		return err
	}
	var last *devices.Admission
	for _, list := range bySite(all) {
		by, err := of(list[0].SiteID)
		if err != nil {
			return err
		}
		if err := a.judge(ctx, tx, by, list); err != nil {
			return err
		}
		last = by
	}
	if a.site == 0 { // no device, or several sites: what a job would meet cannot be told
		a.likeness()
		return a.conflicts(ctx, tx, namesOf(all))
	}
	return s.whole(ctx, tx, a, last, all, false)
}

// bySite parts devices by their sites.
func bySite(all []fleet.Device) [][]fleet.Device {
	if !slices.ContainsFunc(all, func(d fleet.Device) bool { return d.SiteID != all[0].SiteID }) {
		if len(all) == 0 {
			return nil
		}
		return [][]fleet.Device{all}
	}
	var parts [][]fleet.Device
	place := map[int64]int{}
	for i := range all {
		at, known := place[all[i].SiteID]
		if !known {
			at = len(parts)
			place[all[i].SiteID], parts = at, append(parts, nil)
		}
		parts[at] = append(parts[at], all[i])
	}
	return parts
}

// whole judges what concerns a job of one site as a whole. With lock its caps
// stay locked.
func (s *Service) whole(ctx context.Context, tx pgx.Tx, a *admission, by *devices.Admission, all []fleet.Device, lock bool) error {
	site := by.Site.Spec.Name
	if !lock { // else they were found before they were locked
		held, err := a.findHeld(ctx, tx, site)
		if err != nil {
			return err
		}
		all = append(all, held...)
	}
	for i := range all {
		if parameter, held := a.held[all[i].ID]; held && all[i].InventoryOnly {
			refusal := a.report.refuse(CodeInventoryOnly, "%s: %s is kept for inventory only", parameter, all[i].Name)
			refusal.Path, refusal.Actual, refusal.Expected = "parameters."+parameter, all[i].Name, "a device that work runs on"
		}
	}
	a.likeness()
	if err := a.conflicts(ctx, tx, namesOf(all)); err != nil {
		return err
	}
	if err := a.barred(ctx, tx, all); err != nil {
		return err
	}
	l := s.limits(by.Bundle)
	return a.caps(ctx, tx, &l, site, all, lock)
}

func (a *admission) heldIDs() []int64 {
	ids := make([]int64, 0, len(a.held))
	for id := range a.held {
		ids = append(ids, id)
	}
	return ids
}

func namesOf(all []fleet.Device) map[int64]string {
	names := make(map[int64]string, len(all))
	for i := range all {
		names[all[i].ID] = all[i].Name
	}
	return names
}

// refusedOr leaves a refusal as it is and says of any other error what failed.
func refusedOr(err error, doing string) error {
	var refused *RefusedError
	var coded *Error
	switch {
	case err == nil || errors.As(err, &refused) || errors.As(err, &coded):
		return err
	case store.LockTimedOut(err):
		return &Error{CodeBusy, doing + " waited too long for what others are changing: try again"}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
