package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
)

// Getter reads a node of Ironic.
type Getter interface {
	Get(ctx context.Context, ref string) (*sources.Record, error)
}

// Failed gives an error of Ironic its code.
func Failed(ctx context.Context, err error) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case act.Code(err) != "": // it has one
		return err
	case errors.Is(err, ironic.ErrForeign):
		return act.Final(codes.MaintenanceForeign, "%v", err)
	case errors.Is(err, sources.ErrGone) || kind == sources.KindMissing:
		return act.Final(codes.IronicStateUnexpected, "Ironic has no such node: %v", err)
	case kind == sources.KindConflict:
		return act.Final(codes.IronicStateUnexpected, "%v", err)
	case kind == sources.KindForbidden || kind == sources.KindRefused:
		return act.Final(codes.IronicUnavailable, "%v", err)
	}
	return act.Retry(codes.IronicUnavailable, "%v", err)
}

// Read reads a node. What decides whether disks may be overwritten must be known.
func Read(ctx context.Context, c Getter, uuid string) (*facts.Ironic, error) {
	r, err := c.Get(ctx, uuid)
	if err != nil {
		return nil, Failed(ctx, err)
	}
	f := r.Ironic
	if f == nil || f.ProvisionState.Null() || f.Maintenance == facts.Null || f.InstanceBound == facts.Null || !f.Reservation.Known {
		return nil, act.Retry(codes.IronicUnavailable, "what Ironic says of node %s could not be read whole", uuid)
	}
	return f, nil
}

// Unexpected refuses to go on from the state that a node is in.
func Unexpected(f *facts.Ironic, doing string) error {
	return act.Final(codes.IronicStateUnexpected, "%s: the node is in %q%s", doing, f.ProvisionState, Why(f))
}

// Why quotes Ironic's last error of a node, behind a semicolon; "" if there is none.
func Why(f *facts.Ironic) string {
	if !f.LastError.Known || f.LastError.Value == "" {
		return ""
	}
	return "; Ironic's last error: " + f.LastError.Value
}

// MarkOf gives the mark of ours under which the node is in maintenance. Work that
// left it has ended: this job holds the device alone.
func MarkOf(f *facts.Ironic, job int64) string {
	mark, _, _ := strings.Cut(f.MaintenanceReason.Value, " ")
	if rest, ok := strings.CutPrefix(mark, "muster:"); ok && rest != "" {
		return mark
	}
	return fmt.Sprintf("muster:%d", job)
}
