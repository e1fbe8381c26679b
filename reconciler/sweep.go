package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

const (
	patience     = time.Second     // what is due for longer is taken beyond the share
	shortestRest = time.Second     // between two sweeps, of those that take longer than their interval
	firstRetry   = time.Second     // after the first failure; later ones wait as long as it has been failing
	mostAsked    = 5 * time.Minute // of the wait that a source asks for
)

func (r *Reconciler) claimSweeps(ctx context.Context, free int) ([]func(context.Context), error) {
	leases, err := store.ClaimSweeps(ctx, r.DB, r.Owner, r.Lease, 2*r.Lease, patience, free)
	jobs := make([]func(context.Context), 0, len(leases))
	for _, l := range leases {
		jobs = append(jobs, func(ctx context.Context) { r.sweep(ctx, l) })
	}
	return jobs, err
}

// sweep is one reading of one source of one site.
type sweep struct {
	*Reconciler
	lease  store.SweepLease
	site   fleet.Site
	bundle *engine.Bundle
	client sources.Source
	began  time.Time
	joined int // records that were found to be a device's
}

// sweep reads one source and gives the lease back, with the instant at which
// it is due again.
func (r *Reconciler) sweep(ctx context.Context, lease store.SweepLease) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, r.SweepLimit)
	defer cancel()
	working, release := r.keep(bounded, func(ctx context.Context) (bool, error) {
		return store.RenewSweep(ctx, r.DB, lease, r.Lease)
	})
	s := &sweep{Reconciler: r, lease: lease, bundle: r.Policies.Current(), began: r.DB.Now()}
	err := guard(func() error { return s.run(working) })
	lost := errors.Is(context.Cause(working), errLeaseLost) || errors.Is(err, devices.ErrLeaseLost)
	release()
	giving, cancel := givingBack(ctx)
	defer cancel()
	result, next := s.judge(giving, err, lost, ctx.Err() != nil)
	r.metrics.sweeps.WithLabelValues(lease.Source, result).Observe(time.Since(start).Seconds())
	if err := store.ReleaseSweep(giving, r.DB, lease, next); err != nil {
		r.Log.Warn("lease not given back", "site", s.name(), "source", lease.Source, "error", err)
	}
}

// name is the site's, or its id where it was not read.
func (s *sweep) name() string {
	if s.site.Spec.Name == "" {
		return fmt.Sprint(s.lease.SiteID)
	}
	return s.site.Spec.Name
}

// judge says how a sweep ended and when the next one is due.
func (s *sweep) judge(ctx context.Context, err error, lost, stopped bool) (result string, next time.Time) {
	switch {
	case err == nil:
		wait := s.interval() - s.DB.Now().Sub(s.began)
		return "done", s.after(max(wait, min(s.interval()/10, shortestRest)))
	case lost:
		s.metrics.leaseLosses.Inc()
		s.Log.Info("sweep passed to another replica", "site", s.name(), "source", s.lease.Source)
		return "lost", s.lease.Due
	case stopped:
		return "stopped", s.lease.Due
	case errors.Is(err, devices.ErrPolicyNotLoaded):
		s.noPolicy(err)
		s.Log.Error("sweep failed", "site", s.name(), "source", s.lease.Source, "error", err)
		return "failed", s.lease.Due
	}
	s.Log.Warn("sweep failed", "site", s.name(), "source", s.lease.Source, "error", err)
	return "failed", s.after(s.fail(ctx, err))
}

// fail records the failure and gives the time to wait before the next try: a
// second at first, then as long as the source has been failing, never longer
// than its interval unless the source itself asks for more time.
func (s *sweep) fail(ctx context.Context, err error) time.Duration {
	interval := s.interval()
	wait := max(min(firstRetry, interval), asked(err))
	if kind := sources.KindOf(err); kind == sources.KindForbidden {
		s.Clients.Drop(s.lease.SiteID, s.lease.Source)
	}
	l := s.lease
	if err := s.Devices.FailSweep(ctx, l.SiteID, l.Source, l.Owner, l.Epoch, reasonOf(l.Source)); err != nil {
		s.Log.Warn("failure not recorded", "site", s.name(), "source", l.Source, "error", err)
		return wait
	}
	if err := s.tell(ctx, err); err != nil {
		s.Log.Warn("failure not recorded", "site", s.name(), "source", l.Source, "error", err)
	}
	marks, err := store.Watermarks(ctx, s.DB, l.SiteID)
	if err != nil {
		return wait
	}
	return max(wait, min(interval, s.DB.Now().Sub(marks[l.Source].FailingSince)))
}

// asked gives how long a failing source wants to be left alone, whatever the
// jitter takes away.
func asked(err error) time.Duration {
	var failure *sources.Error
	if !errors.As(err, &failure) {
		return 0
	}
	return min(failure.RetryAfter, mostAsked) * 10 / 9
}

// tell makes the failure a finding, in words for the operator.
func (s *sweep) tell(ctx context.Context, failure error) error {
	text := failure.Error()
	if errors.Is(failure, errPanic) {
		text = errPanic.Error() + ": see the log"
	}
	return store.ReplaceFindings(ctx, s.DB, s.lease.SiteID, s.lease.Source, []string{fleet.FindingFailure}, []fleet.Finding{{
		Kind: fleet.FindingFailure, Detail: map[string]any{"error": sources.CleanText(text, 2048), "kind": string(sources.KindOf(failure))},
	}})
}

// reasonOf is what is shown over the last values of a source that fails.
func reasonOf(source string) string {
	switch source {
	case "slurm":
		return sources.ReasonSchedulerUnreachable
	case "placement":
		return "PlacementUnread"
	}
	return sources.ReasonStale
}

// interval is how often the site has the source read.
func (s *sweep) interval() time.Duration {
	if s.bundle == nil {
		return policyPause
	}
	if pace := devices.Paces(s.bundle, &s.site.Spec)[s.lease.Source]; pace.Interval > 0 {
		return pace.Interval
	}
	return policyPause
}

// after is a jittered wait from now on.
func (s *sweep) after(wait time.Duration) time.Time { return s.DB.Now().Add(s.jitter(wait)) }

// run reads the source once, applies what it gives as it comes, and concludes
// what only the whole listing can tell.
func (s *sweep) run(ctx context.Context) error {
	site, err := store.SiteByID(ctx, s.DB, s.lease.SiteID)
	if err != nil {
		return err
	}
	s.site = site
	client, release, err := s.Clients.Use(&s.site, s.lease.Source)
	if err != nil {
		return err
	}
	defer release()
	s.client = client
	if err := s.allowLogins(ctx); err != nil {
		return err
	}
	l, err := newListing(ctx, s)
	if err != nil {
		return err
	}
	end, err := l.read(ctx)
	if err != nil {
		return err
	}
	if !end.Complete {
		return &sources.Error{Kind: sources.KindTransient, Op: "list " + s.lease.Source, Message: "the listing stopped before its end"}
	}
	if err := l.overtaken(ctx); err != nil {
		return err
	}
	if err := l.conclude(ctx, end); err != nil {
		return err
	}
	if l.fresh > 0 {
		if err := store.RequestOtherSweeps(ctx, s.DB, s.site.ID, s.lease.Source); err != nil {
			return err
		}
	}
	if l.joined > 0 && s.lease.Source == "ironic" { // Placement's records join by Ironic's
		if err := store.RequestSweep(ctx, s.DB, s.site.ID, "placement"); err != nil {
			return err
		}
	}
	if err := store.RequestProjection(ctx, s.DB, s.site.ID); err != nil {
		return err
	}
	signal(s.wake)
	return nil
}
