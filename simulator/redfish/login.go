package redfish

import (
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// memory is what a BMC keeps while the simulator runs: sessions, and accounts
// that somebody made. The fleet's account is the world's.
type memory struct {
	writing  sync.Mutex // held while a resource is changed
	mu       sync.Mutex
	sessions []session
	accounts map[string]account // by user name
	made     int
}

type session struct {
	id, token, user string
	last            time.Time
}

// account is somebody who may log in.
type account struct {
	id, user, password, role string
	disabled                 bool
}

// configures tells whether an account may change anything.
func (a account) configures() bool { return a.role == "Administrator" || a.role == "Operator" }

const (
	sessionsPath = root + "/SessionService/Sessions"
	accountsPath = root + "/AccountService/Accounts"
	// sessionTimeout is after how long without a request a session ends.
	sessionTimeout = 30 * time.Minute
	maxAccounts    = 12
)

func (f *Face) memoryOf(key string) *memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bmcs[key]
	if b == nil {
		b = &memory{accounts: map[string]account{}}
		f.bmcs[key] = b
	}
	return b
}

// fleet is the account that the fleet is run by.
func (v *view) fleet() account {
	a := account{id: "1", user: v.f.options.User, password: v.f.options.Password, role: "Administrator"}
	switch {
	case v.m.BMC.Password != "":
		a.password = v.m.BMC.Password
	case v.m.BMC.Own != "":
		a.password = v.m.BMC.Own
	}
	return a
}

// accountOf finds an account by its user name.
func (v *view) accountOf(user string) (account, bool) {
	if a := v.fleet(); a.user == user {
		return a, true
	}
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	a, ok := v.bmc.accounts[user]
	return a, ok
}

// allows checks a user's password.
func (v *view) allows(user, password string) (account, bool) {
	a, ok := v.accountOf(user)
	ok = ok && !a.disabled && subtle.ConstantTimeCompare([]byte(a.password), []byte(password)) == 1
	return a, ok
}

// authenticate finds out who asks.
func (v *view) authenticate() *answer {
	if token := v.r.Header.Get("X-Auth-Token"); token != "" && !v.lenient() {
		user, ok := v.bmc.userOf(token, v.now)
		if !ok {
			return refuse("NoValidSession")
		}
		if v.account, ok = v.accountOf(user); !ok || v.account.disabled {
			return refuse("AccountForSessionNoLongerExists")
		}
		return nil
	}
	user, password, ok := v.r.BasicAuth()
	if !ok {
		return refuse("NoValidSession")
	}
	if v.account, ok = v.allows(user, password); !ok {
		return refuse("NoValidSession")
	}
	if v.m.BMC.Full {
		return refuse("SessionLimitExceeded")
	}
	return nil
}

func (b *memory) userOf(token string, now time.Time) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	for i := range b.sessions {
		if subtle.ConstantTimeCompare([]byte(b.sessions[i].token), []byte(token)) == 1 {
			b.sessions[i].last = now
			return b.sessions[i].user, true
		}
	}
	return "", false
}

func (b *memory) expire(now time.Time) {
	b.sessions = slices.DeleteFunc(b.sessions, func(s session) bool { return now.Sub(s.last) > sessionTimeout })
}

// login makes a session.
func (v *view) login(body object) *answer {
	user, userOK := body["UserName"].(string)
	password, passwordOK := body["Password"].(string)
	switch {
	case !userOK:
		return refuseAt("PropertyMissing", "UserName", "UserName")
	case !passwordOK:
		return refuseAt("PropertyMissing", "Password", "Password")
	}
	if _, ok := v.allows(user, password); !ok {
		return refuse("NoValidSession")
	}
	random := make([]byte, 21)
	if _, err := io.ReadFull(v.f.options.Tokens, random); err != nil {
		return refuse("InternalError")
	}
	limit := v.f.options.MaxSessions
	if v.m.BMC.Sessions > 0 {
		limit = v.m.BMC.Sessions
	}
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	v.bmc.expire(v.now)
	if v.m.BMC.Full || len(v.bmc.sessions) >= limit {
		return refuse("SessionLimitExceeded")
	}
	s := session{id: hex.EncodeToString(random[:5]), token: hex.EncodeToString(random[5:]), user: user, last: v.now}
	v.bmc.sessions = append(v.bmc.sessions, s)
	return tell(http.StatusCreated, s.render()).with("X-Auth-Token", s.token).with("Location", v.location(sessionsPath+"/"+s.id))
}

func (s session) render() object {
	return object{
		"@odata.id": sessionsPath + "/" + s.id, "@odata.type": "#Session.v1_7_0.Session", "Id": s.id, "Name": "User Session",
		"UserName": s.user, "SessionType": "Redfish",
	}
}

// sessionResource is a session by its id.
func (v *view) sessionResource(id string) *resource {
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	v.bmc.expire(v.now)
	i := slices.IndexFunc(v.bmc.sessions, func(s session) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	s := v.bmc.sessions[i]
	return &resource{
		render: func(*view) object { return s.render() },
		remove: func(v *view) *answer {
			v.bmc.mu.Lock()
			defer v.bmc.mu.Unlock()
			v.bmc.sessions = slices.DeleteFunc(v.bmc.sessions, func(s session) bool { return s.id == id })
			return &answer{status: http.StatusNoContent}
		},
	}
}

// ownSession tells whether a path is a session of who asks.
func (v *view) ownSession(path string) bool {
	id, ok := strings.CutPrefix(path, sessionsPath+"/")
	v.bmc.mu.Lock()
	defer v.bmc.mu.Unlock()
	return ok && slices.ContainsFunc(v.bmc.sessions, func(s session) bool { return s.id == id && s.user == v.account.user })
}

func sessionCollection() *resource {
	return &resource{
		render: func(v *view) object {
			v.bmc.mu.Lock()
			defer v.bmc.mu.Unlock()
			v.bmc.expire(v.now)
			var paths []string
			for _, s := range v.bmc.sessions {
				paths = append(paths, sessionsPath+"/"+s.id)
			}
			return collection(sessionsPath, "Session", "Session Collection", paths...)
		},
		add: (*view).login,
	}
}
