package httpapi

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// deviceDetail is a device as its own address shows it.
type deviceDetail struct {
	deviceView
	Conditions      []conditionView `json:"operational_status_conditions"` // the decisive ones
	StaleConditions []staleView     `json:"stale_conditions"`
	Sources         []deviceSource  `json:"sources"`
}

// staleView is a type in scope that nobody vouches for now.
type staleView struct {
	Type       string     `json:"type"`
	Reason     string     `json:"reason"`
	ObservedAt *time.Time `json:"observed_at"`
	PastHold   bool       `json:"past_hold"`
}

// deviceSource is what one source knows the device by.
type deviceSource struct {
	Source     string     `json:"source"`
	Ref        *string    `json:"ref"`
	RefGone    bool       `json:"ref_gone"`
	SeenAt     time.Time  `json:"seen_at"`     // when what it says last changed, or it was read alone
	ObservedAt time.Time  `json:"observed_at"` // when that was last confirmed
	Unread     *unread    `json:"unread"`
	FailingAt  *time.Time `json:"failing_since"`
}

type unread struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// reasonNoRow is shown of a type that nobody has read yet.
const reasonNoRow = "NoRow"

func (s *Server) showDevice(r *request) (*reply, error) {
	v, err := s.detail(r)
	if err != nil {
		return nil, err
	}
	return tagged(v), nil
}

// detail reads the device that the path names with what decided its status.
func (s *Server) detail(r *request) (*deviceDetail, error) {
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	bundle, standings, err := s.standings(r, []store.DeviceRow{row})
	if err != nil {
		return nil, err
	}
	st := standings[row.ID]
	conditions, err := store.ConditionsOf(r.Context(), s.DB, []int64{row.ID})
	if err != nil {
		return nil, err
	}
	sources, err := s.sourcesOf(r, &row)
	if err != nil {
		return nil, err
	}
	return &deviceDetail{
		deviceView: viewDevice(&row, &st, bundle), Conditions: decisive(bundle, &row, &st, conditions),
		StaleConditions: staleOf(bundle, &st), Sources: sources,
	}, nil
}

// device reads the device that the path names, if it exists for the caller.
func (s *Server) device(r *request) (store.DeviceRow, error) {
	id, err := strconv.ParseInt(r.vars["id"], 10, 64)
	if err != nil {
		return store.DeviceRow{}, deviceNotFound()
	}
	rows, err := store.ListDevices(r.Context(), s.DB, store.DeviceFilter{SiteNames: r.principal.Sites, IDs: []int64{id}, Limit: 1})
	if err != nil {
		return store.DeviceRow{}, err
	}
	if len(rows) == 0 {
		return store.DeviceRow{}, deviceNotFound()
	}
	return rows[0], nil
}

// decisive shows the conditions that decided the stored status, those without a
// row too.
func decisive(b *engine.Bundle, d *store.DeviceRow, st *devices.Standing, rows []fleet.Condition) []conditionView {
	views := []conditionView{}
	byType := map[string]fleet.Condition{}
	for _, c := range rows {
		byType[c.Type] = c
	}
	for left := d.Decisive; left != 0; left &= left - 1 {
		t := b.TypeOf(uint8(bits.TrailingZeros64(left)))
		if t == nil {
			continue
		}
		c, there := byType[t.Name]
		if !there {
			c = fleet.Condition{DeviceID: d.ID, Type: t.Name, Status: fleet.False, Reason: reasonNoRow}
			if t.AbsentUnknown {
				c.Status = fleet.Unknown
			}
			if len(t.Writers) > 0 {
				c.Writer = t.Writers[0]
			}
		}
		row := store.ConditionRow{Condition: c, Device: d.Name, SiteID: d.SiteID, Site: d.Site, Decisive: true}
		views = append(views, viewCondition(&row, st, t))
	}
	return views
}

func staleOf(b *engine.Bundle, st *devices.Standing) []staleView {
	views := []staleView{}
	for left := st.Stale; left != 0; left &= left - 1 {
		t := b.TypeOf(uint8(bits.TrailingZeros64(left)))
		if t == nil {
			continue
		}
		v := staleView{Type: t.Name, Reason: st.Reasons[t.Name], ObservedAt: instant(st.ObservedAt[t.Name]), PastHold: st.PastHold>>t.Bit&1 == 1}
		if v.Reason == "" {
			v.Reason = reasonNoRow
		}
		views = append(views, v)
	}
	return views
}

func (s *Server) sourcesOf(r *request, d *store.DeviceRow) ([]deviceSource, error) {
	stored, err := store.FactsOf(r.Context(), s.DB, []int64{d.ID})
	if err != nil {
		return nil, err
	}
	marks, err := store.Watermarks(r.Context(), s.DB, d.SiteID)
	if err != nil {
		return nil, err
	}
	views := make([]deviceSource, len(stored))
	for i, f := range stored {
		mark := marks[f.Source]
		v := deviceSource{Source: f.Source, Ref: orNil(f.Ref), RefGone: f.RefGone, SeenAt: f.SeenAt, ObservedAt: f.SeenAt, FailingAt: instant(mark.FailingSince)}
		if mark.At.After(v.ObservedAt) {
			v.ObservedAt = mark.At
		}
		if f.Trouble.Reason != "" {
			v.Unread = &unread{f.Trouble.Reason, f.Trouble.Since}
		}
		views[i] = v
	}
	return views, nil
}
