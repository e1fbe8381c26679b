package httpapi

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhq/muster/jobs"
)

// formHandler does what a form asks for, and gives the page to show then.
type formHandler func(r *request) (next string, err error)

// maxForm bounds the forms of pages, in bytes: a reason of 1000 characters takes
// twelve times as many in one.
const maxForm = 16 << 10

const formFields = "application/x-www-form-urlencoded"

// formToken is what a form must show to be followed: a page that another site
// shows cannot know it. It is of the session, wherever that is answered; without
// authentication it is of this process.
func (s *Server) formToken(r *http.Request) string {
	secret := []byte(bearer(r))
	if len(secret) == 0 {
		secret = []byte(session(r))
	}
	if s.Auth == nil {
		secret = s.formSecret
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("form of a page"))
	return hex.EncodeToString(mac.Sum(nil))
}

// readForm reads the fields of a form, and refuses one that no page of this
// session showed.
func (s *Server) readForm(r *request) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxForm))
	if err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "body_too_large", "a form may have %d bytes at most", maxForm)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.form = url.Values{}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) == formFields {
		if r.form, err = url.ParseQuery(string(body)); err != nil {
			return refuse(http.StatusBadRequest, "request_invalid", "the form is not readable")
		}
	}
	if !hmac.Equal([]byte(r.form.Get("token")), []byte(s.formToken(r.Request))) {
		return refuse(http.StatusForbidden, "form_token_invalid", "this form is not of your session: load the page again and send it from there")
	}
	return nil
}

// follow does what a form asks for and leads to the page of what came of it. What
// is refused is told on the page that the form is on.
func (s *Server) follow(w http.ResponseWriter, r *request, one route) error {
	next, err := one.form(r)
	if err == nil {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r.Request, next, http.StatusSeeOther)
		return nil
	}
	p := *problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Code != jobs.CodeBusy || !r.principal.May(one.reads) {
		return err
	}
	p.RequestID = trailOf(r.Request).id
	r.problem = &p
	name, data, err := one.page(r)
	if err != nil {
		return err
	}
	return s.pages.write(w, p.Status, name, data)
}

// formPage is the page that a form is on: who has to log in first comes back to it.
func formPage(path string) string {
	if i := strings.LastIndex(strings.TrimSuffix(path, "/"), "/"); i > 0 {
		return path[:i+1]
	}
	return path
}

// onceKey is of one showing of a form: sent twice it asks for one thing.
func onceKey() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return "page-" + hex.EncodeToString(random[:])
}
