package enrol

import (
	"context"
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
func (e *enrolling) configureBMC(ctx context.Context, in work) error {
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
	own, err := store.Ensure(ctx, d.Name)
	if err != nil {
		return failed(ctx, err, codes.CredentialStoreUnavailable, codes.CredentialStoreUnavailable)
	}
	return giveOwn(ctx, client, targetOf(&d), redfish.Account(own))
}

// giveOwn has the BMC take the device's own credential, by the one that it came
// with if need be.
func giveOwn(ctx context.Context, client bmcs, target redfish.Target, own redfish.Account) error {
	now, err := client.Account(ctx, target)
	if err == nil && now == own {
		err = client.Login(ctx, target)
		if err == nil || sources.KindOf(err) != sources.KindForbidden {
			return bmcFailed(ctx, err)
		}
	}
	err = client.SetPassword(ctx, target, redfish.Account{}, own.User, own.Password)
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
