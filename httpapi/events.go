package httpapi

import (
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// eventView is one row of history.
type eventView struct {
	ID            int64       `json:"id"`
	DeviceID      int64       `json:"device_id"`
	Kind          fleet.Kind  `json:"kind"`
	Value         string      `json:"value"`
	CreatedAt     time.Time   `json:"created_at"`
	EndedAt       *time.Time  `json:"ended_at"`
	Rung          *string     `json:"rung"`
	BundleVersion *string     `json:"bundle_version"`
	Cause         fleet.Cause `json:"cause"`
	StatusBefore  *string     `json:"status_before"`
	Judged        *judgedView `json:"judged"`
}

// judgedView names the conditions that a derivation saw.
type judgedView struct {
	True     []string `json:"true"`
	Unknown  []string `json:"unknown"`
	Present  []string `json:"present"`
	InScope  []string `json:"in_scope"`
	Stale    []string `json:"stale"`
	PastHold []string `json:"past_hold"`
}

func viewEvent(e *store.EventRow, b *engine.Bundle) eventView {
	v := eventView{
		ID: e.ID, DeviceID: e.DeviceID, Kind: e.Kind, Value: e.Value, CreatedAt: e.CreatedAt, EndedAt: instant(e.EndedAt),
		Rung: orNil(e.Rung), BundleVersion: orNil(e.BundleVersion), Cause: e.Cause, StatusBefore: orNil(e.StatusBefore),
	}
	if j := e.Judged; j != nil && b != nil {
		v.Judged = &judgedView{
			True: typeNames(b, j.True), Unknown: typeNames(b, j.Unknown), Present: typeNames(b, j.Present),
			InScope: typeNames(b, j.InScope), Stale: typeNames(b, j.Stale), PastHold: typeNames(b, j.PastHold),
		}
	}
	return v
}

func (s *Server) listEvents(r *request) (*reply, error) {
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	page, err := s.history(r, row.ID)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// history reads the page of a device's history that a request asks for.
func (s *Server) history(r *request, id int64) (*list[eventView], error) {
	before, err := r.afterID()
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	rows, err := store.LifecycleEvents(r.Context(), s.DB, id, r.query["kind"], before, limit+1)
	if err != nil {
		return nil, err
	}
	page := &list[eventView]{Items: []eventView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].ID))
	}
	for i := range rows {
		page.Items = append(page.Items, viewEvent(&rows[i], s.Policies.Current()))
	}
	return page, nil
}
