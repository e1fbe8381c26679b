package redfish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/musterhq/muster/fleet"
)

// refusalLimit is how many refusals in a row end the logins with a credential
// at a BMC: most lock an account after a few more.
const refusalLimit = 3

// login is a resolved credential; the zero value logs in nowhere.
type login struct {
	user, password string
	hash           [sha256.Size]byte // of its content, to tell a changed one
	err            error             // why there is none
}

func newLogin(user, password string) login {
	return login{user: user, password: password, hash: sha256.Sum256([]byte(user + ":" + password))}
}

func (l login) usable() bool { return l.err == nil && l.user != "" }

// logins resolves every credential once, when first wanted: a file is read
// again by each round and by each act, so that a changed one is seen.
type logins struct {
	client *Client
	mu     sync.Mutex
	byRef  map[string]login
	told   bool // that the store does not answer
}

func (c *Client) logins() *logins { return &logins{client: c, byRef: map[string]login{}} }

// of gives the login for a BMC by the name of its device.
func (l *logins) of(ctx context.Context, name string) login {
	for _, credential := range l.client.config.Credentials {
		if !fits(credential.Match, name) {
			continue
		}
		if credential.Ref != RefStore {
			return l.resolve(credential.Ref)
		}
		if own, has := l.client.ownLogin(ctx, name); has {
			l.tell(own)
			return own
		}
	}
	return login{err: fmt.Errorf("no credential of the site's bmc.credentials fits the device %q", name)}
}

// tell logs, once, that the store does not answer.
func (l *logins) tell(own login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.err != nil && !l.told {
		l.told = true
		l.client.log.Warn("a BMC's own credential cannot be had from the store: others may not be either", "error", own.err)
	}
}

// factory gives the login of a BMC that nobody has set up: the first that is not
// in the store.
func (l *logins) factory(name string) login {
	for _, credential := range l.client.config.Credentials {
		if credential.Ref != RefStore && fits(credential.Match, name) {
			return l.resolve(credential.Ref)
		}
	}
	return login{err: fmt.Errorf("no credential of the site's bmc.credentials beside the store fits the device %q: name there what its BMC comes with", name)}
}

func (l *logins) resolve(ref string) login {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.byRef[ref]; ok {
		return known
	}
	found := login{}
	text, err := l.client.config.Secret(ref)
	user, password, ok := strings.Cut(text, ":")
	switch {
	case err != nil:
		found.err = err
	case !ok || user == "" || password == "":
		found.err = fmt.Errorf("the secret %s is not user:password", ref)
	default:
		found = newLogin(user, password)
	}
	if found.err != nil {
		l.client.log.Warn("a credential for BMCs cannot be used", "ref", ref, "error", found.err)
	}
	l.byRef[ref] = found
	return found
}

// fits matches a name against a pattern in which * stands for any text and ?
// for any one character, whatever the case.
func fits(pattern, name string) bool {
	p, n := []rune(strings.ToLower(pattern)), []rune(strings.ToLower(name))
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && (p[i] == '?' || p[i] == n[j]) && p[i] != '*':
			i, j = i+1, j+1
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// ErrBlocked says that a credential is not tried any more.
var ErrBlocked = errors.New("the BMC refused this credential three times in a row: it is not tried there again until its content changes or a person asks")

// refusals counts, for each BMC, how often its credential was refused in a row.
type refusals struct {
	mu sync.Mutex
	by map[string]refusal // address key
}

type refusal struct {
	hash  [sha256.Size]byte
	inRow int
}

// blocked reports that the credential is not to be tried at the BMC.
func (r *refusals) blocked(address string, l login) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.by[fleet.AddressKey(address)]
	return ok && known.hash == l.hash && known.inRow >= refusalLimit
}

// refused counts one refusal and reports whether it was the last that is risked.
func (r *refusals) refused(address string, l login) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]refusal{}
	}
	key := fleet.AddressKey(address)
	known := r.by[key]
	if known.hash != l.hash {
		known = refusal{hash: l.hash}
	}
	known.inRow++
	r.by[key] = known
	return known.inRow >= refusalLimit
}

func (r *refusals) accepted(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, fleet.AddressKey(address))
}

func (r *refusals) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key == "" {
		clear(r.by)
		return
	}
	delete(r.by, key)
}
