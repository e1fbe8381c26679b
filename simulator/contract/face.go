package contract

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// The names of the faces, as effects and rules of faults know them.
const (
	FaceDHCP        = "dhcp"
	FaceCredentials = "credentials"
	FaceTopology    = "topology"
)

// Options are how the services of a site know their users. Paths come without
// what stands before /v1/.
type Options struct {
	Token string // that is asked for; empty: none

	// Of credentials alone.
	User, Password string        // of the fleet's account at its BMCs
	Mint           func() string // makes a password; required
}

// face is one service of one site.
type face struct {
	Options
	world *world.World
	site  string
	name  string
}

const bodyLimit = 64 << 10

// problem is a refusal.
type problem struct {
	status        int
	code, message string
}

func (p *problem) Error() string { return p.message }

func refuse(status int, code, message string) error { return &problem{status, code, message} }

func notFound(what string) error {
	return refuse(http.StatusNotFound, "not_found", "there is no such "+what)
}

func invalid(message string) error {
	return refuse(http.StatusUnprocessableEntity, "invalid", message)
}

// guarded lets nobody in without the token.
func (f *face) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.Token != "" {
			scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(f.Token)) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				send(w, http.StatusUnauthorized, map[string]string{"code": "unauthorized", "message": "the token is not known here"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// answered serves what gives a status and a body, nil for none.
func answered(serve func(r *http.Request) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, body, err := serve(r)
		var p *problem
		switch {
		case errors.As(err, &p):
			send(w, p.status, map[string]string{"code": p.code, "message": p.message})
		case err != nil:
			send(w, http.StatusInternalServerError, map[string]string{"code": "unavailable", "message": "the service failed"})
		case body == nil:
			w.WriteHeader(status)
		default:
			send(w, status, body)
		}
	}
}

func send(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the caller may have left
}

// read gives the request's object; false where there is no body.
func read(r *http.Request, into any) (bool, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
	if err != nil || len(text) > bodyLimit {
		return false, invalid("the body cannot be read or is too long")
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return false, nil
	}
	if json.Unmarshal(text, into) != nil {
		return true, refuse(http.StatusBadRequest, "invalid", "the body is no such object")
	}
	return true, nil
}

// errSame ends a Do that found nothing to do.
var errSame = errors.New("nothing to do")

// do changes the world, told as one effect; errSame is no error and no effect.
func (f *face) do(op, device, detail string, change func(s *world.State) error) error {
	err := f.world.Do(world.Effect{Face: f.name, Site: f.site, Op: op, Subject: device, Detail: detail}, change)
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}
