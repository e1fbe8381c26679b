package httpapi

import (
	"net/http"
	"strings"
	"time"
)

const (
	sessionCookie = "muster_session"
	sessionFor    = 12 * time.Hour
	maxLogin      = 4 << 10 // bytes of its form
)

// session reads the token that a session was made from. The cookie never goes
// to a script, nor along with a request that another site starts.
func session(r *http.Request) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// loginLink makes a session by a link: `muster dev` prints one. The address of
// the page that follows holds no token.
func (s *Server) loginLink(w http.ResponseWriter, r *http.Request) {
	s.begin(w, r, r.URL.Query().Get("token"), pageRoot+"/")
}

// login makes a session by the form.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if err := r.ParseForm(); err != nil {
		s.failPage(w, r, refuse(http.StatusBadRequest, "request_invalid", "the form is not readable"))
		return
	}
	s.begin(w, r, r.PostForm.Get("token"), r.PostForm.Get("next"))
}

func (s *Server) begin(w http.ResponseWriter, r *http.Request, token, next string) {
	token = strings.TrimSpace(token)
	if s.Auth == nil { // nobody needs one
		http.Redirect(w, r, pageRoot+"/", http.StatusSeeOther)
		return
	}
	principal, err := s.known(r, token)
	trailOf(r).principal = principal.Name
	if err != nil {
		r.URL.RawQuery = "" // it may hold the token
		s.failPage(w, r, err)
		return
	}
	if !strings.HasPrefix(next, pageRoot+"/") || strings.HasPrefix(next, loginPath) { // nowhere else
		next = pageRoot + "/"
	}
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: token, Path: pageRoot + "/", MaxAge: int(sessionFor / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, next, http.StatusSeeOther)
}
