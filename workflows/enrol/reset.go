package enrol

import (
	"context"
	"errors"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// resetter is the BMCs of a site, as far as unenrolment goes.
type resetter interface {
	AllowLogin(address string)
	Login(ctx context.Context, target redfish.Target) error
	FactoryLogin(ctx context.Context, target redfish.Target) error
	FactoryReset(ctx context.Context, target redfish.Target) error
}

// resetBMC sets the BMC to what it came with. Accepted is done. It is asked for once:
// if the answer is lost, whether it was done is unknown.
func (r *removing) resetBMC(ctx context.Context, in removal) (unknown bool, err error) {
	d, err := r.site.Device(ctx, in.Device)
	if err != nil {
		return false, err
	}
	client, release, err := use[resetter](ctx, r.site, "bmc", codes.BMCUnreachable)
	if err != nil {
		return false, err
	}
	defer release()
	err = client.FactoryReset(ctx, targetOf(&d))
	switch kind := sources.KindOf(err); {
	case err == nil:
		return false, nil
	case errors.Is(err, redfish.ErrUnknownOutcome):
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, redfish.ErrNotAllowed) || kind == sources.KindRefused || kind == sources.KindConflict:
		return false, act.Final(codes.BMCFactoryResetRefused, "%v", err)
	case kind == sources.KindForbidden:
		return false, resetBefore(ctx, client, targetOf(&d), err)
	}
	return false, bmcFailed(ctx, err)
}

// resetBefore looks for why a BMC forbade its reset. It has been reset by an earlier
// run if it takes the credential that it came with in place of the device's.
func resetBefore(ctx context.Context, client resetter, target redfish.Target, forbidden error) error {
	err := client.Login(ctx, target)
	switch {
	case err == nil: // it lets in whoever may not reset it
		return act.Final(codes.BMCFactoryResetRefused, "%v", forbidden)
	case sources.KindOf(err) == sources.KindForbidden && client.FactoryLogin(ctx, target) == nil:
		return nil
	}
	return bmcFailed(ctx, err)
}

// forget removes the device's own credential for its BMC.
func (r *removing) forget(ctx context.Context, in removal) error {
	row, err := r.site.Row(ctx)
	if err != nil || !storing(&row.Spec) {
		return err
	}
	client, release, err := use[keeper](ctx, r.site, "credentials", codes.CredentialStoreUnavailable)
	if err != nil {
		return err
	}
	defer release()
	if err := client.Delete(ctx, in.Name); err != nil {
		return failed(ctx, err, codes.CredentialStoreUnavailable, codes.CredentialStoreUnavailable)
	}
	return nil
}
