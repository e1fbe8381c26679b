package redfish

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// shop is a credentials store.
type shop struct {
	mu    sync.Mutex
	has   map[string]Account
	err   error
	asked int
}

func (s *shop) get(_ context.Context, device string) (Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.err != nil {
		return Account{}, s.err
	}
	a, ok := s.has[device]
	if !ok {
		return a, &sources.Error{Kind: sources.KindMissing, Op: "read it", Err: sources.ErrGone}
	}
	return a, nil
}

func (s *shop) set(device string, a Account, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has, s.err = map[string]Account{device: a}, err
	if a == (Account{}) {
		s.has = nil
	}
}

// A device's own credential comes from the store: believed for five minutes,
// asked for anew once the BMC refuses it.
func TestADevicesOwnCredentialComesFromTheStore(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	m.password = "own-canary"
	store := &shop{}
	c, target := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) {
		c.Credentials = []Credential{{"c*", RefStore}, {"*", "env:FACTORY"}}
		c.Secret = func(string) (string, error) { return "admin:factory-canary", nil }
		c.Store = store.get
	})
	now := time.Now()
	c.clock = func() time.Time { return now }
	login := func(what string, want Class, asked int) {
		t.Helper()
		before := store.asked
		err := c.Login(t.Context(), target)
		if ClassOf(err) != want || (want == "") != (err == nil) || store.asked-before != asked || err != nil && strings.Contains(fmt.Sprintf("%v %+v", err, err), "canary") {
			t.Errorf("%s: %v, the store was asked %d times", what, err, store.asked-before)
		}
	}
	store.set(target.Name, Account{"admin", "own-canary"}, nil)
	login("first", "", 1)
	login("within five minutes", "", 0)
	now = now.Add(ownFresh)
	login("after five minutes", "", 1)
	m.mu.Lock()
	m.password = "rotated-canary"
	m.mu.Unlock()
	store.set(target.Name, Account{"admin", "rotated-canary"}, nil)
	login("rotated: what is believed is refused", ClassCredential, 0)
	login("and then forgotten", "", 1)
	store.set(target.Name, Account{}, nil)
	now = now.Add(ownFresh)
	login("without one: what it came with", ClassCredential, 1)
	m.mu.Lock()
	m.password = "factory-canary"
	m.mu.Unlock()
	login("what it came with", "", 1)

	now = now.Add(ownFresh)
	store.set(target.Name, Account{}, &sources.Error{Kind: sources.KindTransient, Op: "read it", Message: "the store is away"})
	if err := c.Login(t.Context(), target); sources.KindOf(err) != sources.KindTransient || !strings.Contains(err.Error(), "the store is away") {
		t.Errorf("without the store no other credential is risked, and that is told: %v", err)
	}
	if got := answeredFacts(t, c); got.Refusal != facts.BMCRefusalBmcCredentialRefused || got.PowerState.Known {
		t.Errorf("without the store nothing is known: %+v", got)
	}
}

func TestTheAccountOfANodeTemplate(t *testing.T) {
	t.Parallel()
	store := &shop{has: map[string]Account{"c01": {"own", "own-canary"}}}
	config := Config{
		Targets: fixed(), Networks: []string{"127.0.0.0/8"}, Credentials: []Credential{{"c*", RefStore}, {"c*", "env:FACTORY"}},
		Secret: func(string) (string, error) { return "came:with", nil }, Store: store.get,
	}
	c, err := New(config, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Account{"c01": {"own", "own-canary"}, "c02": {"came", "with"}, "x01": {}} {
		got, err := c.Account(t.Context(), Target{Name: name})
		if got != want || (err != nil) != (want == Account{}) || err != nil && sources.KindOf(err) != sources.KindForbidden {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	text, err := json.Marshal([]any{Account{"own", "own-canary"}})
	if said := string(text) + fmt.Sprintf("%v %+v %#v %s %q %x", Account{"own", "own-canary"}, &Account{"own", "own-canary"}, Account{"own", "own-canary"}, Account{"own", "own-canary"}, []Account{{"own", "own-canary"}}, Account{"own", "own-canary"}); err != nil || strings.Contains(said, "canary") || strings.Contains(said, fmt.Sprintf("%x", "canary")) {
		t.Errorf("%s %v", said, err)
	}
	config.Store = nil
	if _, err := New(config, time.Now, nil); err == nil || !strings.Contains(err.Error(), "sources.credentials") {
		t.Errorf("a store that there is not: %v", err)
	}
}
