package netbox

import (
	"net/http"
	"strings"
)

// Token is one token that the face knows.
type Token struct {
	Text     string // forty hexadecimal digits, or nbt_KEY.SECRET of the second kind (from 4.5 on)
	ReadOnly bool
	Nothing  bool   // its user has no permission at all
	Site     string // slug of the site whose devices alone its user may change, and only change; "" everything
	Expired  bool
}

const (
	noCredentials = "Authentication credentials were not provided."
	noPermission  = "You do not have permission to perform this action."
	second        = "nbt_"
)

// caller gives the token of a request, or what NetBox says in place of it: always
// with 403.
func (f *face) caller(r *http.Request) (*Token, string) {
	header := r.Header.Get("Authorization")
	words := strings.Fields(header)
	if len(words) == 0 {
		return nil, noCredentials
	}
	scheme := strings.ToLower(words[0])
	if scheme != "token" && (f.generation < 45 || scheme != "bearer") {
		return nil, noCredentials
	}
	if len(words) != 2 {
		if f.generation < 45 {
			return nil, "Invalid token header. Token string should not contain spaces."
		}
		return nil, `Invalid authorization header: Must be in the form "Bearer <key>.<token>" or "Token <token>"`
	}
	return f.token(words[1])
}

func (f *face) token(text string) (*Token, string) {
	invalid := "Invalid token"
	if f.generation >= 45 {
		invalid = "Invalid v1 token"
		if strings.HasPrefix(text, second) {
			if !strings.Contains(text, ".") {
				return nil, "Invalid authorization header: Could not parse key from v2 token. Did you mean to use 'Token' instead of 'Bearer'?"
			}
			invalid = "Invalid v2 token"
		}
	}
	for i := range f.o.Tokens {
		token := &f.o.Tokens[i]
		switch {
		case token.Text != text || strings.HasPrefix(text, second) && f.generation < 45:
		case token.Expired && f.generation < 40:
			return nil, invalid
		case token.Expired:
			return nil, "Token expired"
		default:
			return token, ""
		}
	}
	return nil, invalid
}

// may reports whether the token's user may do this to objects of a kind; which of
// them is seen later.
func (t *Token) may(method string, k *kind) bool {
	read := method == http.MethodGet || method == http.MethodHead
	switch {
	case t.Nothing, t.ReadOnly && !read:
		return false
	case t.Site == "":
		return true
	case strings.HasPrefix(k.path, "ipam/"):
		return false
	}
	return read || method == http.MethodPatch && k.model == "Device"
}
