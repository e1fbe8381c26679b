package enrol

import (
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/credentials"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// bmcs are the BMCs of a site, as far as enrolment goes.
type bmcs interface {
	AllowLogin(address string)
	Account(ctx context.Context, target redfish.Target) (redfish.Account, error)
	Login(ctx context.Context, target redfish.Target) error
	SetPassword(ctx context.Context, target redfish.Target, with redfish.Account, user, password string) error
}

// keeper keeps devices' credentials.
type keeper interface {
	Get(ctx context.Context, device string) (credentials.Credential, error)
	Ensure(ctx context.Context, device string) (credentials.Credential, error)
	Delete(ctx context.Context, device string) error
}

// storing reports whether the site gives each device a credential of its own.
func storing(spec *fleet.SiteSpec) bool {
	return spec.Serves("credentials") && spec.Sources.BMC != nil &&
		slices.ContainsFunc(spec.Sources.BMC.Credentials, func(c fleet.BMCCredential) bool { return c.Ref == redfish.RefStore })
}

func targetOf(d *fleet.Device) redfish.Target {
	return redfish.Target{Address: d.BMCAddress, Name: d.Name, Class: d.Class, Health: d.ChassisHealth}
}

// configureBMC sees to it that the BMC takes the credential which the device is to
// have: its own, where the site keeps these, else the site's. Its machine may be
// off all the while.
func (e *enrolling) configureBMC(ctx context.Context, in wanted) error {
	row, err := e.site.Row(ctx)
	if err != nil {
		return err
	}
	d, err := e.site.Device(ctx, in.Device)
	if err != nil {
		return err
	}
	client, release, err := use[bmcs](ctx, e.site, "bmc", codes.BMCUnreachable)
	if err != nil {
		return err
	}
	defer release()
	if activity.GetInfo(ctx).Attempt == 1 {
		client.AllowLogin(d.BMCAddress) // a person asks
	}
	if !storing(&row.Spec) {
		return bmcFailed(ctx, client.Login(ctx, targetOf(&d)))
	}
	store, done, err := use[keeper](ctx, e.site, "credentials", codes.CredentialStoreUnavailable)
	if err != nil {
		return err
	}
	defer done()
	own, err := store.Get(ctx, d.Name)
	if err == nil {
		if takes, err := takesOwn(ctx, client, targetOf(&d), redfish.Account(own)); takes || err != nil {
			return err
		}
	} else if !errors.Is(err, sources.ErrGone) {
		return failed(ctx, err, codes.CredentialStoreUnavailable, codes.CredentialStoreUnavailable)
	}
	if err := e.unjoined(ctx, &row.Spec, &d, in.Pinned); err != nil {
		return err
	}
	if own, err = store.Ensure(ctx, d.Name); err != nil {
		return failed(ctx, err, codes.CredentialStoreUnavailable, codes.CredentialStoreUnavailable)
	}
	return giveOwn(ctx, client, targetOf(&d), redfish.Account(own))
}

// unjoined refuses a device whose node Ironic has already: that logs in to the BMC
// with what its driver_info says, and would be locked out by another password.
func (e *enrolling) unjoined(ctx context.Context, spec *fleet.SiteSpec, d *fleet.Device, pinned string) error {
	if !spec.Has("ironic") {
		return nil
	}
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := e.lookUp(ctx, client, d, pinned)
	switch {
	case errors.Is(err, sources.ErrGone):
		return nil
	case err != nil:
		return conflictOr(ctx, err)
	}
	return act.Final(codes.BMCConfigurationFailed, "the BMC does not take the device's own credential, and Ironic has the node %s already, whose driver_info has the present one: "+
		"unenrol the device first, or give the BMC, the credentials service and the node's driver_info the same credential", r.Ref)
}

// takesOwn reports whether the BMC takes the device's own credential.
func takesOwn(ctx context.Context, client bmcs, target redfish.Target, own redfish.Account) (bool, error) {
	now, err := client.Account(ctx, target)
	if err != nil || now != own {
		return false, nil
	}
	err = client.Login(ctx, target)
	if ctx.Err() == nil && sources.KindOf(err) == sources.KindForbidden {
		return false, nil
	}
	return err == nil, bmcFailed(ctx, err)
}

// giveOwn has the BMC take the device's own credential, by the one that it came
// with.
func giveOwn(ctx context.Context, client bmcs, target redfish.Target, own redfish.Account) error {
	err := client.SetPassword(ctx, target, redfish.Account{}, own.User, own.Password)
	switch kind := sources.KindOf(err); {
	case err == nil || kind == sources.KindForbidden || ctx.Err() != nil:
		return bmcFailed(ctx, err)
	case kind == sources.KindRefused || kind == sources.KindConflict:
		return act.Final(codes.BMCConfigurationFailed, "%v", err)
	}
	return bmcFailed(ctx, err)
}

// bmcFailed gives an error of a BMC its code.
func bmcFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && sources.KindOf(err) == sources.KindForbidden: // once more might lock the account
		return act.Final(codes.BMCCredentialRefused, "%v", err)
	}
	return failed(ctx, err, codes.BMCUnreachable, codes.BMCUnreachable)
}
