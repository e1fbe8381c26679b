package workflows

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
)

const actVerifyBMC = "verify_bmc"

// verifyConnectivity shows that a device's BMC answers and takes our credential.
func verifyConnectivity(ctx workflow.Context, u *unit) error {
	return u.do(ctx, step{phase: "log in to the BMC", percent: 10, name: actVerifyBMC, lost: codes.BMCUnreachable, tries: 4}, u.Device, nil)
}

// bmcs are the BMCs of a site, as far as this is about logging in.
type bmcs interface {
	AllowLogin(address string)
	Login(ctx context.Context, target redfish.Target) error
}

// verifyBMC logs in to a device's BMC and out again.
func (s *site) verifyBMC(ctx context.Context, id int64) error {
	d, err := s.device(ctx, id)
	if err != nil {
		return err
	}
	if d.BMCAddress == "" {
		return failFinal(codes.BMCAddressMissing, "the inventory gives %s no BMC address", d.Name)
	}
	client, release, err := use[bmcs](ctx, s, "bmc")
	if err != nil {
		return failFinal(codes.BMCUnreachable, "%v", err)
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
		return failFinal(codes.BMCCredentialRefused, "%v", err)
	case kind == sources.KindTransient || kind == sources.KindOpen || kind == sources.KindLocked:
		return fail(codes.BMCUnreachable, "%v", err)
	}
	return failFinal(codes.BMCUnreachable, "%v", err)
}
