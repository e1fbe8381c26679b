package devices

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Policies gives the bundle to judge by. Policy implements it.
type Policies interface {
	Current() *engine.Bundle                                            // nil while none is loaded
	Refresh(ctx context.Context) (*engine.Bundle, error)                // loads the active one
	Bundle(ctx context.Context, version string) (*engine.Bundle, error) // any stored one, to replay by
}

var _ Policies = (*Policy)(nil)

// Service writes devices. It has no state of its own: any number of them, in
// any number of processes, work on one database.
type Service struct {
	db       *store.DB
	policies Policies
	clock    func() time.Time // the database's
	log      hclog.Logger
	metrics  *metrics
	locks    Locks
	handing  chan struct{}         // one for each hand-off under way
	model    atomic.Pointer[model] // of the bundle used last
}

// New makes a Service. clock gives the database's present instant.
func New(db *store.DB, policies Policies, clock func() time.Time, log hclog.Logger) *Service {
	return &Service{db: db, policies: policies, clock: clock, log: log, metrics: newMetrics(), locks: noLocks{}, handing: make(chan struct{}, handOffs)}
}

// policyAttempts bounds how often a judgement starts over because another
// bundle became active meanwhile.
const policyAttempts = 4

// errOtherPolicy says that the active bundle is not the one at hand.
var errOtherPolicy = errors.New("another policy is active")

// judging runs f in a transaction in which the active bundle cannot change and
// is the one that f judges by.
func (s *Service) judging(ctx context.Context, siteID int64, cause fleet.Cause, f func(tx pgx.Tx, r *round) error) error {
	b := s.policies.Current()
	for range policyAttempts {
		if b != nil {
			err := s.db.Tx(ctx, func(tx pgx.Tx) error {
				r, err := s.open(ctx, tx, b, siteID, cause)
				if err != nil {
					return err
				}
				return f(tx, r)
			})
			if !errors.Is(err, errOtherPolicy) {
				return err
			}
		}
		var err error
		if b, err = s.policies.Refresh(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrPolicyNotLoaded, err)
		}
	}
	return fmt.Errorf("%w: it changes faster than it loads", ErrPolicyNotLoaded)
}

func (s *Service) open(ctx context.Context, tx pgx.Tx, b *engine.Bundle, siteID int64, cause fleet.Cause) (*round, error) {
	// Two statements: the second must see what was committed while the first waited.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock_shared($1)", int64(store.BundleLock)); err != nil {
		return nil, fmt.Errorf("lock the active policy: %w", err)
	}
	active, err := store.Active(ctx, tx)
	if err != nil {
		return nil, err
	}
	if active.Version != b.Version() {
		return nil, errOtherPolicy
	}
	return s.round(ctx, tx, b, siteID, cause)
}

// round reads what every device of a site is judged by.
func (s *Service) round(ctx context.Context, q store.Querier, b *engine.Bundle, siteID int64, cause fleet.Cause) (*round, error) {
	site, err := store.SiteByID(ctx, q, siteID)
	if err != nil {
		return nil, err
	}
	marks, err := store.Watermarks(ctx, q, siteID)
	if err != nil {
		return nil, err
	}
	return newRound(s.modelOf(b), site, marks, cause, micros(s.clock())), nil
}

func (s *Service) modelOf(b *engine.Bundle) *model {
	if m := s.model.Load(); m != nil && m.bundle == b {
		return m
	}
	m := newModel(b)
	s.model.Store(m)
	return m
}
