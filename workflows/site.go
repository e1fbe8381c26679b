package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// Sources gives the clients of the systems of a site; the registry of sources
// does.
type Sources interface {
	Use(site *fleet.Site, source string) (client sources.Source, release func(), err error)
}

// site holds the activities that touch the systems of one site. Each may run
// again at any time: it reads what is so before it writes.
type site struct {
	id      int64
	db      *store.DB
	sources Sources
	clock   sources.Clock
	poll    time.Duration // between two looks at what takes long
}

func (s *site) register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(s.verifyBMC, activity.RegisterOptions{Name: actVerifyBMC})
	w.RegisterActivityWithOptions(s.prepareClean, activity.RegisterOptions{Name: actCleanPrepare})
	w.RegisterActivityWithOptions(s.manage, activity.RegisterOptions{Name: actCleanManage})
	w.RegisterActivityWithOptions(s.provide, activity.RegisterOptions{Name: actCleanProvide})
	w.RegisterActivityWithOptions(s.awaitClean, activity.RegisterOptions{Name: actCleanAwait})
}

// device reads a device of the site as it is now.
func (s *site) device(ctx context.Context, id int64) (fleet.Device, error) {
	all, err := patiently(ctx, func() ([]fleet.Device, error) { return store.DevicesByID(ctx, s.db, []int64{id}) })
	if err != nil {
		return fleet.Device{}, err
	}
	if len(all) == 0 {
		return fleet.Device{}, fmt.Errorf("read device %d: %w", id, store.ErrNotFound)
	}
	return all[0], nil
}

// patiently reads rows for as long as the activity may take: a database that is
// away for a while is no failure of a machine.
func patiently[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if err == nil || errors.Is(err, store.ErrNotFound) || !wait(ctx, rowsPause) {
			return v, err
		}
	}
}

const rowsPause = time.Second

// wait waits, and reports whether ctx let it.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errNoClient says that what the site has of a source can be read and not acted
// on, as a recording.
type errNoClient struct{ site, source string }

func (e errNoClient) Error() string {
	return fmt.Sprintf("the %s of site %s takes no acts: give the site the real one (sources.%s), not a recording", e.source, e.site, e.source)
}

// use gives the site's client of a source, of the kind that is asked for.
func use[T any](ctx context.Context, s *site, source string) (client T, release func(), err error) {
	row, err := patiently(ctx, func() (fleet.Site, error) { return store.SiteByID(ctx, s.db, s.id) })
	if err != nil {
		return client, nil, err
	}
	found, release, err := s.sources.Use(&row, source)
	if err != nil {
		return client, nil, err
	}
	client, ok := found.(T)
	if !ok {
		release()
		return client, nil, errNoClient{row.Spec.Name, source}
	}
	return client, release, nil
}
