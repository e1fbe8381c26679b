package httpapi

import (
	"encoding/json"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
)

// latch is the body of what a person did to ports or GPUs by hand.
type latch struct {
	Type   string    `json:"type"`
	Status fleet.Tri `json:"status"`
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
}

// recordLatch stores a person's word, and shows the condition that stands.
func (s *Server) recordLatch(r *request) (*reply, error) {
	var in latch
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.Devices.Latch(r.Context(), devices.LatchPost{
		DeviceID: row.ID, Type: in.Type, Status: in.Status, Reason: in.Reason, Note: in.Note, By: r.caller(),
	})
	if err != nil {
		return nil, err
	}
	view, err := s.standingCondition(r, row.ID, stored)
	if err != nil {
		return nil, err
	}
	return ok(view), nil
}
