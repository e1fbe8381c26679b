package facts

import (
	"slices"
	"time"
)

// Context is what the derived facts are computed against: the site's projects
// and trait, the device's proof, the instant of the evaluation.
type Context struct {
	EnrolLessee       string // project ids of the site; "" where it has none
	SlurmLessee       string
	MaintenanceLessee string
	CustomerTrait     string // the trait that says customer-ready, "" at a legacy site
	ValidatedRef      string // enrollment_validated_ref of the device
	Now               time.Time
	OverdueAfter      map[ProvisionState]time.Duration // how long a passing state may last
}

// Complete fills every derived fact from the others and the context. It
// returns the instant at which one of them next changes by time alone, zero if
// none does: the device is looked at again then.
func Complete(f *Facts, c *Context) (next time.Time) {
	f.Enrollment.Proof = proof(f, c)
	f.Ironic.LesseeRole = lesseeRole(f.Ironic.Lessee, c)
	f.Ironic.CustomerTrait = customerTrait(f.Ironic.Traits, c)
	f.Ironic.Settled = settled(&f.Ironic)
	f.Ironic.Overdue, next = overdue(&f.Ironic, c)
	f.Slurm.Drained = drained(&f.Slurm)
	return next
}

func proof(f *Facts, c *Context) ProofState {
	switch ref := f.Device.InfrastructureRef.Value; {
	case c.ValidatedRef == "" || ref == "": // a proof of a node that is gone proves nothing
		return ProofStateMissing
	case c.ValidatedRef == ref:
		return ProofStateValid
	}
	return ProofStateMismatched
}

func lesseeRole(lessee Text, c *Context) IronicLesseeRole {
	switch {
	case !lessee.Known:
		return 0
	case lessee.Value == "":
		return IronicLesseeRoleNone
	case lessee.Value == c.SlurmLessee:
		return IronicLesseeRoleSlurm
	case lessee.Value == c.EnrolLessee:
		return IronicLesseeRoleEnrol
	case lessee.Value == c.MaintenanceLessee:
		return IronicLesseeRoleMaintenance
	}
	return IronicLesseeRoleCustomer
}

func customerTrait(traits []string, c *Context) Bool {
	if traits == nil || c.CustomerTrait == "" {
		return Null
	}
	return BoolOf(slices.Contains(traits, c.CustomerTrait))
}

// Stable reports whether a node leaves the state only by an explicit verb.
func (s ProvisionState) Stable() bool {
	switch s {
	case ProvisionStateEnroll, ProvisionStateManageable, ProvisionStateAvailable, ProvisionStateActive,
		ProvisionStateDeployFailed, ProvisionStateCleanFailed, ProvisionStateError, ProvisionStateInspectFailed,
		ProvisionStateAdoptFailed, ProvisionStateRescue, ProvisionStateRescueFailed, ProvisionStateUnrescueFailed,
		ProvisionStateServiceFailed:
		return true
	}
	return false
}

// settled is true in a stable state that nobody holds the lock of: before, the
// next write may be refused.
func settled(n *Ironic) Bool {
	if n.ProvisionState.Null() || !n.Reservation.Known {
		return Null
	}
	return BoolOf(n.ProvisionState.Stable() && n.Reservation.Value == "")
}

func overdue(n *Ironic, c *Context) (Bool, time.Time) {
	limit := c.OverdueAfter[n.ProvisionState]
	switch {
	case n.ProvisionState.Null():
		return Null, time.Time{}
	case n.ProvisionState.Stable() || limit == 0:
		return False, time.Time{}
	case n.ProvisionUpdatedAt.IsZero():
		return Null, time.Time{}
	}
	if at := n.ProvisionUpdatedAt.Add(limit); c.Now.Before(at) {
		return False, at
	}
	return True, time.Time{}
}

// drained is true once SLURM has taken the last work off a node that drains:
// accepting a drain is not the end of it.
func drained(n *Slurm) Bool {
	if n.Listed != True || n.States == 0 {
		return Null
	}
	working := n.States&(SlurmAllocated|SlurmMixed|SlurmCompleting) != 0
	return BoolOf(n.States.Has(SlurmDrain) && !working)
}
