package redfish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish"

	"github.com/musterhq/muster/sources"
)

// SetPassword gives an account of a BMC a password, through its AccountService,
// and logs in with it: only then it is done. with is the login that does it; the
// zero Account is what the site's bmc.credentials have for the device beside the
// store, which its BMC came with. Where with is refused and the new password is
// taken, it was done before. The BMC refuses (KindRefused) a password that it
// finds too short, too long or too weak; forbidden is that neither lets in.
//
// It may end with ErrNoEffect, or with ErrUnknownOutcome: it may be called again.
func (c *Client) SetPassword(ctx context.Context, target Target, with Account, user, password string) error {
	op := "set a password of " + target.Name + "'s BMC"
	if user == "" || password == "" {
		return refusedf(op, nil, "a user and a password are needed")
	}
	before, after := with.login(), newLogin(user, password)
	if with == (Account{}) {
		before = c.logins().factory(target.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.config.Timeout)
	defer cancel()
	outcome, err := c.changePassword(ctx, op, target, before, user, password)
	switch {
	case err != nil && (ClassOf(err) == ClassCredential || errors.Is(err, ErrBlocked) || before.err != nil):
		if c.letsIn(ctx, target, after) != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := c.settlePassword(ctx, op, target, after, outcome); err != nil {
			return err
		}
	}
	c.dropOwn(target.Name) // it may have said that there is none
	return nil
}

// changePassword finds the account and writes the password. An error is that
// nothing was changed.
func (c *Client) changePassword(ctx context.Context, op string, target Target, as login, user, password string) (sent, error) {
	b, fault := c.actingAs(op, target, as)
	if fault != nil {
		return sent{}, fault
	}
	defer b.close()
	for try := 0; ; try++ {
		account, uri, err := b.account(ctx, user)
		if err != nil {
			return sent{}, c.classified(op, account, err)
		}
		outcome := b.send(ctx, c.config.RequestTimeout, func(api *gofish.APIClient) error {
			headers := map[string]string{}
			if tag := etag(account); tag != "" {
				headers["If-Match"] = tag
			}
			resp, err := api.PatchWithHeaders(uri, map[string]string{"Password": password}, headers)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		})
		if ClassOf(outcome.err) == ClassStale && try == 0 { // changed since it was read: once more with what it is now
			continue
		}
		outcome.err = silent(outcome.err)
		if outcome.err != nil && !outcome.lost {
			return outcome, c.classified(op, nil, outcome.err)
		}
		return outcome, nil
	}
}

// silent takes out of a BMC's refusal what it says: it may repeat the password.
func silent(err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return &Refused{Class: refused.Class, Status: refused.Status, IDs: refused.IDs}
	}
	return err
}

// account reads the account of a user.
func (b *bmc) account(ctx context.Context, user string) (a *answer, uri string, err error) {
	if err := b.root(ctx); err != nil {
		return nil, "", err
	}
	service, err := b.get(ctx, b.service("AccountService"))
	if err != nil {
		return service, "", err
	}
	list := service.doc.link("Accounts")
	if list == "" {
		list = rootPath + "AccountService/Accounts"
	}
	members, err := b.members(ctx, list, nil)
	if err != nil {
		return nil, "", err
	}
	var unread error
	for _, m := range members {
		if m.err != nil {
			unread = m.err
			continue
		}
		if m.doc.text("UserName") != user {
			continue
		}
		if uri, err = b.path(m.uri); err != nil {
			return nil, "", err
		}
		a, err = b.get(ctx, uri)
		return a, uri, err
	}
	if unread != nil {
		return nil, "", unread
	}
	return nil, "", fmt.Errorf("%w: it has no account %q", ErrNotAllowed, sources.CleanText(user, 64))
}

// letsIn shows that a BMC takes a login.
func (c *Client) letsIn(ctx context.Context, target Target, l login) error {
	b := c.bmc(target, l)
	defer b.close()
	if b.anonymous {
		return b.why
	}
	return b.lets(ctx)
}

// settlePassword looks for the effect of a password that was sent.
func (c *Client) settlePassword(ctx context.Context, op string, target Target, after login, outcome sent) error {
	done, err := c.until(ctx, c.bootSettle, c.bootSettle/10, func(ctx context.Context) (bool, error) {
		err := c.letsIn(ctx, target, after)
		return err == nil, err
	})
	switch {
	case done:
		return nil
	case outcome.lost || ClassOf(err) != ClassCredential:
		return unknown(op, outcome.err)
	}
	return &sources.Error{Kind: sources.KindConflict, Op: op, Err: ErrNoEffect, Message: ErrNoEffect.Error() + ": it does not let in with the new password"}
}

// factoryDefaults is the ResetType that leaves nothing as somebody set it.
const factoryDefaults = "ResetAll"

// FactoryReset sets a BMC to what it came with, accounts and network included.
// Accepted is done: nothing is read back, and a request whose answer is lost ends
// with ErrUnknownOutcome and is not made again. ErrNotAllowed: the BMC declares
// no such reset, or it is not certain which of its managers it is.
func (c *Client) FactoryReset(ctx context.Context, target Target) error {
	op := "reset " + target.Name + "'s BMC to its defaults"
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return fault
	}
	defer b.close()
	uri, err := b.manager(ctx)
	if err != nil {
		return c.classified(op, nil, err)
	}
	manager, err := b.get(ctx, uri)
	if err != nil {
		return c.classified(op, manager, err)
	}
	path, err := b.defaultsAction(ctx, manager.doc)
	if err != nil {
		return c.classified(op, nil, err)
	}
	outcome := b.send(ctx, c.config.Timeout, func(api *gofish.APIClient) error {
		resp, err := api.Post(path, map[string]string{"ResetType": factoryDefaults})
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	switch {
	case outcome.lost:
		return unknown(op, outcome.err)
	case outcome.err != nil:
		return c.classified(op, nil, outcome.err)
	}
	c.dropOwn(target.Name)
	return nil
}

// manager finds the manager that is this BMC itself: a machine may have others.
func (b *bmc) manager(ctx context.Context) (string, error) {
	if err := b.root(ctx); err != nil {
		return "", err
	}
	if uri := b.services.object("Links").link("ManagerProvidingService"); uri != "" {
		return uri, nil
	}
	uris, err := b.listed(ctx, b.service("Managers"))
	if err != nil {
		return "", err
	}
	if len(uris) != 1 {
		return "", fmt.Errorf("%w: it has %d managers and does not say which it is itself", ErrNotAllowed, len(uris))
	}
	return uris[0], nil
}

// defaultsAction gives the path of the action that resets a manager to its
// defaults, if all of them are declared.
func (b *bmc) defaultsAction(ctx context.Context, manager document) (string, error) {
	action := manager.object("Actions").object("#Manager.ResetToDefaults")
	if action.text("target") == "" {
		return "", fmt.Errorf("%w: it has no reset to its defaults", ErrNotAllowed)
	}
	declared, err := b.declared(ctx, action)
	if err != nil {
		return "", err
	}
	if !slices.Contains(declared, factoryDefaults) {
		return "", fmt.Errorf("%w: of the resets to defaults it has %s, and not %s", ErrNotAllowed, strings.Join(declared, ", "), factoryDefaults)
	}
	return b.path(action.text("target"))
}
