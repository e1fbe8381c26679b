package httpapi

import "encoding/json"

// promotion is the body of a promotion.
type promotion struct {
	Reason string `json:"reason"`
}

// promoteDevice makes an inventory-only device one that is derived, and shows it
// as it is then.
func (s *Server) promoteDevice(r *request) (*reply, error) {
	var in promotion
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	if err := s.Devices.Promote(r.Context(), row.ID, in.Reason, r.caller()); err != nil {
		return nil, err
	}
	v, err := s.detail(r)
	if err != nil {
		return nil, err
	}
	return ok(v), nil
}
