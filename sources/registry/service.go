package registry

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources/credentials"
	"github.com/musterhq/muster/sources/dhcp"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/service"
	"github.com/musterhq/muster/sources/topology"
)

// services are what a site may have of contracts of our own.
var services = []string{"dhcp", "credentials", "topology"}

// service builds the client of one of them.
func (r *Registry) service(spec *fleet.SiteSpec, name string) (closer, error) {
	s := map[string]*fleet.Service{"dhcp": spec.Sources.DHCP, "credentials": spec.Sources.Credentials, "topology": spec.Sources.Topology}[name]
	config := service.Config{URL: s.URL, HTTP: r.bounds(&s.Endpoint)}
	if path, file := secretFile(s.Token); file {
		config.TokenFile = path // read again by the client itself
	} else if s.Token != "" {
		token, err := Secret(s.Token)
		if err != nil {
			return nil, err
		}
		config.Token = token
	}
	switch name {
	case "dhcp":
		return closing(dhcp.New(config, r.options.Clock))
	case "credentials":
		return closing(credentials.New(config, r.options.Clock))
	}
	return closing(topology.New(config, r.options.Clock))
}

// closing gives no client with an error, and not a nil one of some type.
func closing[T closer](client T, err error) (closer, error) {
	if err != nil {
		return nil, err
	}
	return client, nil
}

// stored gives a device's own credential for its BMC, from the site's
// credentials service.
func (r *Registry) stored(ctx context.Context, site *fleet.Site, device string) (redfish.Account, error) {
	client, release, err := r.Open(site, "credentials")
	if err != nil {
		return redfish.Account{}, err
	}
	defer release()
	keeper, ok := client.(*credentials.Client)
	if !ok {
		return redfish.Account{}, fmt.Errorf("the credentials of site %s come from a %T, which keeps none", site.Spec.Name, client)
	}
	kept, err := keeper.Get(ctx, device)
	return redfish.Account(kept), err
}
