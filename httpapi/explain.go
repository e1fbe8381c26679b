package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// explanation tells why a device is what it is.
type explanation struct {
	Device        deviceName              `json:"device"`
	At            time.Time               `json:"at"`
	BundleVersion string                  `json:"bundle_version"`
	Status        facts.OperationalStatus `json:"operational_status"` // as it is stored
	Rung          *string                 `json:"rung"`               // that gave it
	Derived       bool                    `json:"derived"`
	Held          bool                    `json:"held"`
	Frozen        bool                    `json:"frozen"`
	StatusFresh   bool                    `json:"status_fresh"`
	Operational   *statusView             `json:"operational"` // null where no writer that feeds the status speaks of the device
	Freeze        traceView               `json:"freeze"`
	Health        traceView               `json:"health"`
	CustomerReady traceView               `json:"customer_ready"`
	Class         *traceView              `json:"device_class"`
	Inventory     *traceView              `json:"inventory_status"`
	Conditions    []conditionTrace        `json:"conditions"`
	Writers       []writerTrace           `json:"writers"`
	Sources       []sourceTrace           `json:"sources"`
	Facts         facts.Facts             `json:"facts"`
}

type deviceName struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Site string `json:"site"`
}

// conditionTrace is one type of the catalogue as it stands for the device.
type conditionTrace struct {
	Type     string     `json:"type"`
	Status   fleet.Tri  `json:"status"` // the last value; without a row, what that counts as
	Reason   *string    `json:"reason"`
	Message  *string    `json:"message"`
	HasRow   bool       `json:"has_row"`
	InScope  bool       `json:"in_scope"`
	Decisive bool       `json:"decisive"`
	Emitted  bool       `json:"emitted"`
	Stale    *string    `json:"stale"` // why the value is not fresh
	Observed *time.Time `json:"observed_at"`
	Emission *traceView `json:"emission"`
}

type writerTrace struct {
	Writer  string            `json:"writer"`
	InScope bool              `json:"in_scope"`
	Unread  map[string]unread `json:"unread"`
	Scope   *traceView        `json:"scope"`
}

type sourceTrace struct {
	Source  string     `json:"source"`
	Ref     *string    `json:"ref"`
	RefGone bool       `json:"ref_gone"`
	SeenAt  time.Time  `json:"seen_at"`
	ReadAt  *time.Time `json:"read_at"` // when the site's whole source was last read to its end
	TTL     float64    `json:"ttl_seconds"`
	Failing *time.Time `json:"failing_since"`
	Stale   bool       `json:"stale"`
	Unread  *unread    `json:"unread"`
}

// replay tells why one change of the past happened, by the policy of its time.
type replay struct {
	Event       eventView   `json:"event"`
	Operational *statusView `json:"operational"`
}

func (s *Server) explainDevice(r *request) (*reply, error) {
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	if event := r.query.Get("event"); event != "" {
		return s.explainEvent(r, row.ID, event)
	}
	v, err := s.explanation(r, row.ID)
	if err != nil {
		return nil, err
	}
	return ok(v), nil
}

// explanation tells why a device, which exists for the caller, is what it is.
func (s *Server) explanation(r *request, id int64) (*explanation, error) {
	e, err := s.Devices.Explain(r.Context(), id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, deviceNotFound()
	}
	if err != nil {
		return nil, err
	}
	v := &explanation{
		Device: deviceName{e.Device.ID, e.Device.Name, e.Site.Spec.Name}, At: e.At.UTC(), BundleVersion: e.BundleVersion,
		Status: e.Device.Operational, Rung: orNil(e.Device.Rung), Derived: e.Derived, Held: e.Standing.Held, Frozen: e.Frozen, StatusFresh: e.Standing.StatusFresh,
		Freeze: viewTrace(&e.Freeze), Health: viewTrace(&e.Health), CustomerReady: viewTrace(&e.Ready),
		Class: viewTraceOf(e.Class), Inventory: viewTraceOf(e.Inventory), Facts: e.Facts,
		Conditions: conditionTraces(&e), Writers: writerTraces(&e), Sources: sourceTraces(&e),
	}
	if e.Derived {
		v.Operational = viewStatus(&e.Status)
	}
	return v, nil
}

func conditionTraces(e *devices.Explanation) []conditionTrace {
	views := []conditionTrace{}
	for _, c := range e.Conditions {
		v := conditionTrace{
			Type: c.Type, Status: c.Absent, InScope: c.InScope, Decisive: c.Decisive, Emitted: c.Emitted,
			Stale: orNil(c.Overlay), Observed: instant(c.Observed), Emission: viewTraceOf(c.Emission),
		}
		if c.Row != nil {
			v.HasRow, v.Status, v.Reason, v.Message = true, c.Row.Status, orNil(c.Row.Reason), orNil(c.Row.Message)
		}
		views = append(views, v)
	}
	return views
}

func writerTraces(e *devices.Explanation) []writerTrace {
	views := []writerTrace{}
	for _, w := range e.Scopes {
		v := writerTrace{Writer: w.Writer, InScope: w.In, Unread: map[string]unread{}, Scope: viewTraceOf(w.Trace)}
		for _, name := range slices.Sorted(maps.Keys(w.Unread)) {
			v.Unread[name] = unread(w.Unread[name])
		}
		views = append(views, v)
	}
	return views
}

func sourceTraces(e *devices.Explanation) []sourceTrace {
	views := []sourceTrace{}
	for _, f := range e.Sources {
		v := sourceTrace{
			Source: f.Source, Ref: orNil(f.Ref), RefGone: f.Gone, SeenAt: f.SeenAt.UTC(), ReadAt: instant(f.Age.At),
			TTL: f.Age.TTL.Seconds(), Failing: instant(f.Age.Failing), Stale: f.Age.Stale,
		}
		if f.Trouble.Reason != "" {
			v.Unread = &unread{f.Trouble.Reason, f.Trouble.Since}
		}
		views = append(views, v)
	}
	return views
}

func (s *Server) explainEvent(r *request, device int64, event string) (*reply, error) {
	notFound := refuse(http.StatusNotFound, "event_not_found", "the device has no such event: list them at /api/v1/devices/%d/lifecycle-events/", device)
	id, err := strconv.ParseInt(event, 10, 64)
	if err != nil {
		return nil, notFound
	}
	// Whose the event is comes first: the trace of another's device is not shown.
	found, err := store.EventByID(r.Context(), s.DB, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound
	case err != nil:
		return nil, err
	case found.DeviceID != device:
		return nil, notFound
	}
	e, err := s.Devices.ExplainEvent(r.Context(), id)
	if err != nil {
		return nil, err
	}
	v := replay{Event: viewEvent(&store.EventRow{Event: e.Event}, s.Policies.Current())}
	if e.Status != nil {
		v.Operational = viewStatus(e.Status)
	}
	return ok(v), nil
}
