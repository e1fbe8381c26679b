package placement

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/hashicorp/go-hclog"

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

// Client is one Placement. It is safe for concurrent use and connects when it is
// first used, again whenever the endpoint is lost.
type Client struct {
	config Config
	access keystone.Access
	http   *http.Client
	clock  sources.Clock
	log    hclog.Logger

	gate    chan struct{} // held while connecting and while service is touched
	service *gophercloud.ServiceClient

	mu   sync.Mutex
	idle map[string]idle // providers that held nothing
}

var _ sources.Source = (*Client)(nil)

// New checks the configuration; it calls nobody.
func New(config Config, clock sources.Clock, log hclog.Logger) (*Client, error) {
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
	access := keystone.Access{
		Service: "placement", Name: "Placement", URL: config.URL, Auth: config.Auth, User: config.User, Password: config.Password,
		Keystone: k, Token: noKeystone, Login: config.Login,
	}
	client, err := sources.NewClient(config.HTTP)
	if err == nil {
		err = access.Open(config.HTTP)
	}
	if err != nil {
		return nil, fmt.Errorf("configure the placement source: %w", err)
	}
	return &Client{
		config: config, access: access, http: client, clock: clock, log: log.Named("placement"),
		gate: make(chan struct{}, 1), idle: map[string]idle{},
	}, nil
}

// Close releases the connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.access.Close()
}

// connected gives the client of the API, connecting if there is none.
func (c *Client) connected(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return nil, sources.Failure("connect to Placement", ctx.Err())
	}
	if c.service != nil {
		return c.service, nil
	}
	sc, err := c.access.Connect(ctx, c.http)
	if err != nil {
		return nil, err
	}
	sc.Microversion = version
	c.service = sc
	return sc, nil
}

// forget drops a client whose endpoint gave no answer: the catalog may name
// another one by now.
func (c *Client) forget(sc *gophercloud.ServiceClient) {
	c.gate <- struct{}{}
	defer func() { <-c.gate }()
	if c.service == sc {
		c.access.Forget(sc)
		c.service = nil
	}
}

// call makes one request below the endpoint and reads its answer to its end.
func (c *Client) call(ctx context.Context, method, op string, path ...string) ([]byte, error) {
	sc, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := sc.Request(ctx, method, sc.ServiceURL(path...), &gophercloud.RequestOpts{
		KeepResponseBody: true, OkCodes: []int{http.StatusOK, http.StatusNoContent},
	})
	if err != nil {
		classified := keystone.Failure(op, err, func(answer gophercloud.ErrUnexpectedResponseCode) *sources.Error { return c.answered(op, answer) })
		if noAnswer(err, classified) {
			c.forget(sc)
		}
		return nil, classified
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, sources.Failure(op, fmt.Errorf("read the answer: %w", err))
	}
	return body, nil
}
