package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// seedLock is the advisory lock under which a database is seeded: replicas that
// start together do it once.
const seedLock = 0x6d757374657202

// seedTries is how often another replica is waited for: to load the first policies
// takes it seconds, on a busy machine more than one wait for a lock.
const seedTries = 12

// Seed is what a database begins with. What is there already stays.
type Seed struct {
	Policies fs.FS            // a whole bundle, activated where none is active
	Sites    []fleet.SiteSpec // applied where there is none
	Actor    string           // whom the history names
}

// Apply gives an empty database its first policy and its first sites.
func (s Seed) Apply(ctx context.Context, db *store.DB, policy *devices.Policy, log hclog.Logger) (err error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("seed the database: %w", err)
	}
	defer conn.Release()
	for tries := 1; ; tries++ { // each as long as the connection's lock_timeout
		_, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(seedLock))
		if err == nil {
			break
		}
		if !store.LockTimedOut(err) || tries == seedTries {
			return fmt.Errorf("seed the database: %w", err)
		}
		log.Info("waits for the replica that seeds the database")
	}
	defer func() {
		// A connection that could not give the lock back is of no more use.
		if _, uerr := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", int64(seedLock)); uerr != nil {
			err = errors.Join(err, fmt.Errorf("seed the database: %w", uerr), conn.Conn().Close(context.WithoutCancel(ctx)))
		}
	}()
	if _, err := store.Active(ctx, db); errors.Is(err, store.ErrNotFound) {
		if _, _, err := policy.Activate(ctx, s.Policies, s.Actor); err != nil {
			return fmt.Errorf("activate the first policies: %w", err)
		}
	} else if err != nil {
		return err
	}
	sites, err := store.Sites(ctx, db)
	if err != nil || len(sites) > 0 {
		return err
	}
	for _, spec := range s.Sites {
		if _, err := devices.ApplySite(ctx, db, spec, devices.SiteOptions{Actor: s.Actor}); err != nil {
			return fmt.Errorf("apply the first site %s: %w", spec.Name, err)
		}
		log.Info("site applied", "site", spec.Name)
	}
	return nil
}
