package httpapi

import (
	"slices"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// conditionView is a condition as it is to be taken now: a value that is not
// fresh reads Unknown, with the reason, and stands in last.
type conditionView struct {
	DeviceID         int64      `json:"device_id"`
	Device           string     `json:"device"`
	Site             string     `json:"site"`
	Type             string     `json:"type"`
	Status           fleet.Tri  `json:"status"`
	Reason           string     `json:"reason"`
	Message          string     `json:"message"`
	Stale            bool       `json:"stale"`
	Last             *lastValue `json:"last"`
	Writer           string     `json:"writer"`
	ConditionOf      string     `json:"condition_of"`
	Decisive         bool       `json:"decisive"`
	LastTransitionAt *time.Time `json:"last_transition_at"`
	ObservedAt       *time.Time `json:"observed_at"`
}

type lastValue struct {
	Status  fleet.Tri `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// feedsNothing is the condition_of of a type that the active policy does not
// have any more.
const feedsNothing = "none"

func viewCondition(c *store.ConditionRow, st *devices.Standing, t *engine.ConditionType) conditionView {
	v := conditionView{
		DeviceID: c.DeviceID, Device: c.Device, Site: c.Site, Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
		Writer: c.Writer, ConditionOf: feedsNothing, Decisive: c.Decisive, LastTransitionAt: instant(c.LastTransitionAt), ObservedAt: instant(c.ObservedAt),
	}
	if t == nil {
		return v
	}
	v.ConditionOf = t.Feeds
	if at := st.ObservedAt[t.Name]; !at.IsZero() {
		v.ObservedAt = instant(at)
	}
	if reason := st.Reasons[t.Name]; reason != "" {
		v.Stale, v.Last = true, &lastValue{c.Status, c.Reason, c.Message}
		v.Status, v.Reason, v.Message = fleet.Unknown, reason, ""
	}
	return v
}

// maxScans bounds how many pages of rows one request reads to fill its page
// with those that, shown as of now, have the status asked for.
const maxScans = 10

func (s *Server) listConditions(r *request) (*reply, error) {
	bundle := s.Policies.Current()
	if bundle == nil {
		return nil, devices.ErrPolicyNotLoaded
	}
	filter, err := r.conditionFilter(bundle)
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	filter.Limit = limit + 1
	statuses := r.query["status"]
	if !slices.Contains(statuses, string(fleet.Unknown)) {
		filter.Statuses = statuses // a row can only be shown as what it is, or as Unknown
	}
	page := list[conditionView]{Items: []conditionView{}}
	for range maxScans {
		rows, err := store.ListConditions(r.Context(), s.DB, filter)
		if err != nil {
			return nil, err
		}
		more := len(rows) > limit
		rows = rows[:min(len(rows), limit)]
		views, err := s.viewConditions(r, bundle, rows)
		if err != nil {
			return nil, err
		}
		for i, v := range views {
			if len(statuses) > 0 && !slices.Contains(statuses, string(v.Status)) {
				continue
			}
			page.Items = append(page.Items, v)
			if len(page.Items) == limit && (more || i < len(views)-1) {
				page.Next = r.next(key(v.DeviceID), v.Type)
				return ok(page), nil
			}
		}
		if !more {
			return ok(page), nil
		}
		last := rows[len(rows)-1]
		filter.AfterDevice, filter.AfterType = last.DeviceID, last.Type
	}
	page.Next = r.next(key(filter.AfterDevice), filter.AfterType)
	return ok(page), nil
}

// viewConditions shows rows as they are to be taken now.
func (s *Server) viewConditions(r *request, b *engine.Bundle, rows []store.ConditionRow) ([]conditionView, error) {
	var of []int64
	for i := range rows {
		if len(of) == 0 || of[len(of)-1] != rows[i].DeviceID {
			of = append(of, rows[i].DeviceID)
		}
	}
	found, err := store.DevicesByID(r.Context(), s.DB, of)
	if err != nil {
		return nil, err
	}
	standings, err := s.Devices.Standings(r.Context(), found)
	if err != nil {
		return nil, err
	}
	views := make([]conditionView, len(rows))
	for i := range rows {
		st := standings[rows[i].DeviceID]
		t, _ := b.Type(rows[i].Type)
		views[i] = viewCondition(&rows[i], &st, t)
	}
	return views, nil
}

// conditionFilter reads the filters. What they say of types is expanded by the
// catalogue.
func (r *request) conditionFilter(b *engine.Bundle) (store.ConditionFilter, error) {
	q := r.query
	f := store.ConditionFilter{
		SiteNames: r.principal.Sites, Sites: q["site"], Devices: ids(q["device"]), Writers: q["writer"], Decisive: flag(q, "decisive"),
	}
	of, names := q["condition_of"], q["type"]
	if len(of) > 0 || len(names) > 0 {
		f.Types = []string{}
	}
	catalogue := b.Catalogue()
	for i := range catalogue {
		t := &catalogue[i]
		if f.Types == nil || len(of) > 0 && !slices.Contains(of, t.Feeds) || len(names) > 0 && !slices.Contains(names, t.Name) {
			continue
		}
		f.Types, f.Mask = append(f.Types, t.Name), f.Mask|1<<t.Bit
	}
	for _, name := range names {
		if _, known := b.Type(name); !known {
			return f, refuse(400, "condition_type_unknown", "the active policy has no condition type %q: see /api/v1/policies/conditions/", name).
				with(fault{Parameter: "type", Detail: "no such condition type"})
		}
	}
	keys, err := r.after(2)
	if err != nil || keys == nil {
		return f, err
	}
	f.AfterType = keys[1]
	f.AfterDevice, err = keyID(keys[0])
	return f, err
}
