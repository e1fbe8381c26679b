package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// handOffLimit is how long the write of a hand-off may take, while the device's
// row is held: others who write the device wait for it, 10 seconds at most.
const handOffLimit = 8 * time.Second

// handOffs is how many hand-offs of one process may hold a connection to the
// database at once while they write elsewhere: the others are for everybody else.
const handOffs = 4

// HandOff is a device that a job is about to give to a customer.
type HandOff struct {
	Device   int64
	Job      int64
	Proof    bool // the Ironic node must be the one that an enrolment has validated
	Latches  bool // the NVLink and the back-end latch must be False or absent
	Delegate bool // the status becomes delegated in the same transaction, the job being the cause
}

// HandOffCode names what keeps a device from being handed off, for machines.
type HandOffCode string

// What keeps a device.
const (
	HandOffProofMissing HandOffCode = "proof_missing"
	HandOffNvLinkLatch  HandOffCode = "nvlink_latch"
	HandOffBackendLatch HandOffCode = "backend_latch"
	HandOffTriage       HandOffCode = "triage"
	HandOffImpairment   HandOffCode = "impairment"
	HandOffCustody      HandOffCode = "custody"   // a partner holds it, or custody changed meanwhile
	HandOffInventory    HandOffCode = "inventory" // not active in the site's inventory, retired, or not there
)

// HandOffRefused says what keeps a device. Nothing was changed, and asking again
// changes nothing by itself. What an earlier call wrote whose end is not known is
// the caller's to take back.
type HandOffRefused struct {
	Code    HandOffCode
	Message string // what to do about it
}

func (e *HandOffRefused) Error() string { return string(e.Code) + ": " + e.Message }

// HandOff checks what must be so at the moment when a customer gets a machine,
// and calls write while nobody can change any of it: the device's row is held
// until write has returned, which must be within 8 seconds (its context ends
// then). d is the device as it was checked; with Proof, d.InfrastructureRef is
// the node that is proven, and write touches no other. write may be called again
// after it has succeeded, and must not write the device through this service: it
// would wait for itself. With Delegate it may be nil, and a device that this job
// has delegated already is left as it is.
//
// The inventory status is checked at a site whose inventory is not NetBox; where
// it is, read NetBox before. A *HandOffRefused says what keeps the device; an
// error of write comes back as it is; any other says that nobody could tell.
func (s *Service) HandOff(ctx context.Context, h HandOff, write func(ctx context.Context, d *fleet.Device) error) error {
	if h.Device == 0 && h.Proof {
		return &HandOffRefused{HandOffProofMissing, "no device is named: nobody's proof can be read"}
	}
	select {
	case s.handing <- struct{}{}:
		defer func() { <-s.handing }()
	case <-ctx.Done():
		return fmt.Errorf("hand off device %d: wait for other hand-offs: %w", h.Device, ctx.Err())
	}
	var failed error // of write
	pass := func(tx pgx.Tx, d fleet.Device, site *fleet.SiteSpec) error {
		if err := h.check(ctx, tx, &d, site); err != nil {
			return err
		}
		if write != nil {
			limited, cancel := context.WithTimeout(ctx, handOffLimit)
			defer cancel()
			if failed = write(limited, &d); failed != nil {
				return failed
			}
		}
		return JobCaller(h.Job).audit(ctx, tx, "device.hand_off", deviceTarget(h.Device), map[string]any{
			"site": site.Name, "name": d.Name, "infrastructure_ref": d.InfrastructureRef, "proof": h.Proof, "delegated": h.Delegate,
		})
	}
	hand := s.hand
	if h.Delegate {
		hand = s.delegate
	}
	err := hand(ctx, &h, pass)
	var refused *HandOffRefused
	var known *RefusedError
	switch {
	case err == nil, failed != nil && errors.Is(err, failed), errors.As(err, &refused):
		return err
	case errors.As(err, &known):
		return &HandOffRefused{HandOffInventory, known.Message}
	}
	return fmt.Errorf("hand off device %d: %w", h.Device, err)
}

// passing checks a device whose row is held and gives it away.
type passing func(tx pgx.Tx, d fleet.Device, site *fleet.SiteSpec) error

// hand holds the device's row and nothing else: neither policies nor other
// devices wait for what is written outside.
func (s *Service) hand(ctx context.Context, h *HandOff, pass passing) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error {
		locked, err := store.LockDevices(ctx, tx, []int64{h.Device})
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			return &RefusedError{CodeDeviceNotFound, messageMissing}
		}
		site, err := store.SiteByID(ctx, tx, locked[0].SiteID)
		if err != nil {
			return err
		}
		return pass(tx, locked[0], &site.Spec)
	})
}

// delegate hands off by the status itself.
func (s *Service) delegate(ctx context.Context, h *HandOff, pass passing) error {
	by := JobCaller(h.Job)
	return s.one(ctx, h.Device, by.cause("handed to the customer"), func(tx pgx.Tx, r *round, all *subjects, d *subject) (Rows, error) {
		if d.device.Operational == facts.OperationalStatusDelegated {
			if _, stands, err := store.StatusByJob(ctx, tx, h.Device, h.Job, d.device.Operational.String()); err != nil || stands {
				return Rows{}, err
			}
		}
		if err := pass(tx, d.device, &r.site.Spec); err != nil {
			return Rows{}, err
		}
		return r.order(ctx, tx, all, d, facts.OperationalStatusDelegated)
	})
}

// order writes an operational status that the caller gives, with all that
// follows from it. No ladder gave it: one does at the next look, unless the
// policy freezes that status.
func (r *round) order(ctx context.Context, tx pgx.Tx, all *subjects, d *subject, status facts.OperationalStatus) (Rows, error) {
	d.device.Operational, d.device.Rung, r.ordered = status, "", true
	return r.settle(ctx, tx, all)
}

// check says what keeps a device whose row is held, nil for nothing.
func (h *HandOff) check(ctx context.Context, tx pgx.Tx, d *fleet.Device, site *fleet.SiteSpec) error {
	switch {
	case !d.RetiredAt.IsZero():
		return &HandOffRefused{HandOffInventory, messageRetired}
	case d.InventoryOnly:
		return &HandOffRefused{HandOffInventory, "the device is inventory-only: nobody hands it to a customer"}
	case site.InventorySource() != "netbox" && d.Inventory != facts.InventoryStatusActive:
		return &HandOffRefused{HandOffInventory, fmt.Sprintf("its inventory status is %s, not active", d.Inventory)}
	case custodyFrozen(d.Operational):
		return &HandOffRefused{HandOffCustody, fmt.Sprintf("the device is %s: a partner holds custody of it", d.Operational)}
	case d.ImpairmentHold():
		return &HandOffRefused{HandOffImpairment, "an impairment holds the device: clear it, then release again"}
	case d.InTriage:
		return &HandOffRefused{HandOffTriage, "somebody put the device in triage: end that, then release again"}
	case h.Proof && d.ProvenRef() == "":
		return &HandOffRefused{HandOffProofMissing, fmt.Sprintf("the device has the Ironic node %q, validated was %q: enrol it first", d.InfrastructureRef, d.Proof.ValidatedRef)}
	case !h.Latches:
		return nil
	}
	return latched(ctx, tx, d.ID)
}

// latched says which isolation latch keeps a device whose row is held.
func latched(ctx context.Context, tx pgx.Tx, id int64) error {
	rows, err := store.ConditionsOf(ctx, tx, []int64{id})
	if err != nil {
		return err
	}
	for _, c := range rows {
		if c.Status == fleet.False {
			continue
		}
		switch c.Type {
		case LatchNvLink:
			return &HandOffRefused{HandOffNvLinkLatch, fmt.Sprintf("%s is %s (%s): return the GPUs from the repair partition first", c.Type, c.Status, c.Reason)}
		case LatchBackend:
			return &HandOffRefused{HandOffBackendLatch, fmt.Sprintf("%s is %s (%s): return the ports from the maintenance VRF first", c.Type, c.Status, c.Reason)}
		}
	}
	return nil
}

// custodyFrozen tells the statuses that the custody of a partner gives.
func custodyFrozen(s facts.OperationalStatus) bool {
	switch s {
	case facts.OperationalStatusDelegated, facts.OperationalStatusPendingHandover, facts.OperationalStatusDrained:
		return true
	}
	return false
}

// Withdraw takes a device back from a customer to whom it was delegated: one
// transaction writes quarantine and so ends the freeze, the job being the cause;
// the ladder follows at the next look. Done already by this job, it changes
// nothing. *HandOffRefused with HandOffCustody: custody is another by now.
func (s *Service) Withdraw(ctx context.Context, id, job int64) error {
	by := JobCaller(job)
	err := s.one(ctx, id, by.cause("taken back from the customer"), func(tx pgx.Tx, r *round, all *subjects, d *subject) (Rows, error) {
		was := d.device.Operational
		done, _, err := store.StatusByJob(ctx, tx, id, job, facts.OperationalStatusQuarantine.String())
		switch {
		case err != nil:
			return Rows{}, err
		case done && !custodyFrozen(was):
			return Rows{}, nil
		case done || was != facts.OperationalStatusDelegated && was != facts.OperationalStatusPendingHandover:
			return Rows{}, &HandOffRefused{HandOffCustody, fmt.Sprintf("the device is %s: its custody changed, take it back by a new job if it still has to be", was)}
		}
		rows, err := r.order(ctx, tx, all, d, facts.OperationalStatusQuarantine)
		if err != nil {
			return rows, err
		}
		return rows, by.audit(ctx, tx, "device.withdraw", deviceTarget(id), map[string]any{
			"site": r.site.Spec.Name, "name": d.device.Name, "status_before": was,
		})
	})
	var refused *HandOffRefused
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return refusedOr(err, fmt.Sprintf("take back device %d", id))
}
