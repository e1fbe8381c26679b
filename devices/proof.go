package devices

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// proofEnrolled is the source of a proof that an enrolment of ours established.
const proofEnrolled = "enrolled"

// ProofOutcome says what a result of an enrolment made of the stored proof.
type ProofOutcome string

// What becomes of a proof.
const (
	ProofEstablished ProofOutcome = "established" // the node is proven
	ProofCleared     ProofOutcome = "cleared"     // what was left of another node's proof is gone
	ProofKept        ProofOutcome = "kept"        // nothing was written: what stands is right
	ProofSuperseded  ProofOutcome = "superseded"  // nothing was written: the device carries another node by now
)

// ProofResult is what became of a proof, and the device as it then stands.
type ProofResult struct {
	Outcome ProofOutcome
	Device  fleet.Device
}

// Prove takes that an enrolment has validated the Ironic node ref of a device.
// A device that carries another node by now stays as it is (ProofSuperseded); of
// one that carries none yet the proof counts once that node is joined. A device
// that no enrolment manages is refused (CodeOutOfScope).
func (s *Service) Prove(ctx context.Context, id int64, ref string, by Caller) (ProofResult, error) {
	ref = store.Clean(ref)
	if ref == "" {
		return ProofResult{}, &RefusedError{CodeRefMissing, "name the Ironic node that was validated"}
	}
	return s.proof(ctx, id, ref, by, "succeeded", func(r *round, d *subject) (ProofOutcome, error) {
		if why := unmanaged(&d.device); why != "" {
			return "", &RefusedError{CodeOutOfScope, why}
		}
		if now := d.device.InfrastructureRef; now != "" && now != ref {
			return ProofSuperseded, nil
		}
		d.device.Proof = fleet.Proof{ValidatedRef: ref, Source: proofEnrolled, ValidatedAt: r.now}
		return ProofEstablished, nil
	})
}

// Unprove takes that an enrolment which began on the Ironic node pinned did not
// succeed. That revokes nothing: a proof of that very node stays, and so does
// whatever a device has that carries another node by now, or none. Only what is
// left of an earlier node's proof is cleared. Without a pinned node nothing is
// written.
func (s *Service) Unprove(ctx context.Context, id int64, pinned string, by Caller) (ProofResult, error) {
	pinned = store.Clean(pinned)
	return s.proof(ctx, id, pinned, by, "failed", func(_ *round, d *subject) (ProofOutcome, error) {
		now, proof := d.device.InfrastructureRef, &d.device.Proof
		switch {
		case pinned == "" || now == "":
			return ProofKept, nil
		case now != pinned:
			return ProofSuperseded, nil
		case proof.Source != proofNone && proof.ValidatedRef == pinned, *proof == fleet.Proof{Source: proofNone}:
			return ProofKept, nil
		}
		*proof = fleet.Proof{Source: proofNone}
		return ProofCleared, nil
	})
}

// WithdrawProof takes that the Ironic node ref is gone, or is about to be made anew: a
// proof of it says nothing of a node that gets its UUID later. A proof of another
// node stays.
func (s *Service) WithdrawProof(ctx context.Context, id int64, ref string, by Caller) (ProofResult, error) {
	ref = store.Clean(ref)
	return s.proof(ctx, id, ref, by, "withdrawn", func(_ *round, d *subject) (ProofOutcome, error) {
		proof := &d.device.Proof
		if ref == "" || proof.Source == proofNone || proof.ValidatedRef != ref {
			return ProofKept, nil
		}
		*proof = fleet.Proof{Source: proofNone}
		return ProofCleared, nil
	})
}

// proof writes what decide makes of the proof of a device, under its lock.
func (s *Service) proof(ctx context.Context, id int64, ref string, by Caller, result string, decide func(r *round, d *subject) (ProofOutcome, error)) (ProofResult, error) {
	var out ProofResult
	err := s.one(ctx, id, by.cause("enrolment "+result), func(tx pgx.Tx, r *round, all *subjects, d *subject) (rows Rows, err error) {
		was := d.device.Proof
		if out.Outcome, err = decide(r, d); err != nil {
			return rows, err
		}
		if d.device.Proof != was {
			if rows, err = r.settle(ctx, tx, all); err != nil {
				return rows, err
			}
		}
		out.Device = d.device
		return rows, by.audit(ctx, tx, "device.enrollment_proof", deviceTarget(id), map[string]any{
			"name": d.device.Name, "outcome": result, "infrastructure_ref": ref, "result": out.Outcome, "validated_ref_before": was.ValidatedRef,
		})
	})
	if err != nil {
		return ProofResult{}, refusedOr(err, fmt.Sprintf("write the enrolment proof of device %d", id))
	}
	return out, nil
}

// unmanaged says why no enrolment manages a device, "" if one does: such a
// device has no proof.
func unmanaged(d *fleet.Device) string {
	switch {
	case d.InventoryOnly:
		return "the device is inventory-only: nobody enrols it"
	case !d.RetiredAt.IsZero():
		return messageRetired
	case !enrolled(d.Class):
		return fmt.Sprintf("a device of the class %s is not enrolled", d.Class)
	case !d.AbsentSince.IsZero():
		return "the inventory of the site does not list the device now: enrol it again once it does"
	}
	return ""
}

// Proven gives the Ironic node of a device which an enrolment has validated, as
// it is stored at this instant: read it right before what rests on it, and touch
// no other node. ErrProofMissing is a verdict, as it is for a device that does
// not exist; any other error says that nobody could tell.
func (s *Service) Proven(ctx context.Context, id int64) (ref string, err error) {
	found, err := store.DevicesByID(ctx, s.db, []int64{id})
	if err != nil {
		return "", fmt.Errorf("read the enrolment proof of device %d: %w", id, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("there is no device %d: %w", id, ErrProofMissing)
	}
	if ref = found[0].ProvenRef(); ref == "" {
		return "", fmt.Errorf("device %d (%s) has the Ironic node %q, validated was %q: %w", id, found[0].Name, found[0].InfrastructureRef, found[0].Proof.ValidatedRef, ErrProofMissing)
	}
	return ref, nil
}
