package bmc

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

const actVerifyBMC = "verify_bmc"

// verifyConnectivity shows that a device's BMC answers and takes our credential.
func verifyConnectivity(ctx workflow.Context, u *act.Unit) error {
	return u.Do(ctx, act.Step{Phase: "log in to the BMC", Percent: 10, Name: actVerifyBMC, Lost: codes.BMCUnreachable, Tries: 4}, u.Device, nil)
}

// bmcs are the BMCs of a site, as far as this is about logging in.
type bmcs interface {
	AllowLogin(address string)
	Login(ctx context.Context, target redfish.Target) error
}

// verification is the activities of verify_connectivity at one site.
type verification struct{ site *act.Site }

// verify logs in to a device's BMC and out again.
func (v *verification) verify(ctx context.Context, id int64) error {
	d, err := v.site.Device(ctx, id)
	if err != nil {
		return err
	}
	if d.BMCAddress == "" {
		return act.Final(codes.BMCAddressMissing, "the inventory gives %s no BMC address", d.Name)
	}
	client, release, err := act.Use[bmcs](ctx, v.site, "bmc")
	if err != nil {
		return act.Final(codes.BMCUnreachable, "%v", err)
	}
	defer release()
	if activity.GetInfo(ctx).Attempt == 1 {
		client.AllowLogin(d.BMCAddress) // a person asks
	}
	err = client.Login(ctx, redfish.Target{Address: d.BMCAddress, Name: d.Name, Class: d.Class, Health: d.ChassisHealth})
	switch kind := sources.KindOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case kind == sources.KindForbidden: // once more might lock the account
		return act.Final(codes.BMCCredentialRefused, "%v", err)
	case kind == sources.KindTransient || kind == sources.KindOpen || kind == sources.KindLocked:
		return act.Retry(codes.BMCUnreachable, "%v", err)
	}
	return act.Final(codes.BMCUnreachable, "%v", err)
}
