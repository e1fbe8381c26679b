package ironic

import (
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// Auth is how Ironic knows us.
type Auth = keystone.Auth

// The ways that Ironic itself has.
const (
	AuthNone      = keystone.AuthNone
	AuthHTTPBasic = keystone.AuthHTTPBasic
	AuthKeystone  = keystone.AuthKeystone
)

// Keystone says where the token comes from; user and password are Config's.
type Keystone = keystone.Config

// Config says which Ironic is read and how.
type Config struct {
	URL      string // Ironic's endpoint, with or without /v1; empty: from Keystone's catalog
	Auth     Auth   // default AuthNone
	User     string // of http_basic or Keystone
	Password string // the secret itself, resolved by the caller
	Keystone Keystone
	Login    *keystone.Login // shared with others of the same Keystone and user; nil: one of its own

	Version  string // the newest API version to use, such as "1.65"; default the newest that this package understands
	PageSize int    // nodes asked for in one page, default 500; the server may give fewer

	LockBudget time.Duration // how long a write waits while the node is locked, default 60 s
	Poll       time.Duration // between two looks at a node that is to change, default 500 ms

	HTTP sources.Options // bounds of every call; Clock is replaced by the client's
}

func (c Config) withDefaults() Config {
	if c.Auth == "" {
		c.Auth = AuthNone
	}
	if c.PageSize <= 0 {
		c.PageSize = 500
	}
	if c.LockBudget == 0 {
		c.LockBudget = time.Minute
	}
	if c.Poll <= 0 {
		c.Poll = 500 * time.Millisecond
	}
	plain := c.HTTP.Answered
	if plain == nil {
		plain = sources.Options{}.WithDefaults().Answered
	}
	// A conductor without a free worker is one node's matter, not the API's.
	c.HTTP.Answered = func(status int, body []byte) bool {
		return plain(status, body) || status == 503 && strings.Contains(string(body), "lack of free conductor workers")
	}
	c.HTTP = c.HTTP.WithDefaults()
	return c
}

func (c Config) check() error {
	access := c.access()
	if err := access.Check(); err != nil {
		return err
	}
	if c.Version != "" {
		if _, err := minorOf(c.Version); err != nil {
			return err
		}
	}
	return nil
}
