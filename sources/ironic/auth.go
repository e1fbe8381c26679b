package ironic

import (
	"context"
	"errors"
	"fmt"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"

	"github.com/musterhq/muster/sources"
)

// connect makes the client of Ironic's API, with a token where Keystone gives
// one. A token that ends is replaced once per request.
func (c *Client) connect(ctx context.Context) (*gophercloud.ServiceClient, error) {
	var sc *gophercloud.ServiceClient
	var err error
	switch c.config.Auth {
	case AuthKeystone:
		sc, err = c.keystone(ctx)
	case AuthHTTPBasic:
		sc, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
			IronicEndpoint: c.config.URL, IronicUser: c.config.User, IronicUserPassword: c.config.Password,
		})
	default:
		sc, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: c.config.URL})
	}
	var classified *sources.Error
	if errors.As(err, &classified) {
		return nil, classified
	}
	if err != nil {
		return nil, c.classify("connect to Ironic", err)
	}
	endpoint := sc.Endpoint
	if c.config.URL != "" {
		endpoint = c.config.URL
	}
	root, err := base(endpoint)
	if err != nil {
		return nil, c.classify("connect to Ironic", fmt.Errorf("the catalog's endpoint: %w", err))
	}
	sc.Endpoint = root.String()
	sc.ResourceBase = sc.Endpoint + "v1/"
	sc.HTTPClient = *c.http
	return sc, nil
}

func (c *Client) keystone(ctx context.Context) (*gophercloud.ServiceClient, error) {
	k := c.config.Keystone
	provider, err := openstack.NewClient(k.URL)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = *c.http
	provider.UseTokenLock()
	if err := openstack.Authenticate(ctx, provider, c.config.credentials()); err != nil {
		return nil, c.unauthenticated("reach Ironic", err)
	}
	if c.config.URL != "" {
		return &gophercloud.ServiceClient{ProviderClient: provider, Type: "baremetal"}, nil
	}
	sc, err := openstack.NewBareMetalV1(provider, gophercloud.EndpointOpts{
		Region: k.Region, Availability: gophercloud.Availability(k.Interface),
	})
	if err != nil {
		return nil, fmt.Errorf("find the %s endpoint of baremetal in Keystone's catalog (region %q): %w", k.Interface, k.Region, err)
	}
	return sc, nil
}

func (c Config) credentials() gophercloud.AuthOptions {
	k := c.Keystone
	options := gophercloud.AuthOptions{IdentityEndpoint: k.URL, AllowReauth: true}
	if k.ApplicationCredential != "" {
		options.ApplicationCredentialID = k.ApplicationCredential
		options.ApplicationCredentialSecret = k.ApplicationSecret
		return options
	}
	options.Username, options.Password = c.User, c.Password
	options.DomainID, options.DomainName = domain(k.UserDomain)
	options.Scope = &gophercloud.AuthScope{System: true}
	if !k.SystemScope {
		id, name := domain(k.ProjectDomain)
		options.Scope = &gophercloud.AuthScope{ProjectName: k.Project, DomainID: id, DomainName: name}
	}
	return options
}

// domain tells an id from a name: every Keystone's first domain has the id
// default, which is how operators write it.
func domain(s string) (id, name string) {
	if s == "" || s == "default" {
		return "default", ""
	}
	return "", s
}
