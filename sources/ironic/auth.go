package ironic

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// access says how Ironic is reached.
func (c Config) access() keystone.Access {
	k := c.Keystone
	k.User, k.Password = c.User, c.Password
	return keystone.Access{
		Service: "baremetal", Name: "Ironic", URL: c.URL, Auth: c.Auth, User: c.User, Password: c.Password, Keystone: k, Login: c.Login,
	}
}

// connect makes the client of Ironic's API, with a token where Keystone gives
// one.
func (c *Client) connect(ctx context.Context) (*gophercloud.ServiceClient, error) {
	sc, err := c.access.Connect(ctx, c.http)
	if err != nil {
		return nil, err
	}
	root, err := base(sc.Endpoint)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: "connect to Ironic", Message: err.Error(), Err: err}
	}
	sc.Endpoint = root.String()
	sc.ResourceBase = sc.Endpoint + "v1/"
	return sc, nil
}

// base gives an endpoint without a version and with a slash at its end.
func base(endpoint string) (*url.URL, error) {
	u, err := keystone.Endpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("find Ironic: %w", err)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	return u, nil
}
