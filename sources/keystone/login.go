package keystone

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/musterhq/muster/sources"
)

// Login is one user of one Keystone, with a token once somebody needs one. It
// is safe for concurrent use.
type Login struct {
	config Config
	http   *http.Client
	clock  sources.Clock
	closed func() // tells the pool; nil without one

	gate    chan struct{} // held while authenticating and while current is touched
	current *grant
}

// grant is what Keystone gave for the credentials; it never changes.
type grant struct {
	token   string
	catalog *tokens.ServiceCatalog
}

// NewLogin checks the configuration; it calls nobody.
func NewLogin(config Config, o sources.Options) (*Login, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	client, err := sources.NewClient(o)
	if err != nil {
		return nil, err
	}
	return &Login{config: config.login(), http: client, clock: o.WithDefaults().Clock, gate: make(chan struct{}, 1)}, nil
}

// Close says that one user of the login needs it no more.
func (l *Login) Close() {
	if l.closed != nil {
		l.closed()
		return
	}
	l.http.CloseIdleConnections()
}

const loginOp = "get a token from Keystone"

// grant gives a token other than dead, a new one if there is no other. Whoever
// waits for a new one gets the same.
func (l *Login) grant(ctx context.Context, dead string) (*grant, error) {
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, sources.Failure(loginOp, ctx.Err())
	}
	if l.current != nil && l.current.token != dead {
		return l.current, nil
	}
	fresh, err := l.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	l.current = fresh
	return fresh, nil
}

// forget drops a grant: the catalog may name other endpoints by now. One that
// is being replaced right now is left to that.
func (l *Login) forget(token string) {
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	default:
		return
	}
	if l.current != nil && l.current.token == token {
		l.current = nil
	}
}

func (l *Login) authenticate(ctx context.Context) (*grant, error) {
	provider, err := openstack.NewClient(l.config.URL)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: loginOp, Message: sources.CleanText(err.Error(), 300), Err: err}
	}
	provider.HTTPClient = *l.http
	if err := openstack.Authenticate(ctx, provider, l.config.credentials()); err != nil {
		return nil, l.refused(err)
	}
	created, ok := provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: loginOp, Message: "it speaks no version 3 of the Identity API"}
	}
	catalog, err := created.ExtractServiceCatalog()
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindTransient, Op: loginOp, Message: "the catalog cannot be read: " + sources.CleanText(err.Error(), 300), Err: err}
	}
	return &grant{token: provider.Token(), catalog: catalog}, nil
}

// provider gives a client with the token of this login over the transport of a
// service. A token that ends is replaced once per request.
func (l *Login) provider(ctx context.Context, client *http.Client) (*gophercloud.ProviderClient, *grant, error) {
	granted, err := l.grant(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	provider := &gophercloud.ProviderClient{HTTPClient: *client}
	provider.UseTokenLock()
	provider.SetToken(granted.token)
	provider.ReauthFunc = func(ctx context.Context) error {
		granted, err := l.grant(ctx, provider.Token())
		if err != nil {
			return err
		}
		provider.SetToken(granted.token)
		return nil
	}
	return provider, granted, nil
}

// endpoint finds a service in the catalog, under any of the names that its type
// has had.
func (g *grant) endpoint(service, region, availability string) (string, error) {
	wanted := gophercloud.EndpointOpts{}
	wanted.ApplyDefaults(service)
	for _, entry := range g.catalog.Entries {
		if !slices.Contains(wanted.Types(), entry.Type) {
			continue
		}
		for _, e := range entry.Endpoints {
			if e.Interface == availability && (region == "" || e.Region == region || e.RegionID == region) {
				return e.URL, nil
			}
		}
	}
	return "", fmt.Errorf("no %s endpoint of %s is in Keystone's catalog (region %q): give its url, or the region that has one", availability, service, region)
}
