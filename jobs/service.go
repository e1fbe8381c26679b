package jobs

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/store"
)

// Implementation is how this server runs a workflow.
type Implementation struct {
	Batch bool // one workflow of Temporal for all devices of a job, else one a device
}

// Options of a Service. Zero values take the defaults.
type Options struct {
	// Implemented tells which workflows of the catalogue this version runs; nil:
	// none.
	Implemented func(slug string) (Implementation, bool)

	DispatchWithin time.Duration // what is unsent for longer fails, default 1 h; below Temporal's retention
	LostAfter      time.Duration // how long Temporal must know nothing of work before it is lost, default 10 min
	SendTimeout    time.Duration // of one call to Temporal, default 5 s: others wait for it
}

// Service admits and accounts. It has no state of its own: any number of them,
// in any number of processes, work on one database.
type Service struct {
	db      *store.DB
	devices *devices.Service
	current func() *engine.Bundle
	clock   func() time.Time // the database's
	log     hclog.Logger
	options Options
	limits  func(*engine.Bundle) engine.Limits
	tasks   Tasks // nil: there are none
}

// Implements reports whether this server runs a workflow.
func (s *Service) Implements(slug string) bool {
	_, does := s.options.Implemented(slug)
	return does
}

// New makes a Service.
func New(db *store.DB, d *devices.Service, policies devices.Policies, clock func() time.Time, log hclog.Logger, o Options) *Service {
	if o.Implemented == nil {
		o.Implemented = func(string) (Implementation, bool) { return Implementation{}, false }
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&o.DispatchWithin, time.Hour}, {&o.LostAfter, 10 * time.Minute}, {&o.SendTimeout, 5 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	return &Service{db: db, devices: d, current: policies.Current, clock: clock, log: log, options: o, limits: (*engine.Bundle).Limits}
}

// Locks tells package devices which devices work holds.
type Locks struct{}

var _ devices.Locks = Locks{}

// Held gives those of the devices that somebody's work holds.
func (Locks) Held(ctx context.Context, tx pgx.Tx, ids []int64) (map[int64]bool, error) {
	locks, err := store.LocksOf(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	held := make(map[int64]bool, len(locks))
	for i := range locks {
		held[locks[i].DeviceID] = true
	}
	return held, nil
}
