package redfish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/musterhq/muster/sources"
)

// RefStore is the Ref of a device's own credential.
const RefStore = "store"

// ownFresh is how long what the store said of a device is believed.
const ownFresh = 5 * time.Minute

// Account is whom a BMC lets in. Its JSON and its text have no password.
type Account struct {
	User     string `json:"user"`
	Password string `json:"-"`
}

// Format writes the user alone, whatever the verb.
func (a Account) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, a.User, ":[secret]") }

func (a Account) login() login { return newLogin(a.User, a.Password) }

// ownLogins is what the store said lately. The zero value is ready.
type ownLogins struct {
	mu sync.Mutex
	by map[string]ownLogin // by the device's name
}

type ownLogin struct {
	login login // unusable: the store has none
	until time.Time
}

// ownLogin gives a device's own login; false where the store has none. Where the
// store does not answer, it is one that tells why: no other credential is risked.
func (c *Client) ownLogin(ctx context.Context, device string) (login, bool) {
	now := c.clock()
	c.own.mu.Lock()
	known, fresh := c.own.by[device]
	c.own.mu.Unlock()
	if fresh && now.Before(known.until) {
		return known.login, known.login.usable()
	}
	account, err := c.config.Store(ctx, device)
	known = ownLogin{until: now.Add(ownFresh)}
	switch {
	case err == nil && (account.User == "" || account.Password == ""):
		return login{err: fmt.Errorf("the credential that the store has of %s lacks a user or a password", device)}, true
	case err == nil:
		known.login = account.login()
	case !errors.Is(err, sources.ErrGone):
		return login{err: err}, true
	}
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	if c.own.by == nil {
		c.own.by = map[string]ownLogin{}
	}
	c.own.by[device] = known
	return known.login, known.login.usable()
}

// dropOwn forgets what the store said of a device: it is asked again.
func (c *Client) dropOwn(device string) {
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	delete(c.own.by, device)
}

// purgeOwn forgets what is not believed any more.
func (c *Client) purgeOwn() {
	now := c.clock()
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	maps.DeleteFunc(c.own.by, func(_ string, l ownLogin) bool { return !now.Before(l.until) })
}

// Account gives the login that this client uses at a BMC: of a node template.
// Forbidden where there is none.
func (c *Client) Account(ctx context.Context, target Target) (Account, error) {
	l := c.logins().of(ctx, target.Name)
	if !l.usable() {
		return Account{}, unusable("find the credential of "+target.Name+"'s BMC", l)
	}
	return Account{User: l.user, Password: l.password}, nil
}

// unusable tells why a login cannot be used, keeping what the store's error means.
func unusable(op string, l login) *sources.Error {
	kind := sources.KindForbidden
	var classified *sources.Error
	if errors.As(l.err, &classified) {
		kind = classified.Kind
	}
	return &sources.Error{Kind: kind, Op: op, Message: l.err.Error(), Err: l.err}
}
