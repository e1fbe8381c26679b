package ironic

import (
	"context"
	"fmt"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// faultCleaning is what Ironic sets maintenance with by itself when a clean fails.
const faultCleaning = "clean failure"

// Repair widens whose maintenance may be cleared.
type Repair struct {
	// CleanFailure: also the one that Ironic set itself after a failed clean,
	// for the workflow that repairs it.
	CleanFailure bool
}

// SetMaintenance puts a node in maintenance under our mark (muster:<job>), which
// its reason then begins with. Maintenance that is not under this mark is left
// as it is: ErrForeign.
func (c *Client) SetMaintenance(ctx context.Context, ref, mark, reason string) (*sources.Record, error) {
	const op = "set ironic maintenance"
	if err := checkMark(op, mark); err != nil {
		return nil, err
	}
	text := strings.TrimSpace(mark + " " + sources.CleanText(reason, longText-len(mark)-1))
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			switch o.facts.Maintenance {
			case facts.Null:
				return false, unread(op, "maintenance")
			case facts.False:
				return false, nil
			}
			if !carries(o.facts.MaintenanceReason.Value, mark) {
				return false, foreignMaintenance(op, o)
			}
			return true, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			return nodes.SetMaintenance(ctx, sc, ref, nodes.MaintenanceOpts{Reason: text}).ExtractErr()
		},
	})
}

// ClearMaintenance takes a node out of maintenance that is ours: under this
// mark, or of a kind that repair names. Any other is left: ErrForeign.
func (c *Client) ClearMaintenance(ctx context.Context, ref, mark string, repair Repair) (*sources.Record, error) {
	const op = "clear ironic maintenance"
	if err := checkMark(op, mark); err != nil {
		return nil, err
	}
	return c.apply(ctx, ref, change{
		op: op,
		done: func(o *observation) (bool, error) {
			switch o.facts.Maintenance {
			case facts.Null:
				return false, unread(op, "maintenance")
			case facts.False:
				return true, nil
			}
			if !carries(o.facts.MaintenanceReason.Value, mark) && !(repair.CleanFailure && ironicsOwn(o.facts)) {
				return false, foreignMaintenance(op, o)
			}
			return false, nil
		},
		send: func(ctx context.Context, sc *gophercloud.ServiceClient, _ *observation) error {
			return nodes.UnsetMaintenance(ctx, sc, ref).ExtractErr()
		},
	})
}

// ironicsOwn says that Ironic set the maintenance when a clean failed. An
// operator may hold such a node too, before or after: the fault is there all
// the same, but the reason is not the error that the failed clean left.
func ironicsOwn(f *facts.Ironic) bool {
	return f.Fault.Value == faultCleaning && faultsReason(f)
}

// faultsReason says that maintenance has the reason that Ironic gave it with a
// fault of its own, and nobody's since.
func faultsReason(f *facts.Ironic) bool {
	return f.Fault.Known && (!f.MaintenanceReason.Known || !f.LastError.Known || f.MaintenanceReason.Value == f.LastError.Value)
}

// carries reports that a reason begins with the mark as a whole word.
func carries(reason, mark string) bool {
	rest, found := strings.CutPrefix(reason, mark)
	return found && (rest == "" || rest[0] == ' ')
}

func checkMark(op, mark string) error {
	if job, ours := strings.CutPrefix(mark, "muster:"); !ours || job == "" || len(mark) > 200 || strings.ContainsAny(mark, " \t\r\n") {
		return refused(sources.KindRefused, op, "%q is no mark of ours: it must be muster:<job>", sources.CleanText(mark, 64))
	}
	return nil
}

func foreignMaintenance(op string, o *observation) error {
	reason := o.facts.MaintenanceReason.Value
	if o.facts.Fault.Known {
		reason = fmt.Sprintf("%s (fault: %s)", reason, o.facts.Fault.Value)
	}
	return &sources.Error{
		Kind: sources.KindConflict, Op: op, Err: ErrForeign,
		Message: "the node's maintenance was set by somebody else and is left as it is; its reason: " + reason,
	}
}
