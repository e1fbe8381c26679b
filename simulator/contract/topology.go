package contract

import (
	"net/http"

	"github.com/musterhq/muster/simulator/world"
)

// intent is one as the contract shows it.
type intent struct {
	Name   string `json:"name"`
	Device string `json:"device"`
	Site   string `json:"site"`
	Action string `json:"action"`
}

// Topology gives the topology service of a site.
func Topology(w *world.World, site string, o Options) http.Handler {
	f := &face{Options: o, world: w, site: site, name: FaceTopology}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/sync-intents", answered(f.declare))
	mux.Handle("GET /v1/sync-intents/{name}", answered(f.declared))
	return f.guarded(mux)
}

func (f *face) declared(r *http.Request) (int, any, error) {
	var found *world.Intent
	f.world.Read(func(s *world.State) { found = s.Intents.Get(world.Key(f.site, r.PathValue("name"))) })
	if found == nil {
		return 0, nil, notFound("intent")
	}
	return http.StatusOK, intent{found.Name, found.Device, found.Of, found.Action}, nil
}

// declare takes an intent, and one that was declared before again.
func (f *face) declare(r *http.Request) (int, any, error) {
	var sent intent
	if _, err := read(r, &sent); err != nil {
		return 0, nil, err
	}
	switch {
	case sent.Name == "" || sent.Device == "" || sent.Site == "":
		return 0, nil, invalid("name, device and site are needed")
	case sent.Action != "remove":
		return 0, nil, invalid("action is none that this service knows: remove")
	}
	now := &world.Intent{Site: f.site, Name: sent.Name, Device: sent.Device, Of: sent.Site, Action: sent.Action, Times: 1}
	err := f.do("declare "+sent.Action, sent.Device, sent.Name, func(s *world.State) error {
		if before := s.Intents.Get(now.Key()); before != nil {
			if (intent{before.Name, before.Device, before.Of, before.Action}) != sent {
				return refuse(http.StatusConflict, "conflict", "this name declares something else")
			}
			now.Times = before.Times + 1
		}
		s.Intents.Put(now.Key(), now)
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, sent, nil
}
