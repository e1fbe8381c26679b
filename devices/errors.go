package devices

import "errors"

// Errors that callers decide on.
var (
	// ErrLeaseLost says that the sweep belongs to another replica by now:
	// nothing was written.
	ErrLeaseLost = errors.New("the lease of the sweep is lost")

	// ErrPolicyNotLoaded says that this replica has not loaded the active
	// bundle and judges nothing.
	ErrPolicyNotLoaded = errors.New("the active policy is not loaded")

	// ErrProofMissing says that no enrolment has validated the Ironic node that
	// the device has now: enrol it. It stays so by itself.
	ErrProofMissing = errors.New("the enrolment proof is missing")
)

// Code names why a write was refused, for machines; it never changes.
type Code string

// The codes of refused writes.
const (
	CodeTypeUnknown        Code = "condition_type_unknown"
	CodeWriterUnknown      Code = "writer_unknown"
	CodeWriterMismatch     Code = "writer_mismatch"
	CodeEmittedHere        Code = "condition_emitted_here"
	CodeInFuture           Code = "observed_at_in_future"
	CodeInvalid            Code = "condition_invalid"
	CodeSnapshotIncomplete Code = "snapshot_incomplete"
	CodeDeviceNotFound     Code = "device_not_found"
	CodeDeviceRetired      Code = "device_retired"
	CodeOutOfScope         Code = "device_out_of_scope"
	CodeJoinAmbiguous      Code = "join_ambiguous"
	CodeDataRefused        Code = "data_refused"
	CodeRefMissing         Code = "infrastructure_ref_missing"
	CodeParentTicket       Code = "parent_ticket_set"
)

// RefusedError is a refused write. Nothing was changed.
type RefusedError struct {
	Code    Code
	Message string // what to do about it
}

func (e *RefusedError) Error() string { return string(e.Code) + ": " + e.Message }

// Is makes errors.Is tell codes apart.
func (e *RefusedError) Is(target error) bool {
	other, ok := target.(*RefusedError)
	return ok && other.Code == e.Code && (other.Message == "" || other.Message == e.Message)
}
