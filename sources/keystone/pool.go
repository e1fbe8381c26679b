package keystone

import (
	"sync"

	"github.com/musterhq/muster/sources"
)

// Pool shares logins among the clients of all sites. It may be used by many
// goroutines.
type Pool struct {
	mu     sync.Mutex
	logins map[poolKey]*pooled
}

type poolKey struct {
	config Config
	tls    sources.TLS
}

type pooled struct {
	login *Login
	uses  int
}

// NewPool gives an empty pool.
func NewPool() *Pool { return &Pool{logins: map[poolKey]*pooled{}} }

// Open gives the login of a user, made with these options by who asks first.
// Each use is given back with Close.
func (p *Pool) Open(config Config, o sources.Options) (*Login, error) {
	k := poolKey{config.login(), o.TLS}
	p.mu.Lock()
	defer p.mu.Unlock()
	shared := p.logins[k]
	if shared == nil {
		login, err := NewLogin(config, o)
		if err != nil {
			return nil, err
		}
		shared = &pooled{login: login}
		login.closed = func() { p.release(k, shared) }
		p.logins[k] = shared
	}
	shared.uses++
	return shared.login, nil
}

// release ends one use; the last one takes the login out.
func (p *Pool) release(k poolKey, shared *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shared.uses--
	if shared.uses == 0 && p.logins[k] == shared {
		delete(p.logins, k)
		shared.login.http.CloseIdleConnections()
	}
}
