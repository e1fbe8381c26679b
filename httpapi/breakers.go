package httpapi

import (
	"encoding/json"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

// breakerView is a circuit breaker that tripped, or did once. A null of its
// scope is every one.
type breakerView struct {
	Name        string     `json:"name"`
	Policy      string     `json:"policy"`
	Open        bool       `json:"open"`
	Workflow    *string    `json:"workflow"`
	Site        *string    `json:"site"`
	RackID      *int64     `json:"rack_id"`
	DeviceClass *string    `json:"device_class"`
	TrippedAt   *time.Time `json:"tripped_at"`
	Reason      *string    `json:"reason"`
	Failed      int        `json:"failed"`
	Runs        int        `json:"runs"`
	ResetAt     *time.Time `json:"reset_at"`
	ResetBy     *string    `json:"reset_by"`
	ResetReason *string    `json:"reset_reason"`
}

// breakers reads the breakers that exist for the caller: those of no site exist
// for everybody.
func (s *Server) breakers(r *request) ([]breakerView, error) {
	all, err := store.Breakers(r.Context(), s.DB)
	if err != nil {
		return nil, err
	}
	sites, err := store.Sites(r.Context(), s.DB)
	if err != nil {
		return nil, err
	}
	names := map[int64]string{}
	for i := range sites {
		names[sites[i].ID] = sites[i].Spec.Name
	}
	views := []breakerView{}
	for i := range all {
		if b := &all[i]; b.SiteID == 0 || r.principal.Sees(names[b.SiteID]) {
			views = append(views, viewBreaker(b, names))
		}
	}
	return views, nil
}

func viewBreaker(b *fleet.Breaker, sites map[int64]string) breakerView {
	v := breakerView{
		Name: b.Name, Policy: b.Policy, Open: !b.TrippedAt.IsZero(), Workflow: orNil(b.Workflow), Site: orNil(sites[b.SiteID]), DeviceClass: orNil(b.DeviceClass),
		TrippedAt: instant(b.TrippedAt), Reason: orNil(b.Reason), Failed: b.Failed, Runs: b.Runs,
		ResetAt: instant(b.ResetAt), ResetBy: orNil(b.ResetBy), ResetReason: orNil(b.ResetReason),
	}
	if b.RackID != 0 {
		v.RackID = &b.RackID
	}
	return v
}

func (s *Server) listBreakers(r *request) (*reply, error) {
	all, err := s.breakers(r)
	if err != nil {
		return nil, err
	}
	shown := []breakerView{}
	open := flag(r.query, "open")
	for _, b := range all {
		if open == nil || *open == b.Open {
			shown = append(shown, b)
		}
	}
	page, err := paged(r, shown, func(b breakerView) string { return b.Name })
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// resetBreaker lets work go on, and shows the breaker as it is then.
func (s *Server) resetBreaker(r *request) (*reply, error) {
	var in because
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	if _, err := s.breaker(r); err != nil {
		return nil, err
	}
	if err := s.Jobs.ResetBreaker(r.Context(), r.vars["breaker"], in.Reason, r.caller()); err != nil {
		return nil, err
	}
	v, err := s.breaker(r)
	if err != nil {
		return nil, err
	}
	return ok(v), nil
}

// breaker finds the breaker that the path names, if it exists for the caller.
func (s *Server) breaker(r *request) (breakerView, error) {
	all, err := s.breakers(r)
	if err != nil {
		return breakerView{}, err
	}
	for _, b := range all {
		if b.Name == r.vars["breaker"] {
			return b, nil
		}
	}
	return breakerView{}, &jobs.Error{Code: jobs.CodeBreakerNotFound, Message: "there is no such breaker: list them at /api/v1/breakers/"}
}
