package devices

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// The latches: durable conditions that keep what was last verified of a device's
// ports and GPUs. Nothing observes them again.
const (
	LatchFrontend = "FrontendPortsInCustomerVrf"
	LatchNvLink   = "NvLinkGpusInRepairPartition"
	LatchBackend  = "BackendPortsInMaintenanceVrf"
)

// The reasons of a latch that a person records.
const (
	ReasonManualIsolation = "ManualIsolation"
	ReasonManualReturn    = "ManualReturn"
)

// latchWriter is the writer of a latch that a person records. No policy names it.
const latchWriter = "operator"

// isolatedAs says what each latch is after an isolation; a return is the other.
var isolatedAs = map[string]fleet.Tri{LatchFrontend: fleet.False, LatchNvLink: fleet.True, LatchBackend: fleet.True}

// LatchPost is what a person has done to a device's ports or GPUs by hand.
type LatchPost struct {
	DeviceID int64
	Type     string
	Status   fleet.Tri // True or False
	Reason   string    // ReasonManualIsolation or ReasonManualReturn
	Note     string    // what was done, 1 to 1024 characters; becomes the message
	By       Caller
}

// Latch records a person's word on a latch and gives the row that then stands.
// It stands over whatever was there, and what is observed later over it. Status
// and reason must say the same of that latch; refusals are RefusedErrors.
func (s *Service) Latch(ctx context.Context, p LatchPost) (row fleet.Condition, err error) {
	p.Note = strings.TrimSpace(store.Clean(p.Note))
	if err := p.wellFormed(); err != nil {
		return row, err
	}
	cause := fleet.Cause{Type: "condition", Writer: latchWriter, Actor: p.By.Name}
	err = s.one(ctx, p.DeviceID, cause, func(tx pgx.Tx, r *round, all *subjects, d *subject) (rows Rows, err error) {
		t, ok := r.bundle.Type(p.Type)
		if !ok || !t.Durable {
			return rows, &RefusedError{CodeTypeUnknown, fmt.Sprintf("the active policy has no durable condition type %q", p.Type)}
		}
		was, at := d.conditions[p.Type], r.now
		if was.ObservedAt.After(at) { // by a poster's clock that is ahead
			at = was.ObservedAt
		}
		r.assert(d, t, &ConditionPost{Type: p.Type, Status: p.Status, Reason: p.Reason, Message: p.Note, Writer: latchWriter, ObservedAt: at})
		if rows, err = r.settle(ctx, tx, all); err != nil {
			return rows, err
		}
		row = d.conditions[p.Type]
		return rows, p.By.audit(ctx, tx, "device.latch", fmt.Sprintf("%s condition %s", deviceTarget(p.DeviceID), p.Type), map[string]any{
			"name": d.device.Name, "status": p.Status, "reason": p.Reason, "note": p.Note, "status_before": was.Status, "reason_before": was.Reason,
		})
	})
	if err != nil {
		return fleet.Condition{}, refusedOr(err, fmt.Sprintf("record %s of device %d", p.Type, p.DeviceID))
	}
	return row, nil
}

func (p *LatchPost) wellFormed() error {
	isolated, latch := isolatedAs[p.Type]
	says := isolated
	if p.Reason == ReasonManualReturn {
		says = opposite(isolated)
	}
	switch {
	case !latch:
		return &RefusedError{CodeTypeUnknown, fmt.Sprintf("%q is no latch: those are %s, %s and %s", p.Type, LatchFrontend, LatchNvLink, LatchBackend)}
	case p.Status != fleet.True && p.Status != fleet.False:
		return &RefusedError{CodeInvalid, fmt.Sprintf("status %q is neither True nor False", p.Status)}
	case p.Reason != ReasonManualIsolation && p.Reason != ReasonManualReturn:
		return &RefusedError{CodeInvalid, fmt.Sprintf("reason %q is neither %s nor %s", p.Reason, ReasonManualIsolation, ReasonManualReturn)}
	case p.Status != says:
		return &RefusedError{CodeInvalid, fmt.Sprintf("after %s, %s is %s, not %s: look again which of the two was done", p.Reason, p.Type, says, p.Status)}
	case p.Note == "":
		return &RefusedError{CodeInvalid, "a note says what was done by hand"}
	case utf8.RuneCountInString(p.Note) > maxMessage:
		return &RefusedError{CodeInvalid, fmt.Sprintf("the note is longer than %d characters", maxMessage)}
	}
	return nil
}

func opposite(t fleet.Tri) fleet.Tri {
	if t == fleet.True {
		return fleet.False
	}
	return fleet.True
}
