package reconciler

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

const (
	projectionRetry = 5 * time.Second
	projectionLimit = 10 * time.Minute
)

func (r *Reconciler) claimProjections(ctx context.Context, free int) ([]func(context.Context), error) {
	leases, err := store.ClaimProjections(ctx, r.DB, r.Owner, r.Lease, free)
	jobs := make([]func(context.Context), 0, len(leases))
	for _, l := range leases {
		jobs = append(jobs, func(ctx context.Context) { r.project(ctx, l) })
	}
	return jobs, err
}

// project verifies every device of one site. When it is next due is written by
// devices.Project; one that fails is tried again later.
func (r *Reconciler) project(ctx context.Context, lease store.ProjectionLease) {
	bounded, cancel := context.WithTimeout(ctx, projectionLimit)
	defer cancel()
	working, release := r.keep(bounded, func(ctx context.Context) (bool, error) {
		return store.RenewProjection(ctx, r.DB, &lease, r.Lease)
	})
	var done devices.Projected
	err := guard(func() (err error) {
		done, err = r.Devices.Project(working, lease.SiteID, fleet.Cause{Type: "projection"})
		return err
	})
	lost := errors.Is(context.Cause(working), errLeaseLost)
	release()
	retry := time.Time{}
	switch {
	case lost:
		r.metrics.leaseLosses.Inc()
		return
	case err == nil:
		r.metrics.projections.WithLabelValues("done").Inc()
		if done.Changed > 0 {
			r.Log.Debug("projected", "site", lease.SiteID, "checked", done.Checked, "changed", done.Changed)
		}
	case ctx.Err() != nil: // stopped: another replica takes it at once
	default:
		r.metrics.projections.WithLabelValues("failed").Inc()
		r.Log.Error("projection failed", "site", lease.SiteID, "error", err)
		r.noPolicy(err)
		retry = r.DB.Now().Add(r.jitter(projectionRetry))
	}
	giving, cancel := givingBack(ctx)
	defer cancel()
	if err := store.ReleaseProjection(giving, r.DB, lease, retry); err != nil {
		r.Log.Warn("lease not given back", "site", lease.SiteID, "error", err)
	}
}

// noPolicy pauses the claims of a replica that cannot judge: the others can.
func (r *Reconciler) noPolicy(err error) {
	if errors.Is(err, devices.ErrPolicyNotLoaded) {
		r.paused.start(time.Now().Add(policyPause))
	}
}
