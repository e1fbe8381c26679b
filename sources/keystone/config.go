package keystone

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
)

// Config says who asks which Keystone for a token. With ApplicationCredential
// (an id) and ApplicationSecret no user, password or project is needed.
type Config struct {
	URL      string
	User     string
	Password string // the secret itself, resolved by the caller

	Project       string // name; the scope of the token
	UserDomain    string // name; "" and "default" are the domain with the id default
	ProjectDomain string // name; as UserDomain
	SystemScope   bool   // ask for the scope of the whole system instead of a project

	ApplicationCredential string
	ApplicationSecret     string

	Region    string // of the catalog's entry; "" takes the first
	Interface string // public (default), internal or admin
}

// login gives what a token depends on, without where it is used.
func (c Config) login() Config {
	c.Region, c.Interface = "", ""
	return c
}

// Check says what keeps the configuration from working.
func (c Config) Check() error {
	if _, err := Endpoint(c.URL); err != nil {
		return fmt.Errorf("keystone: %w", err)
	}
	switch c.Interface {
	case "", "public", "internal", "admin":
	default:
		return fmt.Errorf("keystone interface is %q: it must be public, internal or admin", c.Interface)
	}
	if c.ApplicationCredential != "" {
		if c.ApplicationSecret == "" {
			return errors.New("keystone needs the secret of the application credential")
		}
		return nil
	}
	if c.User == "" || c.Password == "" || (c.Project == "" && !c.SystemScope) {
		return errors.New("keystone needs a user, a password and a project, or an application credential")
	}
	return nil
}

func (c Config) credentials() gophercloud.AuthOptions {
	options := gophercloud.AuthOptions{IdentityEndpoint: c.URL}
	if c.ApplicationCredential != "" {
		options.ApplicationCredentialID = c.ApplicationCredential
		options.ApplicationCredentialSecret = c.ApplicationSecret
		return options
	}
	options.Username, options.Password = c.User, c.Password
	options.DomainID, options.DomainName = domain(c.UserDomain)
	options.Scope = &gophercloud.AuthScope{System: true}
	if !c.SystemScope {
		id, name := domain(c.ProjectDomain)
		options.Scope = &gophercloud.AuthScope{ProjectName: c.Project, DomainID: id, DomainName: name}
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

// Endpoint reads an endpoint and gives it with a slash at its end.
func Endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("url %q is no http or https endpoint", text)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("url of %s must hold no credentials, query or fragment", u.Host)
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	return u, nil
}
