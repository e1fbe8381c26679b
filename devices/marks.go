package devices

import (
	"context"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// foreignMarks tells which devices of a site somebody else holds at a source: by
// a maintenance flag of Ironic or a drain of SLURM that muster did not set. They
// are reported, and never taken away. ok is false for a source that has none.
func (s *Service) foreignMarks(ctx context.Context, q store.Querier, siteID int64, source string) (findings []fleet.Finding, ok bool, err error) {
	var candidates []store.Marked
	switch source {
	case "ironic":
		b := s.policies.Current()
		if b == nil {
			return nil, false, nil
		}
		candidates, err = store.InMaintenance(ctx, q, siteID, s.modelOf(b).maintenance)
	case "slurm":
		candidates, err = store.Drained(ctx, q, siteID)
	default:
		return nil, false, nil
	}
	for i := range candidates {
		c := &candidates[i]
		var f facts.Facts
		decode(&f, source, c.Body)
		if detail := foreignMark(&f, source); detail != nil {
			detail["name"] = c.Name
			findings = append(findings, fleet.Finding{Kind: fleet.FindingForeignMark, Ref: c.Ref, DeviceID: c.Device, Detail: detail})
		}
	}
	return findings, err == nil, err
}

// foreignMark says what holds a thing that muster did not set, nil for nothing.
// What Ironic sets itself, with a fault, is nobody's mark.
func foreignMark(f *facts.Facts, source string) map[string]any {
	switch n, s := &f.Ironic, &f.Slurm; {
	case source == "ironic" && n.Maintenance == facts.True && n.Fault.Value == "" && fleet.MarkIn(n.MaintenanceReason.Value) == "":
		return map[string]any{"mark": "maintenance", "reason": n.MaintenanceReason.Value}
	case source == "slurm" && s.States.Has(facts.SlurmDrain) && s.DrainMark == "":
		return map[string]any{"mark": "drain", "reason": s.Reason.Value, "by": s.ReasonSetBy}
	}
	return nil
}
