package reconciler

import (
	"context"
	"sync"

	"github.com/musterhq/muster/store"
)

// allower is a client that stops trying a credential where it is refused, until
// a person allows it. redfish.Client is one.
type allower interface {
	AllowLogin(address string) // an empty address means every one
}

// followed says up to which permission this replica has followed, by site. A
// replica that starts follows all of them: it has stopped trying nowhere yet.
type followed struct {
	mu sync.Mutex
	by map[int64]int64
}

func (f *followed) of(site int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[site]
}

func (f *followed) set(site, permission int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[int64]int64{}
	}
	f.by[site] = max(f.by[site], permission)
}

// allowLogins passes on what persons have allowed since this replica swept last.
// Each replica counts refusals by itself, so each follows every permission,
// whoever sweeps first.
func (s *sweep) allowLogins(ctx context.Context) error {
	client, ok := s.client.(allower)
	if !ok {
		return nil
	}
	permissions, err := store.LoginsAllowed(ctx, s.DB, s.site.ID, s.lease.Source, s.logins.of(s.site.ID))
	if err != nil {
		return err
	}
	for _, p := range permissions {
		if len(p.Addresses) == 0 {
			client.AllowLogin("")
		}
		for _, address := range p.Addresses {
			client.AllowLogin(address)
		}
		s.logins.set(s.site.ID, p.ID)
	}
	return nil
}
