package redfish

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

func showLoginItem(t *testing.T, p *peer) {
	c := p.client(t)
	for range 2 {
		if err := c.Login(t.Context(), p.target); err != nil {
			t.Fatal(err)
		}
	}
	wrong := p.client(t, func(c *Config) { c.Secret = func(string) (string, error) { return "admin:wrong-canary", nil } })
	if err := wrong.Login(t.Context(), p.target); ClassOf(err) != ClassCredential || sources.KindOf(err) != sources.KindForbidden || strings.Contains(err.Error(), "canary") {
		t.Errorf("a wrong login: %v", err)
	}
	nobody := p.target
	nobody.Address = "127.254.254.254"
	if p.config.Port == 0 {
		t.Fatal("the peer has no port of its own")
	}
	if err := p.client(t, func(c *Config) { c.Port = 1 }).Login(t.Context(), nobody); sources.KindOf(err) != sources.KindTransient {
		t.Errorf("nobody there: %v", err)
	}
}

func passwordItem(t *testing.T, p *peer) {
	p.need(t, "accounts")
	user, password, _ := strings.Cut(p.login, ":")
	came := Account{User: user, Password: password}
	c := p.client(t) // its credential is the one that the BMC came with
	for _, step := range []struct {
		name string
		with Account
		next string
	}{
		{"by what it came with", Account{}, "first-canary"},
		{"again: it was done before", Account{}, "first-canary"},
		{"by its own", Account{user, "first-canary"}, "second-canary"},
		{"and back", Account{user, "second-canary"}, password},
	} {
		c.AllowLogin("")
		if err := c.SetPassword(t.Context(), p.target, step.with, user, step.next); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		now := p.client(t, func(c *Config) { c.Secret = func(string) (string, error) { return user + ":" + step.next, nil } })
		if err := now.Login(t.Context(), p.target); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	err := c.SetPassword(t.Context(), p.target, Account{user, "unknown-canary"}, user, "other-canary")
	if sources.KindOf(err) != sources.KindForbidden || ClassOf(err) != ClassCredential || strings.Contains(err.Error(), "canary") {
		t.Errorf("by a login that does not let in: %v", err)
	}
	if err := p.client(t).SetPassword(t.Context(), p.target, came, "nobody-here", "other-canary"); !errors.Is(err, ErrNotAllowed) || sources.KindOf(err) != sources.KindRefused {
		t.Errorf("of an account that it has not: %v", err)
	}
	if err := p.client(t).Login(t.Context(), p.target); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func refusedPasswordItem(t *testing.T, p *peer) {
	p.need(t, "accounts")
	user, _, _ := strings.Cut(p.login, ":")
	c := p.client(t)
	err := c.SetPassword(t.Context(), p.target, Account{}, user, "canary")
	if sources.KindOf(err) != sources.KindRefused || strings.Contains(err.Error(), "canary") {
		t.Errorf("too short: %v", err)
	}
	if err := c.Login(t.Context(), p.target); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func factoryItem(t *testing.T, p *peer) {
	if p.need(t, "defaults"); p.sim == nil {
		t.Fatal("only a simulated BMC is reset to its defaults")
	}
	user, _, _ := strings.Cut(p.login, ":")
	c := p.client(t)
	if err := c.SetPassword(t.Context(), p.target, Account{}, user, "its-own-one"); err != nil {
		t.Fatal(err)
	}
	own := p.client(t, func(c *Config) { c.Secret = func(string) (string, error) { return user + ":its-own-one", nil } })
	if err := own.FactoryReset(t.Context(), p.target); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := c.Login(t.Context(), p.target)
		if err == nil {
			break
		}
		if ClassOf(err) != ClassNotReady || time.Now().After(deadline) {
			t.Fatalf("with what it came with: %v", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	if err := own.Login(t.Context(), p.target); ClassOf(err) != ClassCredential {
		t.Errorf("with its own of before: %v", err)
	}
}
