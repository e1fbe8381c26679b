package httpapi

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// authenticate tells who asks. A page takes a session for a token: what its forms
// ask for needs the session's token of forms besides.
func (s *Server) authenticate(r *http.Request, page bool) (Principal, error) {
	if s.Auth == nil {
		if local(r) && localHost(r.Host) {
			return Principal{Name: "local", Scopes: Scopes()}, nil
		}
		return Principal{}, unauthenticated("no authentication is configured here: only this machine itself is answered")
	}
	credential := bearer(r)
	if page && credential == "" {
		credential = session(r)
	}
	return s.known(r, credential)
}

// known tells whose a credential is.
func (s *Server) known(r *http.Request, credential string) (Principal, error) {
	if credential == "" {
		return Principal{}, unauthenticated("send a token as `Authorization: Bearer …`: `muster token create` makes one")
	}
	principal, err := s.Auth.Authenticate(r.Context(), credential)
	var bad *AuthError
	if !errors.As(err, &bad) {
		return principal, err
	}
	if wait, ok := s.limiter.take("remote:" + host(r)); !ok { // guesses are slowed down
		return Principal{}, tooMany(wait)
	}
	p := refuse(http.StatusUnauthorized, bad.Code, "%s", bad.Message)
	return Principal{}, p.set("WWW-Authenticate", `Bearer realm="muster", error="invalid_token"`)
}

// localHost tells names of this machine: a page of elsewhere that a browser
// here has open reaches us by another name.
func localHost(name string) bool {
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

func unauthenticated(detail string) *problem {
	return refuse(http.StatusUnauthorized, "unauthenticated", "%s", detail).set("WWW-Authenticate", `Bearer realm="muster"`)
}

func tooMany(wait time.Duration) *problem {
	seconds := strconv.Itoa(int(wait / time.Second))
	return refuse(http.StatusTooManyRequests, "rate_limited", "too many requests: ask again in %s s", seconds).set("Retry-After", seconds)
}
