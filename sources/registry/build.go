package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/recorded"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/slurm"
)

// ErrNoClient says that this build cannot read a source that the site names.
var ErrNoClient = errors.New("this version of muster has no client for it: record it (sources.recorded) or take it out of the site")

func (r *Registry) build(site *fleet.Site, source string) (closer, error) {
	if r.options.Build != nil {
		return r.options.Build(&site.Spec, source)
	}
	spec := &site.Spec
	if path, ok := spec.Sources.Recorded[source]; ok {
		return recorded.New(path, source, r.options.Clock)
	}
	switch {
	case source == "ironic" && spec.Sources.Ironic != nil:
		return r.ironic(spec.Sources.Ironic)
	case source == "placement" && spec.Has("placement") && (spec.Sources.Placement != nil || spec.Sources.Ironic != nil):
		return r.placement(spec)
	case source == "slurm" && spec.Sources.Slurm != nil:
		return r.slurm(spec.Name, spec.Sources.Slurm)
	case source == "netbox" && spec.Sources.NetBox != nil:
		return r.netbox(site)
	case source == "bmc" && spec.Sources.BMC != nil:
		return r.bmc(site)
	case source == "nova" && spec.Serves(source):
		return r.nova(spec, nil)
	case source == "imaging" && spec.Serves(source):
		return r.nova(spec, spec.Imaging.Nova)
	case spec.Serves(source) && slices.Contains(services, source):
		return r.service(spec, source)
	case spec.Has(source):
		return nil, ErrNoClient
	}
	return nil, fmt.Errorf("the site has no source %q", source)
}

func (r *Registry) slurm(site string, s *fleet.SlurmSource) (sources.Source, error) {
	config := slurm.Config{URL: s.URL, User: s.User, Versions: s.Versions, Transport: r.bounds(&s.Endpoint)}
	if path, file := secretFile(s.Token); file {
		config.TokenFile = path // read again by the client itself
	} else if s.Token != "" {
		token, err := Secret(s.Token)
		if err != nil {
			return nil, err
		}
		config.Token = token
	}
	if r.options.Slurm != nil {
		config.Meter = r.options.Slurm(site)
	}
	client, err := slurm.New(config, r.options.Clock, r.options.Log)
	if err != nil {
		return nil, err
	}
	return client, nil
}

func (r *Registry) netbox(site *fleet.Site) (sources.Source, error) {
	spec := &site.Spec
	s := spec.Sources.NetBox
	config := netbox.Config{Told: r.toldOf(site.ID), URL: s.URL, PageSize: s.PageSize, HTTP: r.bounds(&s.Endpoint)}
	if spec.NetBox != nil {
		config.Sites = spec.NetBox.Sites
	}
	if path, file := secretFile(s.Token); file {
		config.TokenFile = path // read again by the client itself
	} else {
		token, err := Secret(s.Token)
		if err != nil {
			return nil, err
		}
		config.Token = token
	}
	client, err := netbox.New(config, r.options.Clock, r.options.Log)
	if err != nil {
		return nil, err
	}
	return client, nil
}

func (r *Registry) bmc(site *fleet.Site) (sources.Source, error) {
	if r.options.BMCs == nil {
		return nil, errors.New("nothing tells which BMCs the site has")
	}
	id, s := site.ID, site.Spec.Sources.BMC
	config := redfish.Config{
		Targets: func(ctx context.Context) ([]redfish.Target, error) { return r.options.BMCs(ctx, id) },
		Secret:  Secret, // when it is used: a secret that changed is seen by the next round
		Port:    s.Port, Networks: s.Networks,
		TLS:     redfish.TLS{CAFile: s.TLS.CA, Fingerprints: s.TLS.Fingerprints, Insecure: s.TLS.Insecure},
		Timeout: time.Duration(s.Timeout), ConnectTimeout: time.Duration(s.ConnectTimeout), InFlight: s.InFlight,
		Rand: r.options.Rand,
	}
	for _, c := range s.Credentials {
		config.Credentials = append(config.Credentials, redfish.Credential{Match: c.Match, Ref: c.Ref})
	}
	if site.Spec.Sources.Credentials != nil {
		as := *site
		config.Store = func(ctx context.Context, device string) (redfish.Account, error) { return r.stored(ctx, &as, device) }
	}
	if r.options.Redfish != nil {
		config.Meter = r.options.Redfish(site.Spec.Name)
	}
	client, err := redfish.New(config, r.options.Clock, r.options.Log)
	if err != nil {
		return nil, err
	}
	return client, nil
}

func (r *Registry) bounds(e *fleet.Endpoint) sources.Options {
	bounds := r.options.Bounds
	bounds.TLS, bounds.Rand, bounds.Meter = sources.TLS{CAFile: e.CA, Insecure: e.Insecure}, r.options.Rand, r.options.Meter
	if e.Timeout > 0 {
		bounds.TotalTimeout = time.Duration(e.Timeout)
		bounds.HeaderTimeout = bounds.TotalTimeout
	}
	return bounds
}
