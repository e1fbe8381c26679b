package nova

import (
	"fmt"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// version of the API: 2.1 shows everything that is read here, and every Nova
// since 2015 has it.
const version = "2.1"

// Config says which Nova is spoken to and how.
type Config struct {
	URL      string        // Nova's endpoint, with or without /v2.1; empty: from Keystone's catalog
	Auth     keystone.Auth // default none
	User     string        // of http_basic or Keystone
	Password string        // the secret itself, resolved by the caller
	Keystone keystone.Config
	Login    *keystone.Login // shared with others of the same Keystone and user; nil: one of its own

	PageSize int           // servers asked for in one page, default 500; the server may give fewer
	Poll     time.Duration // between two looks at what is to change, default 2 s

	HTTP sources.Options // bounds of every call; Clock is replaced by the client's
}

// Client is one Nova. It is safe for concurrent use.
type Client struct {
	config Config
	api    *keystone.Service
	clock  sources.Clock
}

// New checks the configuration; it calls nobody.
func New(config Config, clock sources.Clock) (*Client, error) {
	if config.PageSize <= 0 {
		config.PageSize = 500
	}
	if config.Poll <= 0 {
		config.Poll = 2 * time.Second
	}
	config.HTTP.Clock = clock
	config.HTTP = config.HTTP.WithDefaults()
	k := config.Keystone
	k.User, k.Password = config.User, config.Password
	c := &Client{config: config, clock: clock}
	var err error
	c.api, err = keystone.NewService(keystone.Access{
		Service: "compute", Name: "Nova", URL: config.URL, Auth: config.Auth, User: config.User, Password: config.Password,
		Keystone: k, Login: config.Login,
	}, config.HTTP, func(sc *gophercloud.ServiceClient) {
		if !strings.Contains(sc.Endpoint, "/v2") { // catalogs name the version, operators may not
			sc.Endpoint += "v2.1/"
		}
		sc.Microversion = version
	}, c.answered)
	if err != nil {
		return nil, fmt.Errorf("configure Nova: %w", err)
	}
	return c, nil
}

// Close releases the connections.
func (c *Client) Close() { c.api.Close() }
