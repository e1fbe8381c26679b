package keystone

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// Auth is how a service knows us.
type Auth string

// The ways that services have.
const (
	AuthNone      Auth = "none"
	AuthHTTPBasic Auth = "http_basic"
	AuthKeystone  Auth = "keystone"
)

// Access says where one service is and how it knows us.
type Access struct {
	Service  string // its type in the catalog: baremetal, placement, compute
	Name     string // for messages: Ironic, Placement, Nova
	URL      string // its endpoint; "": from Keystone's catalog
	Auth     Auth   // "": AuthNone
	User     string // of http_basic
	Password string
	Keystone Config

	// Token is sent under AuthNone, for a service that runs without Keystone and
	// yet wants one.
	Token string

	// Login is shared with others; nil: one of its own is made from Keystone.
	// Close gives it back.
	Login *Login
}

// Check says what keeps the access from working.
func (a *Access) Check() error {
	switch {
	case a.Auth != "" && a.Auth != AuthNone && a.Auth != AuthHTTPBasic && a.Auth != AuthKeystone:
		return fmt.Errorf("auth is %q: it must be none, http_basic or keystone", a.Auth)
	case a.Auth != AuthKeystone && a.URL == "":
		return fmt.Errorf("url is empty: give %s's endpoint", a.Name)
	case a.Auth == AuthHTTPBasic && (a.User == "" || a.Password == ""):
		return errors.New("http_basic needs a user and a password")
	case a.Auth == AuthKeystone:
		if err := a.Keystone.Check(); err != nil {
			return err
		}
	}
	if a.URL != "" {
		if _, err := Endpoint(a.URL); err != nil {
			return err
		}
	}
	return nil
}

// Open makes the login if the access needs one and was given none. It calls
// nobody. o are the options of the service's own transport.
func (a *Access) Open(o sources.Options) (err error) {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Auth == AuthKeystone && a.Login == nil {
		a.Login, err = NewLogin(a.Keystone, o)
	}
	return err
}

// Close gives the login back.
func (a *Access) Close() {
	if a.Login != nil {
		a.Login.Close()
	}
}

// Connect gives a client of the service over its own transport, whose endpoint
// ends in a slash. A Keystone is asked for a token unless the login has one.
func (a *Access) Connect(ctx context.Context, client *http.Client) (*gophercloud.ServiceClient, error) {
	op := "connect to " + a.Name
	sc := &gophercloud.ServiceClient{Type: a.Service}
	endpoint := a.URL
	if a.Auth == AuthKeystone {
		provider, granted, err := a.Login.provider(ctx, client)
		if err != nil {
			return nil, sources.Failure(op, err)
		}
		sc.ProviderClient = provider
		if endpoint == "" {
			if endpoint, err = granted.endpoint(a.Service, a.Keystone.Region, a.availability()); err != nil {
				a.Login.forget(granted.token) // it may be there soon
				return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
			}
		}
	} else {
		sc.ProviderClient = &gophercloud.ProviderClient{HTTPClient: *client}
		sc.UseTokenLock()
		sc.SetToken(a.Token)
		if a.Auth == AuthHTTPBasic {
			pair := base64.StdEncoding.EncodeToString([]byte(a.User + ":" + a.Password))
			sc.MoreHeaders = map[string]string{"Authorization": "Basic " + pair}
		}
	}
	root, err := Endpoint(endpoint)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: "the catalog's endpoint: " + err.Error(), Err: err}
	}
	sc.Endpoint = root.String()
	return sc, nil
}

// Forget drops the token that a client had, and with it the catalog that named
// its endpoint.
func (a *Access) Forget(sc *gophercloud.ServiceClient) {
	if a.Auth == AuthKeystone && a.URL == "" {
		a.Login.forget(sc.Token())
	}
}

func (a *Access) availability() string {
	if a.Keystone.Interface == "" {
		return "public"
	}
	return a.Keystone.Interface
}
