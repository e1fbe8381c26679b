package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/store"
)

// loginsAllowed says at which BMCs credentials are tried again.
type loginsAllowed struct {
	All       bool     `json:"all"`
	Addresses []string `json:"addresses"`
}

// allowLogin lets credentials be tried again that BMCs of a site have refused.
func (s *Server) allowLogin(r *request) (*reply, error) {
	var in struct {
		Address  string `json:"address"`
		DeviceID int64  `json:"device_id"`
		All      bool   `json:"all"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	r.vars["source"] = "bmc"
	site, report, err := s.source(r)
	if err != nil {
		return nil, err
	}
	var addresses []string
	err = s.DB.Tx(r.Context(), func(tx pgx.Tx) (err error) {
		addresses, err = store.AllowLogins(r.Context(), tx, store.LoginRequest{
			SiteID: site.ID, Source: report.Source, Address: in.Address, Device: in.DeviceID, Actor: r.principal.Name, Remote: r.remote(),
		})
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, refuse(http.StatusNotFound, "device_not_found", "no device of site %s has this BMC: GET /api/v1/sites/%s/sources/bmc/ lists those that refuse", site.Spec.Name, site.Spec.Name)
	}
	if err != nil {
		return nil, err
	}
	return ok(loginsAllowed{All: in.All, Addresses: addresses}), nil
}
