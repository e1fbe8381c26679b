package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/slurm"
)

// Options are what every client is built with.
type Options struct {
	Clock sources.Clock  // required: the database's clock
	Log   hclog.Logger   // required
	Rand  func() float64 // in [0,1), for the jitter of retries; default none
	Meter sources.Meter  // default none
	Slurm func(site string) slurm.Meter

	// Bounds are of every client over HTTP, but for what the site says itself and
	// the options above; zero values take the defaults of sources.Options.
	Bounds sources.Options

	// BMCs lists the BMCs of a site that are to be asked; required where a site
	// has them.
	BMCs    func(ctx context.Context, site int64) ([]redfish.Target, error)
	Redfish func(site string) redfish.Meter

	// Build replaces the shipped clients, in tests; default nil.
	Build func(spec *fleet.SiteSpec, source string) (sources.Source, error)
}

// Registry holds the clients of all sites. It may be used by many goroutines.
type Registry struct {
	options Options
	logins  *keystone.Pool // shared by what a site reads of one OpenStack, and by sites of one

	mu      sync.Mutex
	closed  bool
	clients map[key]*client
	told    map[int64]*netbox.Told // by site: it outlives a client that is dropped
}

type key struct {
	site   int64
	source string
}

// client is one built source. It is closed by whoever takes the last use of it
// away once it is out of the registry.
type client struct {
	it       closer
	revision int64
	uses     int
	out      bool
}

type closer interface{ Close() }

// ErrClosed says that the registry gives no more clients.
var ErrClosed = errors.New("the registry of sources is closed")

// New gives an empty registry.
func New(o Options) *Registry {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Registry{options: o, logins: keystone.NewPool(), clients: map[key]*client{}, told: map[int64]*netbox.Told{}}
}

// Use gives the client of one source of a site until release is called, once.
// A client that was built from an older revision of the site is replaced.
// Building one asks nothing of the source: it may be down.
func (r *Registry) Use(site *fleet.Site, source string) (_ sources.Source, release func(), err error) {
	found, release, err := r.Open(site, source)
	if err != nil {
		return nil, nil, err
	}
	client, ok := found.(sources.Source)
	if !ok {
		release()
		return nil, nil, fmt.Errorf("open the source %s of site %s: it is no source", source, site.Spec.Name)
	}
	return client, release, nil
}

// Open gives any client of a site as Use gives those of sources: besides them
// nova, and imaging, which is the same Nova with the credential of imaging.nova;
// dhcp, credentials and topology.
func (r *Registry) Open(site *fleet.Site, name string) (_ any, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, ErrClosed
	}
	k := key{site.ID, name}
	c := r.clients[k]
	if c == nil || c.revision < site.Revision {
		built, err := r.build(site, name)
		if err != nil {
			return nil, nil, fmt.Errorf("open the source %s of site %s: %w", name, site.Spec.Name, err)
		}
		r.takeOut(k)
		c = &client{it: built, revision: site.Revision}
		r.clients[k] = c
	}
	c.uses++
	return c.it, sync.OnceFunc(func() { r.release(c) }), nil
}

func (r *Registry) release(c *client) {
	r.mu.Lock()
	c.uses--
	last := c.out && c.uses == 0
	r.mu.Unlock()
	if last {
		c.it.Close()
	}
}

// takeOut removes a client; the mutex is held. One that nobody uses is closed.
func (r *Registry) takeOut(k key) {
	c := r.clients[k]
	if c == nil {
		return
	}
	delete(r.clients, k)
	c.out = true
	if c.uses == 0 {
		c.it.Close()
	}
}

// Drop forgets the client of a source: the next use builds it anew and reads
// its secrets again.
func (r *Registry) Drop(site int64, source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeOut(key{site, source})
}

// Keep closes the clients of the sources that no site has any more.
func (r *Registry) Keep(sites []fleet.Site) {
	specs := map[int64]*fleet.SiteSpec{}
	for i := range sites {
		specs[sites[i].ID] = &sites[i].Spec
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.clients {
		if spec := specs[k.site]; spec == nil || !spec.Serves(k.source) {
			r.takeOut(k)
		}
	}
	maps.DeleteFunc(r.told, func(site int64, _ *netbox.Told) bool { return specs[site] == nil })
}

// toldOf gives what was logged of a site's NetBox; the mutex is held.
func (r *Registry) toldOf(site int64) *netbox.Told {
	if r.told[site] == nil {
		r.told[site] = &netbox.Told{}
	}
	return r.told[site]
}

// Close closes every client as soon as nobody uses it; no new one is given.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for k := range r.clients {
		r.takeOut(k)
	}
}
