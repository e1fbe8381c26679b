package act

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

// Clients gives the clients of the systems of a site; the registry of sources
// does.
type Clients interface {
	Open(site *fleet.Site, name string) (client any, release func(), err error)
}

// Policies gives the bundle that is judged by.
type Policies interface {
	Current() *engine.Bundle // nil while none is loaded
}

// Site is what activities that touch one site work with.
type Site struct {
	ID       int64
	DB       *store.DB
	Clients  Clients
	Devices  *devices.Service
	Policies Policies
	Clock    sources.Clock
	Poll     time.Duration // between two looks at what takes long
}

// Row reads the site as it is now.
func (s *Site) Row(ctx context.Context) (fleet.Site, error) {
	return patiently(ctx, func() (fleet.Site, error) { return store.SiteByID(ctx, s.DB, s.ID) })
}

// Device reads a device of the site as it is now.
func (s *Site) Device(ctx context.Context, id int64) (fleet.Device, error) {
	all, err := patiently(ctx, func() ([]fleet.Device, error) { return store.DevicesByID(ctx, s.DB, []int64{id}) })
	if err != nil {
		return fleet.Device{}, err
	}
	if len(all) == 0 {
		return fleet.Device{}, fmt.Errorf("read device %d: %w", id, store.ErrNotFound)
	}
	return all[0], nil
}

// Bundle gives the active policies; it waits for them.
func (s *Site) Bundle(ctx context.Context) (*engine.Bundle, error) {
	for {
		if b := s.Policies.Current(); b != nil {
			return b, nil
		}
		if !Wait(ctx, rowsPause) {
			return nil, ctx.Err()
		}
	}
}

// patiently reads rows for as long as the activity may take: a database that is
// away for a while is no failure of a machine.
func patiently[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		v, err := read()
		if err == nil || errors.Is(err, store.ErrNotFound) || !Wait(ctx, rowsPause) {
			return v, err
		}
	}
}

const rowsPause = time.Second

// Wait waits, and reports whether ctx let it.
func Wait(ctx context.Context, d time.Duration) bool {
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

// Use gives the site's client of a name (ironic, bmc, nova …), of the kind that is
// asked for, until release is called.
func Use[T any](ctx context.Context, s *Site, name string) (client T, release func(), err error) {
	row, err := s.Row(ctx)
	if err != nil {
		return client, nil, err
	}
	found, release, err := s.Clients.Open(&row, name)
	if err != nil {
		return client, nil, err
	}
	client, ok := found.(T)
	if !ok {
		release()
		return client, nil, errNoClient{row.Spec.Name, name}
	}
	return client, release, nil
}
