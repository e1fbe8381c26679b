package registry

import (
	"errors"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/keystone"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/placement"
)

// errNotInCatalog says that a service has no endpoint of its own in the site and
// that there is no catalog to find it in.
var errNotInCatalog = errors.New("the site does not say where it is, and its Ironic is not reached through Keystone, whose catalog would: give sources.placement and sources.nova, or keystone to sources.ironic")

// access is how one service of an OpenStack is reached, secrets resolved. login
// is a use of the shared one, nil without Keystone.
type access struct {
	password string
	keystone keystone.Config
	login    *keystone.Login
	bounds   sources.Options
}

func (r *Registry) access(s *fleet.OpenStackSource) (a access, err error) {
	a.bounds = r.bounds(&s.Endpoint)
	if s.Password != "" {
		if a.password, err = Secret(s.Password); err != nil {
			return a, err
		}
	}
	if k := s.Keystone; k != nil {
		a.keystone = keystone.Config{
			URL: k.URL, User: s.Username, Password: a.password, Project: k.Project, UserDomain: k.UserDomain, ProjectDomain: k.ProjectDomain, Region: k.Region,
		}
		o := a.bounds
		o.Clock = r.options.Clock
		a.login, err = r.logins.Open(a.keystone, o)
	}
	return a, err
}

// end gives the login back where no client took it.
func (a *access) end() {
	if a.login != nil {
		a.login.Close()
	}
}

func (r *Registry) ironic(s *fleet.IronicSource) (sources.Source, error) {
	a, err := r.access(&s.OpenStackSource)
	if err != nil {
		return nil, err
	}
	client, err := ironic.New(ironic.Config{
		URL: s.URL, Auth: ironic.Auth(s.Auth), User: s.Username, Password: a.password, Keystone: a.keystone, Login: a.login, PageSize: s.PageSize, HTTP: a.bounds,
	}, r.options.Clock, r.options.Log)
	if err != nil {
		a.end()
		return nil, err
	}
	return client, nil
}

// beside gives where a service is that Ironic's catalog names unless the site
// itself does.
func beside(own *fleet.OpenStackSource, node *fleet.IronicSource) (*fleet.OpenStackSource, error) {
	if own != nil {
		return own, nil
	}
	if node == nil || node.Keystone == nil {
		return nil, errNotInCatalog
	}
	s := node.OpenStackSource
	s.URL = "" // Ironic's
	return &s, nil
}

func (r *Registry) placement(spec *fleet.SiteSpec) (sources.Source, error) {
	s, err := beside(spec.Sources.Placement, spec.Sources.Ironic)
	if err != nil {
		return nil, err
	}
	a, err := r.access(s)
	if err != nil {
		return nil, err
	}
	client, err := placement.New(placement.Config{
		URL: s.URL, Auth: keystone.Auth(s.Auth), User: s.Username, Password: a.password, Keystone: a.keystone, Login: a.login, HTTP: a.bounds,
	}, r.options.Clock)
	if err != nil {
		a.end()
		return nil, err
	}
	return client, nil
}

// nova gives a client of the site's Nova, as as or, nil, as the site's own user.
func (r *Registry) nova(spec *fleet.SiteSpec, as *fleet.NovaImaging) (closer, error) {
	s, err := beside(spec.Sources.Nova, spec.Sources.Ironic)
	if err != nil {
		return nil, err
	}
	if as != nil {
		own := *s
		own.Username, own.Password = as.Username, as.Password
		if own.Keystone != nil {
			k := *own.Keystone
			k.Project = as.Project
			own.Keystone = &k
		}
		s = &own
	}
	a, err := r.access(s)
	if err != nil {
		return nil, err
	}
	client, err := nova.New(nova.Config{
		URL: s.URL, Auth: keystone.Auth(s.Auth), User: s.Username, Password: a.password, Keystone: a.keystone, Login: a.login, HTTP: a.bounds,
	}, r.options.Clock)
	if err != nil {
		a.end()
		return nil, err
	}
	return client, nil
}
