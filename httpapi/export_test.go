package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gorilla/mux"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/store"
)

// RouteInfo is a registered operation as tests compare it.
type RouteInfo struct {
	Method, Path, Scope string
	Public, Local       bool
}

// Document is the OpenAPI document that requests are checked by.
func (s *Server) Document() *openapi3.T { return s.contract.doc }

// Registered lists the table of routes.
func (s *Server) Registered() []RouteInfo {
	var all []RouteInfo
	for _, one := range s.routes {
		all = append(all, RouteInfo{one.method, one.path, one.scope, one.public, one.local})
	}
	return all
}

// Walked lists what the router itself answers, by method and path.
func (s *Server) Walked() ([][2]string, error) {
	var all [][2]string
	err := s.router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		methods, err := route.GetMethods()
		for _, method := range methods {
			all = append(all, [2]string{method, path})
		}
		return err
	})
	return all, err
}

// TemplateOf finds the path template that a request is answered by, "" for none.
func (s *Server) TemplateOf(r *http.Request) string {
	var match mux.RouteMatch
	if !s.router.Match(r, &match) || match.MatchErr != nil {
		return ""
	}
	template, _ := match.Route.GetPathTemplate()
	return template
}

// Depth is how deep a body nests.
func Depth(body []byte) int { return depth(body) }

// ReferencePage is what a page of devices cannot do without: its statement and
// its encoding.
func (s *Server) ReferencePage(ctx context.Context, limit int) ([]byte, error) {
	rows, err := store.ListDevices(ctx, s.DB, store.DeviceFilter{Retired: new(bool), Limit: limit})
	if err != nil {
		return nil, err
	}
	page := list[deviceView]{Items: make([]deviceView, len(rows))}
	for i := range rows {
		page.Items[i] = viewDevice(&rows[i], &devices.Standing{StatusFresh: true}, s.Policies.Current())
	}
	return json.Marshal(page)
}

// ReferenceFacts is what a check of devices cannot do without: the statements
// that load them and their facts.
func (s *Server) ReferenceFacts(ctx context.Context, ids []int64) (int, error) {
	rows, err := store.DevicesByID(ctx, s.DB, ids)
	if err != nil {
		return 0, err
	}
	said, err := store.FactsOf(ctx, s.DB, ids)
	return len(rows) + len(said), err
}

// ProblemOf is the status, the code and the Retry-After that an error gives.
func ProblemOf(err error) (status int, code, after string) {
	p := problemOf(err)
	return p.Status, p.Code, p.header.Get("Retry-After")
}
