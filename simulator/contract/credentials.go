package contract

import (
	"net/http"

	"github.com/musterhq/muster/simulator/world"
)

// credential is one as the contract shows it.
type credential struct {
	Device   string `json:"device"`
	User     string `json:"user"`
	Password string `json:"password"`
}

// Credentials gives the credentials service of a site.
func Credentials(w *world.World, site string, o Options) http.Handler {
	f := &face{Options: o, world: w, site: site, name: FaceCredentials}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/credentials/{device}", answered(f.kept))
	mux.Handle("PUT /v1/credentials/{device}", answered(f.keep))
	mux.Handle("DELETE /v1/credentials/{device}", answered(f.forget))
	return f.guarded(mux)
}

func (f *face) kept(r *http.Request) (int, any, error) {
	var found *world.BMCAccount
	f.world.Read(func(s *world.State) { found = s.Accounts.Get(world.Key(f.site, r.PathValue("device"))) })
	if found == nil {
		return 0, nil, notFound("credential")
	}
	return http.StatusOK, f.credential(found), nil
}

// credential fills in what is the fleet's.
func (f *face) credential(a *world.BMCAccount) credential {
	c := credential{Device: a.Device, User: a.User, Password: a.Password}
	if c.User == "" {
		c.User = f.User
	}
	if c.Password == "" {
		c.Password = f.Options.Password
	}
	return c
}

// keep stores what is sent; without a body it makes a credential, if there is
// none.
func (f *face) keep(r *http.Request) (int, any, error) {
	var sent credential
	given, err := read(r, &sent)
	if err != nil {
		return 0, nil, err
	}
	if given && (sent.User == "" || sent.Password == "") {
		return 0, nil, invalid("user and password are needed, or no body")
	}
	device := r.PathValue("device")
	op, now, status := "mint", &world.BMCAccount{Site: f.site, Device: device, User: sent.User, Password: sent.Password}, http.StatusOK
	if given {
		op = "store"
	}
	err = f.do(op, device, "", func(s *world.State) error {
		before := s.Accounts.Get(now.Key())
		switch {
		case before != nil && (!given || f.credential(before) == f.credential(now)):
			now = before
			return errSame
		case before == nil:
			status = http.StatusCreated
		}
		if !given {
			now.Password = f.Mint()
		}
		s.Accounts.Put(now.Key(), now)
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	return status, f.credential(now), nil
}

func (f *face) forget(r *http.Request) (int, any, error) {
	device := r.PathValue("device")
	err := f.do("delete", device, "", func(s *world.State) error {
		key := world.Key(f.site, device)
		if s.Accounts.Get(key) == nil {
			return notFound("credential")
		}
		s.Accounts.Delete(key)
		return nil
	})
	return http.StatusNoContent, nil, err
}
