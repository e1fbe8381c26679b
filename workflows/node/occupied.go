package node

import (
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

// Occupancy is whose a node is.
type Occupancy int

const (
	Free    Occupancy = iota // nobody's instance is bound
	Ours                     // one that we bound
	Foreign                  // somebody else's
)

// Occupied tells whose instance is on a node: ours by the lease of SLURM's
// project, or by our mark, which names it.
func Occupied(f *facts.Ironic, spec *fleet.SiteSpec) (Occupancy, error) {
	leased := spec.Lessees.Slurm != "" && f.Lessee.Value == spec.Lessees.Slurm
	switch {
	case f.InstanceBound == facts.False:
		return Free, nil
	case leased || f.OurMark == facts.True:
		return Ours, nil
	case f.OurMark == facts.Null || spec.Lessees.Slurm != "" && !f.Lessee.Known:
		return Foreign, act.Retry(codes.IronicUnavailable, "whose the instance %s is could not be read: Ironic gave no lessee, or no extra", f.InstanceUUID.Value)
	}
	return Foreign, nil
}
