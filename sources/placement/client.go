package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// version of the API: the first in which conflicts tell a code and consumers a
// generation.
const version = "1.28"

// noKeystone is the token of the administrator of a Placement that runs without
// Keystone (auth_strategy noauth2).
const noKeystone = "admin"

// Config says which Placement is read and how.
type Config struct {
	URL      string        // Placement's endpoint; empty: from Keystone's catalog
	Auth     keystone.Auth // default none
	User     string        // of http_basic or Keystone
	Password string        // the secret itself, resolved by the caller
	Keystone keystone.Config
	Login    *keystone.Login // shared with others of the same Keystone and user; nil: one of its own

	Poll time.Duration // between two looks at what is to change, default 500 ms

	HTTP sources.Options // bounds of every call, InFlight default 8; Clock is replaced by the client's
}

// Client is one Placement. It is safe for concurrent use.
type Client struct {
	config Config
	api    *keystone.Service
	clock  sources.Clock

	mu   sync.Mutex
	idle map[string]idle // providers that held nothing
}

var _ sources.Source = (*Client)(nil)

// New checks the configuration; it calls nobody.
func New(config Config, clock sources.Clock) (*Client, error) {
	if config.HTTP.InFlight <= 0 {
		config.HTTP.InFlight = 8
	}
	if config.Poll <= 0 {
		config.Poll = 500 * time.Millisecond
	}
	config.HTTP.Clock = clock
	config.HTTP = config.HTTP.WithDefaults()
	k := config.Keystone
	k.User, k.Password = config.User, config.Password
	c := &Client{config: config, clock: clock, idle: map[string]idle{}}
	var err error
	c.api, err = keystone.NewService(keystone.Access{
		Service: "placement", Name: "Placement", URL: config.URL, Auth: config.Auth, User: config.User, Password: config.Password,
		Keystone: k, Token: noKeystone, Login: config.Login,
	}, config.HTTP, func(sc *gophercloud.ServiceClient) { sc.Microversion = version }, c.answered)
	if err != nil {
		return nil, fmt.Errorf("configure the placement source: %w", err)
	}
	return c, nil
}

// Close releases the connections.
func (c *Client) Close() { c.api.Close() }

func (c *Client) call(ctx context.Context, method, op string, path ...string) ([]byte, error) {
	return c.api.Call(ctx, method, op, nil, path...)
}
