package component

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// failed gives an error of a BMC its code; refused is that of what it does not
// take.
func failed(ctx context.Context, err error, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err()
	case act.Code(err) != "":
		return err
	case errors.Is(err, redfish.ErrNotAllowed) || errors.Is(err, redfish.ErrNoUpdateMethod):
		return act.Final(refused, "%v", err)
	case errors.Is(err, redfish.ErrNoEffect):
		return act.Retry(codes.PowerNoEffect, "%v", err)
	case errors.Is(err, redfish.ErrBlocked): // once more might lock the account
		return act.Final(codes.BMCCredentialRefused, "%v", err)
	case kind == sources.KindForbidden: // once, as a BMC that starts does
		return act.Retry(codes.BMCCredentialRefused, "%v", err)
	case errors.Is(err, redfish.ErrUnknownOutcome):
		return act.Retry(codes.BMCUnreachable, "%v", err)
	case kind == sources.KindRefused || kind == sources.KindConflict:
		return act.Retry(refused, "%v", err) // as a BMC that starts may refuse what it takes later
	}
	return act.Retry(codes.BMCUnreachable, "%v", err)
}

// inTime leaves a share of an activity's time for its answer to be given.
func inTime(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc, time.Duration) {
	until, bounded := ctx.Deadline()
	left := time.Until(until)
	if !bounded {
		left = most
	}
	within := min(most, left*8/10)
	inner, cancel := context.WithTimeout(ctx, left*95/100)
	return inner, cancel, within
}
