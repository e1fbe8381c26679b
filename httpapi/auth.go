package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/store"
)

// Scopes of tokens. A route asks for exactly one of them.
const (
	DeviceRead           = "device:read"
	DeviceWrite          = "device:write"
	ConditionRead        = "condition:read"
	ConditionWrite       = "condition:write" // bound to one writer
	EnrollmentProofWrite = "enrollment-proof:write"
	CustodyWrite         = "custody:write"
	LatchWrite           = "latch:write"
	OperationRead        = "operation:read"
	OperationWrite       = "operation:write"
	OperationForce       = "operation:force"
	JobRead              = "job:read"
	JobWrite             = "job:write"
	JobForce             = "job:force"
	RuleRead             = "rule:read"
	RuleWrite            = "rule:write"
	PolicyRead           = "policy:read"
	MetricsRead          = "metrics:read"
)

// Scopes lists every scope that a token may hold.
func Scopes() []string {
	return []string{
		DeviceRead, DeviceWrite, ConditionRead, ConditionWrite, EnrollmentProofWrite, CustodyWrite, LatchWrite,
		OperationRead, OperationWrite, OperationForce, JobRead, JobWrite, JobForce, RuleRead, RuleWrite, PolicyRead, MetricsRead,
	}
}

// Principal is who makes a request, and what they may do.
type Principal struct {
	Name   string // stands in the audit log
	Scopes []string
	Sites  []string // nil: every site
	Writer string   // the one writer that condition:write is bound to; "" for none
}

// May reports whether the principal holds a scope.
func (p *Principal) May(scope string) bool { return slices.Contains(p.Scopes, scope) }

// Sees reports whether a site exists for the principal.
func (p *Principal) Sees(site string) bool { return p.Sites == nil || slices.Contains(p.Sites, site) }

// Authenticator tells whose a bearer credential is. It fails with an AuthError
// where the credential is not good; any other error says that nobody could tell.
type Authenticator interface {
	Authenticate(ctx context.Context, credential string) (Principal, error)
}

// AuthError is a credential that is not good.
type AuthError struct {
	Code    string // token_invalid, token_expired, token_revoked
	Message string
}

func (e *AuthError) Error() string { return e.Message }

const (
	tokenPrefix = "muster_"
	tokenBytes  = 32
)

// NewToken makes a static token: the text that its holder shows, which is
// nowhere kept, and the hash by which it is known again.
func NewToken() (plain string, hash []byte) {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	plain = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	return plain, HashToken(plain)
}

// HashToken is the hash under which a token is stored.
func HashToken(plain string) []byte {
	sum := sha256.Sum256([]byte(plain))
	return sum[:]
}

// wellFormed tells texts that cannot be a token without asking the database.
func wellFormed(plain string) bool {
	body, ok := strings.CutPrefix(plain, tokenPrefix)
	if !ok || len(body) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return false
	}
	_, err := base64.RawURLEncoding.DecodeString(body)
	return err == nil
}

// Tokens authenticates by the static tokens of the database.
type Tokens struct {
	DB    store.Querier
	Clock func() time.Time
}

// Authenticate finds a token that is neither revoked nor expired.
func (t Tokens) Authenticate(ctx context.Context, credential string) (Principal, error) {
	unknown := &AuthError{Code: "token_invalid", Message: "this token is not known: make one with `muster token create`"}
	if !wellFormed(credential) {
		return Principal{}, unknown
	}
	hash := HashToken(credential)
	token, err := store.TokenByHash(ctx, t.DB, hash)
	switch now := t.Clock(); {
	case errors.Is(err, store.ErrNotFound):
		return Principal{}, unknown
	case err != nil:
		return Principal{}, err
	case subtle.ConstantTimeCompare(token.Hash, hash) != 1:
		return Principal{}, unknown
	case !token.RevokedAt.IsZero():
		return Principal{}, &AuthError{Code: "token_revoked", Message: "this token was revoked: make another with `muster token create`"}
	case !token.ExpiresAt.IsZero() && !now.Before(token.ExpiresAt):
		return Principal{}, &AuthError{Code: "token_expired", Message: "this token has expired: make another with `muster token create`"}
	}
	return Principal{Name: "token:" + token.Name, Scopes: token.Scopes, Sites: token.Sites, Writer: token.Writer}, nil
}

// bearer reads the credential of a request; "" where it shows none.
func bearer(r *http.Request) string {
	kind, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(credential)
}

// CheckExposure refuses to serve without authentication on an address that
// others reach.
func CheckExposure(listen string, authenticated bool) error {
	if authenticated {
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("read the address %q to listen on: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("no authentication is configured: listen on 127.0.0.1 instead of %q, or enable auth.tokens or auth.oidc", listen)
}

// local tells whether a request comes straight from this machine. What a proxy
// on it passes on comes from elsewhere.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() && r.Header.Get("Forwarded") == "" && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("Via") == ""
}
