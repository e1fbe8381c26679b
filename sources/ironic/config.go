package ironic

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// Auth is how Ironic knows us.
type Auth string

// The ways that Ironic itself has.
const (
	AuthNone      Auth = "none"
	AuthHTTPBasic Auth = "http_basic"
	AuthKeystone  Auth = "keystone"
)

// Config says which Ironic is read and how.
type Config struct {
	URL      string // Ironic's endpoint, with or without /v1; empty: from Keystone's catalog
	Auth     Auth   // default AuthNone
	User     string // of http_basic or Keystone
	Password string // the secret itself, resolved by the caller
	Keystone Keystone

	Version  string // the newest API version to use, such as "1.65"; default the newest that this package understands
	PageSize int    // nodes asked for in one page, default 500; the server may give fewer

	LockBudget time.Duration // how long a write waits while the node is locked, default 60 s
	Poll       time.Duration // between two looks at a node that is to change, default 500 ms

	HTTP sources.Options // bounds of every call; Clock is replaced by the client's
}

// Keystone says where the token comes from. With ApplicationCredential (an id)
// and ApplicationSecret no user, password or project is needed.
type Keystone struct {
	URL           string
	Project       string // name; the scope of the token
	UserDomain    string // name; "" and "default" are the domain with the id default
	ProjectDomain string // name; as UserDomain
	SystemScope   bool   // ask for the scope of the whole system instead of a project

	ApplicationCredential string
	ApplicationSecret     string

	Region    string // of the catalog's entry; "" takes the first
	Interface string // public (default), internal or admin
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
	if c.Keystone.Interface == "" {
		c.Keystone.Interface = "public"
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
	switch {
	case c.Auth != AuthNone && c.Auth != AuthHTTPBasic && c.Auth != AuthKeystone:
		return fmt.Errorf("auth is %q: it must be none, http_basic or keystone", c.Auth)
	case c.Auth != AuthKeystone && c.URL == "":
		return errors.New("url is empty: give Ironic's endpoint")
	case c.Auth == AuthHTTPBasic && (c.User == "" || c.Password == ""):
		return errors.New("http_basic needs a user and a password")
	case c.Auth == AuthKeystone:
		if err := c.Keystone.check(c.User, c.Password); err != nil {
			return err
		}
	}
	if c.URL != "" {
		if _, err := base(c.URL); err != nil {
			return err
		}
	}
	if c.Version != "" {
		if _, err := minorOf(c.Version); err != nil {
			return err
		}
	}
	return nil
}

func (k Keystone) check(user, password string) error {
	if _, err := base(k.URL); err != nil {
		return fmt.Errorf("keystone: %w", err)
	}
	switch k.Interface {
	case "public", "internal", "admin":
	default:
		return fmt.Errorf("keystone interface is %q: it must be public, internal or admin", k.Interface)
	}
	if k.ApplicationCredential != "" {
		if k.ApplicationSecret == "" {
			return errors.New("keystone needs the secret of the application credential")
		}
		return nil
	}
	if user == "" || password == "" || (k.Project == "" && !k.SystemScope) {
		return errors.New("keystone needs a user, a password and a project, or an application credential")
	}
	return nil
}

// base gives an endpoint without a version and with a slash at its end.
func base(endpoint string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(endpoint))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("url %q is no http or https endpoint", endpoint)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("url of %s must hold no credentials, query or fragment", u.Host)
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1"), "/") + "/"
	return u, nil
}
