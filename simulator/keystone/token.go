package keystone

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// lifetime is how long a token is good.
const lifetime = time.Hour

// token is what a token says.
type token struct {
	Method     string    `json:"m"`
	Project    string    `json:"p,omitempty"` // id; "": of the whole system, or of nothing
	System     bool      `json:"s,omitempty"`
	Credential string    `json:"c,omitempty"` // id of the application credential that it came from
	Issued     time.Time `json:"i"`
	Expires    time.Time `json:"e"`
	Audit      string    `json:"a"`
}

const tokenMark = "gAAAAAB"

func (k *Keystone) seal(t token) string {
	body, _ := json.Marshal(t) // of strings and times: it never fails
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write(body)
	return tokenMark + base64.RawURLEncoding.EncodeToString(mac.Sum(body))
}

// open gives what a token says; false if it is none of ours.
func (k *Keystone) open(sealed string) (t token, ok bool) {
	raw, ours := strings.CutPrefix(sealed, tokenMark)
	body, err := base64.RawURLEncoding.DecodeString(raw)
	if !ours || err != nil || len(body) < sha256.Size {
		return t, false
	}
	text, sum := body[:len(body)-sha256.Size], body[len(body)-sha256.Size:]
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write(text)
	return t, hmac.Equal(mac.Sum(nil), sum) && json.Unmarshal(text, &t) == nil
}

// good gives what a token says that is worth something now.
func (k *Keystone) good(sealed string) (t token, ok bool) {
	t, ok = k.open(sealed)
	if !ok {
		return t, false
	}
	k.mu.Lock()
	_, revoked := k.revoked[t.Audit]
	k.mu.Unlock()
	k.world.Read(func(s *world.State) {
		ok = s.Now.Before(t.Expires) && (t.Credential == "" || s.Credentials.Get(t.Credential) != nil)
	})
	return t, ok && !revoked
}

// Check tells whether a token lets its bearer do everything.
func (k *Keystone) Check(sealed string) bool {
	t, ok := k.good(sealed)
	return ok && (t.Project != "" || t.System)
}

// Project gives the id of the project that a good token is for, "" none.
func (k *Keystone) Project(sealed string) string {
	t, _ := k.good(sealed)
	return t.Project
}

// revoke ends a token before its time.
func (k *Keystone) revoke(t token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for audit, until := range k.revoked {
		if until.Before(t.Issued) {
			delete(k.revoked, audit)
		}
	}
	k.revoked[t.Audit] = t.Expires
}

func audit() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
