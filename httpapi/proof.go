package httpapi

import (
	"encoding/json"

	"github.com/musterhq/muster/devices"
)

// enrollmentProof is the body that tells how an enrolment ended.
type enrollmentProof struct {
	Outcome           string `json:"outcome"` // succeeded, failed
	InfrastructureRef string `json:"infrastructure_ref"`
	Job               int64  `json:"job"`
}

// proofWritten is what became of the proof.
type proofWritten struct {
	Result devices.ProofOutcome `json:"result"`
	Device *deviceDetail        `json:"device"`
}

// writeProof records how an enrolment ended, and shows the device as it is then.
func (s *Server) writeProof(r *request) (*reply, error) {
	var in enrollmentProof
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	row, err := s.device(r)
	if err != nil {
		return nil, err
	}
	write := s.Devices.Unprove
	if in.Outcome == "succeeded" {
		write = s.Devices.Prove
	}
	by := r.caller()
	by.Job = in.Job
	written, err := write(r.Context(), row.ID, in.InfrastructureRef, by)
	if err != nil {
		return nil, err
	}
	v, err := s.detail(r)
	if err != nil {
		return nil, err
	}
	return ok(proofWritten{Result: written.Outcome, Device: v}), nil
}
