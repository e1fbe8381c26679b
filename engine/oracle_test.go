package engine

import "github.com/musterhq/muster/facts"

// The ten conditions that the operational ladder of the device model reads, at
// bits of our choice: apart, as a catalogue in name order puts them.
const (
	bitProvisionFailed     = 1 << 2
	bitMaintenance         = 1 << 3
	bitEnrolled            = 1 << 5
	bitProvisionAvailable  = 1 << 8
	bitInstanceAllocated   = 1 << 9
	bitValidationAllocated = 1 << 12
	bitMaintenancePool     = 1 << 13
	bitCustomerReady       = 1 << 17
	bitSlurmMember         = 1 << 20
	bitSlurmSchedulable    = 1 << 23

	openstackBits = bitProvisionFailed | bitMaintenance | bitEnrolled | bitProvisionAvailable | bitInstanceAllocated | bitValidationAllocated | bitMaintenancePool | bitCustomerReady
	slurmBits     = bitSlurmMember | bitSlurmSchedulable
	allBits       = openstackBits | slurmBits
)

var bitNames = map[uint64]string{
	bitProvisionFailed: "ProvisionFailed", bitMaintenance: "Maintenance", bitEnrolled: "Enrolled",
	bitProvisionAvailable: "ProvisionAvailable", bitInstanceAllocated: "InstanceAllocated",
	bitValidationAllocated: "ValidationAllocated", bitMaintenancePool: "MaintenancePool",
	bitCustomerReady: "CustomerReady", bitSlurmMember: "SlurmMember", bitSlurmSchedulable: "SlurmSchedulable",
}

// The rungs of the device model, numbered as its table has them.
const (
	rungProvisionFailed = iota
	rungMaintenance
	rungNoInfrastructure
	rungNotEnrolled
	rungNotInSlurm
	rungUnschedulable
	rungValidation
	rungInUse
	rungAvailable
	rungOccupied
	rungMaintenancePool
	rungOtherwise
)

var rungStatus = [...]facts.OperationalStatus{
	rungProvisionFailed:  facts.OperationalStatusFailed,
	rungMaintenance:      facts.OperationalStatusQuarantine,
	rungNoInfrastructure: facts.OperationalStatusUnknown,
	rungNotEnrolled:      facts.OperationalStatusQuarantine,
	rungNotInSlurm:       facts.OperationalStatusQuarantine,
	rungUnschedulable:    facts.OperationalStatusQuarantine,
	rungValidation:       facts.OperationalStatusValidation,
	rungInUse:            facts.OperationalStatusInUse,
	rungAvailable:        facts.OperationalStatusAvailable,
	rungOccupied:         facts.OperationalStatusInUse,
	rungMaintenancePool:  facts.OperationalStatusQuarantine,
	rungOtherwise:        facts.OperationalStatusQuarantine,
}

// rungTests are the conditions that each rung names, and rungTolerates those
// that it stands on although they are Unknown.
var (
	rungTests = [...]uint64{
		rungProvisionFailed:  bitProvisionFailed,
		rungMaintenance:      bitMaintenance,
		rungNoInfrastructure: bitEnrolled,
		rungNotEnrolled:      bitEnrolled,
		rungNotInSlurm:       bitValidationAllocated | bitCustomerReady | bitSlurmMember,
		rungUnschedulable:    bitValidationAllocated | bitCustomerReady | bitSlurmSchedulable,
		rungValidation:       bitProvisionFailed | bitMaintenance | bitEnrolled | bitValidationAllocated | bitCustomerReady,
		rungInUse:            bitCustomerReady | bitInstanceAllocated,
		rungAvailable:        bitProvisionFailed | bitMaintenance | bitEnrolled | bitCustomerReady | bitInstanceAllocated | bitMaintenancePool | bitProvisionAvailable,
		rungOccupied:         bitCustomerReady | bitInstanceAllocated | bitMaintenancePool | bitProvisionAvailable,
		rungMaintenancePool:  bitMaintenancePool,
		rungOtherwise:        0,
	}
	rungTolerates = [...]uint64{rungValidation: slurmBits, rungOtherwise: 0}
)

// handWritten is the operational ladder as one would write it in Go: the
// reference of speed, and the oracle of the answers.
//
//go:noinline
func handWritten(t, u uint64) int16 {
	f := ^(t | u)
	if t&bitProvisionFailed != 0 {
		return rungProvisionFailed
	}
	if t&bitMaintenance != 0 {
		return rungMaintenance
	}
	if u&bitEnrolled != 0 {
		return rungNoInfrastructure
	}
	if f&bitEnrolled != 0 {
		return rungNotEnrolled
	}
	if t&bitValidationAllocated != 0 && f&bitCustomerReady != 0 {
		if f&bitSlurmMember != 0 {
			return rungNotInSlurm
		}
		if f&bitSlurmSchedulable != 0 {
			return rungUnschedulable
		}
		if f&bitProvisionFailed != 0 && f&bitMaintenance != 0 && t&bitEnrolled != 0 {
			return rungValidation
		}
	}
	if t&bitCustomerReady != 0 {
		if t&bitInstanceAllocated != 0 {
			return rungInUse
		}
		if f&bitInstanceAllocated != 0 && f&bitMaintenancePool != 0 {
			if f&bitProvisionFailed != 0 && f&bitMaintenance != 0 && t&bitEnrolled != 0 && t&bitProvisionAvailable != 0 {
				return rungAvailable
			}
			if f&bitProvisionAvailable != 0 {
				return rungOccupied
			}
		}
	}
	if t&bitMaintenancePool != 0 {
		return rungMaintenancePool
	}
	return rungOtherwise
}

// combinations calls do with every value of the ten conditions.
func combinations(do func(isTrue, unknown uint64)) {
	order := bitsOf(allBits)
	var walk func(i int, t, u uint64)
	walk = func(i int, t, u uint64) {
		if i == len(order) {
			do(t, u)
			return
		}
		walk(i+1, t, u)
		walk(i+1, t|order[i], u)
		walk(i+1, t, u|order[i])
	}
	walk(0, 0, 0)
}

func bitsOf(mask uint64) []uint64 {
	var all []uint64
	for ; mask != 0; mask &= mask - 1 {
		all = append(all, mask&-mask)
	}
	return all
}

// reachTable answers which rungs of handWritten can match while some
// conditions have any value: one entry for each of 4^10 combinations of
// False, True, Unknown and "any". It shares nothing with the diagram.
type reachTable struct {
	order []uint64
	rungs []uint16
}

func newReachTable() *reachTable {
	r := &reachTable{order: bitsOf(allBits), rungs: make([]uint16, 1<<20)}
	for code := range r.rungs {
		var t, u uint64
		anyAt := -1
		for i, bit := range r.order {
			switch code >> (2 * i) & 3 {
			case 1:
				t |= bit
			case 2:
				u |= bit
			case 3:
				anyAt = i
			}
		}
		if anyAt < 0 {
			r.rungs[code] = 1 << handWritten(t, u)
			continue
		}
		// The three codes with a value in place of 3 are lower, so known.
		one := 1 << (2 * anyAt)
		r.rungs[code] = r.rungs[code-one] | r.rungs[code-2*one] | r.rungs[code-3*one]
	}
	return r
}

func (r *reachTable) reach(t, u, free uint64) uint16 {
	code := 0
	for i, bit := range r.order {
		switch {
		case free&bit != 0:
			code |= 3 << (2 * i)
		case u&bit != 0:
			code |= 2 << (2 * i)
		case t&bit != 0:
			code |= 1 << (2 * i)
		}
	}
	return r.rungs[code]
}

// statuses gives the statuses of a set of rungs as bits, without the rungs
// that test a type in past.
func statusesOf(rungs uint16, past uint64) (set uint16) {
	for i, status := range rungStatus {
		if rungs>>i&1 == 1 && rungTests[i]&past == 0 {
			set |= 1 << status
		}
	}
	return set
}
