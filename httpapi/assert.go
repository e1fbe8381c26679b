package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// conditionPost is the body of a single assertion.
type conditionPost struct {
	DeviceID   int64     `json:"device_id"`
	Type       string    `json:"type"`
	Status     fleet.Tri `json:"status"`
	Reason     string    `json:"reason"`
	Message    string    `json:"message"`
	ObservedAt time.Time `json:"observed_at"`
	Writer     string    `json:"writer"`
}

// asserted is the answer: the row that stands.
type asserted struct {
	Stored    bool          `json:"stored"` // false: the row is newer, the assertion is ignored
	Condition conditionView `json:"condition"`
}

func (s *Server) postCondition(r *request) (*reply, error) {
	var in conditionPost
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	writer, err := r.writer(in.Writer)
	if err != nil {
		return nil, err
	}
	rows, err := store.ListDevices(r.Context(), s.DB, store.DeviceFilter{SiteNames: r.principal.Sites, IDs: []int64{in.DeviceID}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, deviceNotFound()
	}
	row, stored, err := s.Devices.PostCondition(r.Context(), devices.ConditionPost{
		DeviceID: in.DeviceID, Type: in.Type, Status: in.Status, Reason: in.Reason, Message: in.Message,
		Writer: writer, ObservedAt: in.ObservedAt, By: r.caller(),
	})
	if err != nil {
		return nil, err
	}
	view, err := s.standingCondition(r, in.DeviceID, row)
	return ok(asserted{Stored: stored, Condition: view}), err
}

// standingCondition shows a stored row with the device as it is now.
func (s *Server) standingCondition(r *request, id int64, row fleet.Condition) (conditionView, error) {
	rows, err := store.ListDevices(r.Context(), s.DB, store.DeviceFilter{IDs: []int64{id}, Limit: 1})
	if err != nil || len(rows) == 0 {
		return conditionView{}, err
	}
	bundle, standings, err := s.standings(r, rows)
	if err != nil {
		return conditionView{}, err
	}
	st := standings[id]
	t, known := bundle.Type(row.Type)
	c := store.ConditionRow{Condition: row, Device: rows[0].Name, SiteID: rows[0].SiteID, Site: rows[0].Site}
	c.Decisive = known && rows[0].Decisive>>t.Bit&1 == 1
	return viewCondition(&c, &st, t), nil
}

// writer is whom the caller may speak for. Naming another one is refused.
func (r *request) writer(named string) (string, error) {
	bound := r.principal.Writer
	switch {
	case bound == "":
		return "", refuse(http.StatusForbidden, string(devices.CodeWriterMismatch), "this token speaks for no writer: make one with `muster token create --writer`")
	case named != "" && named != bound:
		return "", refuse(http.StatusForbidden, string(devices.CodeWriterMismatch), "this token speaks for the writer %s, not for %s", bound, named).
			with(fault{Pointer: "/writer", Detail: "not the writer of the token"})
	}
	return bound, nil
}

// snapshotPost is the body of one writer's whole word on devices.
type snapshotPost struct {
	Writer  string `json:"writer"`
	Devices []struct {
		DeviceID   int64     `json:"device_id"`
		ObservedAt time.Time `json:"observed_at"`
		Conditions []struct {
			Type    string    `json:"type"`
			Status  fleet.Tri `json:"status"`
			Reason  string    `json:"reason"`
			Message string    `json:"message"`
		} `json:"conditions"`
	} `json:"devices"`
}

// appliedView says what became of one device's snapshot.
type appliedView struct {
	DeviceID int64                   `json:"device_id"`
	Result   string                  `json:"result"` // applied, unchanged, refused
	Code     *string                 `json:"code"`
	Detail   *string                 `json:"detail"`
	Written  []string                `json:"written"`
	Ignored  []string                `json:"ignored"`
	Repaired bool                    `json:"repaired"`
	Status   facts.OperationalStatus `json:"operational_status"`
}

type appliedList struct {
	Writer  string        `json:"writer"`
	Refused int           `json:"refused"`
	Items   []appliedView `json:"items"`
}

func (s *Server) postSnapshot(r *request) (*reply, error) {
	var in snapshotPost
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	writer, err := r.writer(in.Writer)
	if err != nil {
		return nil, err
	}
	snapshots := make([]devices.DeviceSnapshot, len(in.Devices))
	of := make([]int64, len(in.Devices))
	for i, d := range in.Devices {
		of[i] = d.DeviceID
		snapshots[i] = devices.DeviceSnapshot{DeviceID: d.DeviceID, ObservedAt: d.ObservedAt}
		for _, c := range d.Conditions {
			snapshots[i].Conditions = append(snapshots[i].Conditions, devices.SnapshotCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	visible, err := store.VisibleDevices(r.Context(), s.DB, of, r.principal.Sites)
	if err != nil {
		return nil, err
	}
	for i := range snapshots {
		if !visible[snapshots[i].DeviceID] {
			snapshots[i].DeviceID = 0 // no device's: outside the caller's sites is the same as not there
		}
	}
	results, err := s.Devices.PostSnapshot(r.Context(), writer, r.caller(), snapshots)
	if err != nil {
		return nil, err
	}
	return viewApplied(writer, of, results)
}

// viewApplied shows the results. Where every device is refused the request is.
func viewApplied(writer string, of []int64, results []devices.SnapshotResult) (*reply, error) {
	v := appliedList{Writer: writer, Items: []appliedView{}}
	var faults []fault
	status, code := http.StatusUnprocessableEntity, ""
	for i, result := range results {
		one := appliedView{
			DeviceID: of[i], Result: "applied", Written: listed(result.Written), Ignored: listed(result.Ignored),
			Repaired: result.Repaired, Status: result.Status,
		}
		switch {
		case result.Code != "":
			one.Result, one.Code, one.Detail, one.Status = "refused", orNil(string(result.Code)), orNil(result.Message), 0
			faults = append(faults, fault{Pointer: fmt.Sprintf("/devices/%d", i), Code: string(result.Code), Detail: result.Message})
			if code == "" {
				status, code = statusOf[result.Code], string(result.Code)
			}
			v.Refused++
		case len(result.Written) == 0 && !result.Repaired:
			one.Result = "unchanged"
		}
		v.Items = append(v.Items, one)
	}
	if v.Refused > 0 && v.Refused == len(results) {
		if status == 0 {
			status = http.StatusUnprocessableEntity
		}
		return nil, refuse(status, code, "nothing was applied: see errors").with(faults...)
	}
	return ok(v), nil
}

// undecodable is a body that fits the document and cannot be taken all the same.
func undecodable(err error) *problem {
	return refuse(http.StatusBadRequest, "request_invalid", "the body is not readable: %v", err)
}

// caller names who asks, for the audit log.
func (r *request) caller() devices.Caller {
	return devices.Caller{Name: r.principal.Name, Remote: r.remote()}
}
