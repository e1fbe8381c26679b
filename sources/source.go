package sources

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/facts"
)

// Record is what one answer of a source says of one thing. At most one of the
// families is set, the one of the source.
type Record struct {
	Ref    string    // the source's own identity: Ironic uuid, SLURM node name, NetBox id, BMC address
	Name   string    // for joins; "" where the source gave none
	Serial string    // for joins; "" where unknown or a placeholder
	At     time.Time // the instant before the request that brought it, by the caller's clock

	Ironic    *facts.Ironic
	Placement *facts.Placement
	Slurm     *facts.Slurm
	Netbox    *facts.Netbox
	BMC       *facts.BMC

	// Unanswered says why a thing that was asked on its own gave no answer at all
	// (bmc): its facts keep their values, bmc.failures is raised by one, and its
	// types are unread. No family is set then.
	Unanswered string

	// Undecodable says why a record that has a Ref could not be read; no family
	// is set then. The thing is there: it is not missing.
	Undecodable string
}

// End is what is known when a listing ends without error.
type End struct {
	At       time.Time // the instant before the first request
	Complete bool      // read to its end: only then may absence be concluded
	Records  int       // distinct records given
	Dropped  int       // elements without a readable identity: while there are any, nothing is missing
	Lost     []string  // features the negotiated version does not serve, such as "lessee"

	// Elsewhere counts what the source has of sites that are not ours: it was not
	// given (netbox).
	Elsewhere int

	// Refused are the refs of what has refused its credential so often that it is
	// not tried there any more, until it changes or a person allows it (bmc).
	Refused []string
}

// Source is one system of one site, read.
type Source interface {
	// List gives every record in pages, in the order the source has them; yield
	// is called from one goroutine and an error of it ends the listing.
	List(ctx context.Context, yield func([]Record) error) (End, error)
	// Get reads one thing by its own identity. Absent is nil with ErrGone, only
	// where the source itself says that it has no such thing.
	Get(ctx context.Context, ref string) (*Record, error)
	// Close releases connections; no call is in flight any more.
	Close()
}

// Clock gives the present instant, corrected to the database's clock.
type Clock func() time.Time

// ErrGone says that the source has no such thing.
var ErrGone = errors.New("the source has no such record")

// Reasons that a source's failure is recorded with: they are shown over the
// last values (device-model: freshness).
const (
	ReasonStale                = "Stale"
	ReasonSchedulerUnreachable = "SchedulerUnreachable"
	ReasonDecodeFailed         = "DecodeFailed"
	ReasonFieldNotServed       = "FieldNotServed"
	ReasonMissingUnconfirmed   = "MissingUnconfirmed"
	ReasonJoinAmbiguous        = "JoinAmbiguous"
)

// Kind classifies an error by its meaning, never by a status code alone.
type Kind string

// What a call can fail with.
const (
	KindTransient Kind = "transient" // try again: unreachable, 5xx, 429, time-out, truncated or foreign body
	KindLocked    Kind = "locked"    // the thing is busy: try again within a budget
	KindConflict  Kind = "conflict"  // the thing is in a state that forbids it: do not try again
	KindMissing   Kind = "missing"   // there is no such thing
	KindForbidden Kind = "forbidden" // credentials or permission
	KindRefused   Kind = "refused"   // the request itself is wrong
	KindOpen      Kind = "open"      // our own circuit breaker is open
)

// Error is a classified failure of a call to a source system.
type Error struct {
	Kind       Kind
	Op         string        // what was being done, such as "list ironic nodes"
	Message    string        // what the system said, cleaned and bounded
	RetryAfter time.Duration // what the system asked for, 0 if nothing
	Err        error
}

func (e *Error) Error() string {
	s := e.Op + ": " + e.Message
	if e.Message == "" && e.Err != nil {
		s = e.Op + ": " + e.Err.Error()
	}
	return s + " (" + string(e.Kind) + ")"
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf gives the kind of a classified error, KindTransient for any other.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindTransient
}
