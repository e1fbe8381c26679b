package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// watched is what one breaker counts in one scope.
type watched struct {
	breaker *engine.Breaker
	in      store.CapScope
	name    string
}

// failures are those of one change.
type failures struct {
	work   string // the workflow or operation
	holder string
	site   int64
	ended  []int64 // devices
}

// trip opens the breakers that failures trip. Without a bundle none is known.
func (s *Service) trip(ctx context.Context, tx pgx.Tx, w failures) error {
	bundle := s.current()
	if bundle == nil {
		return nil
	}
	l := s.limits(bundle)
	if !slices.ContainsFunc(l.Breakers, func(b engine.Breaker) bool { return counts(&b.Scope, w.work) }) {
		return nil
	}
	all, err := store.DevicesByID(ctx, tx, w.ended)
	if err != nil {
		return err
	}
	site, err := store.SiteByID(ctx, tx, w.site)
	if err != nil {
		return err
	}
	racks, err := rackNames(ctx, tx, all)
	if err != nil {
		return err
	}
	var watches []watched
	for i := range l.Breakers {
		b := &l.Breakers[i]
		if !counts(&b.Scope, w.work) {
			continue
		}
		for j := range all {
			in, name := scopeOf(&b.Scope, &all[j], w.work, site.Spec.Name, racks[all[j].RackID])
			watches = append(watches, watched{b, in, name})
		}
	}
	slices.SortFunc(watches, func(x, y watched) int { return strings.Compare(x.name, y.name) })
	watches = slices.CompactFunc(watches, func(x, y watched) bool { return x.name == y.name })
	for _, x := range watches {
		failed, runs, err := store.CountRuns(ctx, tx, x.name, x.in, x.breaker.Workflows, x.breaker.Window)
		if err != nil {
			return err
		}
		if runs < x.breaker.MinRuns || runs == 0 || float64(failed) < x.breaker.FailureShare*float64(runs) {
			continue
		}
		tripped, err := store.TripBreaker(ctx, tx, &fleet.Breaker{
			Name: x.name, Policy: x.breaker.Name, Workflow: x.in.Workflow, SiteID: x.in.SiteID, RackID: x.in.RackID, DeviceClass: x.in.Class,
			Failed: failed, Runs: runs, Reason: fmt.Sprintf("%d of the last %d runs within %s failed, the last in %s", failed, runs, x.breaker.Window, spoken(w.holder)),
		})
		if err != nil {
			return err
		}
		if tripped {
			s.log.Warn("breaker tripped", "breaker", x.name, "failed", failed, "runs", runs, "holder", w.holder)
		}
	}
	return nil
}

// spoken is a holder as people say it: job 12.
func spoken(holder string) string { return strings.Replace(holder, "/", " ", 1) }

func rackNames(ctx context.Context, q store.Querier, all []fleet.Device) (map[int64]string, error) {
	var ids []int64
	for i := range all {
		if all[i].RackID != 0 {
			ids = append(ids, all[i].RackID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return store.RackNames(ctx, q, ids)
}

// ResetBreaker closes a breaker: a person has looked, and says why. What failed
// before no longer counts. One that is closed already stays so.
func (s *Service) ResetBreaker(ctx context.Context, name, reason string, by devices.Caller) error {
	if reason = strings.TrimSpace(store.Clean(reason)); reason == "" {
		return &Error{CodeReasonMissing, "say why the breaker may be closed"}
	}
	err := s.db.Tx(ctx, func(tx pgx.Tx) error {
		reset, err := store.ResetBreaker(ctx, tx, name, by.Name, reason)
		if errors.Is(err, store.ErrNotFound) {
			return &Error{CodeBreakerNotFound, fmt.Sprintf("no breaker %q has ever tripped", name)}
		}
		if err != nil || !reset {
			return err
		}
		if err := store.Notify(ctx, tx, store.ExecutionsChannel, 0); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.AuditEntry{Principal: by.Name, Remote: by.Remote, Action: "breaker.reset", Target: name, Detail: map[string]any{"reason": reason}})
	})
	return refusedOr(err, "reset breaker "+name)
}
