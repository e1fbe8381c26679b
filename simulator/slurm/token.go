package slurm

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Token mints what `scontrol token` would: a JWT for a user that is good for so
// long, signed with the cluster's key.
func Token(key []byte, user string, at time.Time, life time.Duration) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		encode(fmt.Appendf(nil, `{"exp":%d,"iat":%d,"sun":%q}`, at.Add(life).Unix(), at.Unix(), user))
	return text + "." + encode(sign(key, text))
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(text)) // a hash takes everything
	return mac.Sum(nil)
}

// readToken gives the user of a token, false for one that is not good.
func readToken(key []byte, token string, now time.Time) (string, bool) {
	text, signature, ok := cutLast(token)
	if !ok {
		return "", false
	}
	given, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || !hmac.Equal(given, sign(key, text)) {
		return "", false
	}
	_, payload, _ := strings.Cut(text, ".")
	body, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", false
	}
	var claims struct {
		Exp int64  `json:"exp"`
		Sun string `json:"sun"`
	}
	if json.Unmarshal(body, &claims) != nil || claims.Sun == "" || claims.Exp <= now.Unix() {
		return "", false
	}
	return claims.Sun, true
}

func cutLast(token string) (before, after string, found bool) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return "", "", false
	}
	return token[:i], token[i+1:], true
}

// caller is who asks.
type caller struct {
	user    string
	named   bool // there is a token at all
	trusted bool // and slurmctld believes it
}

func (c *caller) admin() bool { return c.user == "root" || c.user == "slurm" }

// callerOf reads who asks. slurmrestd itself only sees that there is a token;
// slurmctld judges it. root may act for anybody.
func (f *face) callerOf(r *http.Request) caller {
	name, token := r.Header.Get("X-SLURM-USER-NAME"), r.Header.Get("X-SLURM-USER-TOKEN")
	if token == "" && f.release.generation > 38 {
		token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if token == "" || name == "" && f.release.generation == 38 {
		return caller{}
	}
	user, ok := readToken(f.o.Key, token, f.o.Clock())
	c := caller{user: user, named: true, trusted: ok}
	if name != "" && name != user {
		c.trusted = ok && c.admin()
		c.user = name
	}
	return c
}
