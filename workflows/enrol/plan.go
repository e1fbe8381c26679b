package enrol

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

// plan is what an enrolment does at its site. It stays for the whole run, whatever
// becomes of the site's row.
type plan struct {
	DHCP   bool   `json:"dhcp,omitempty"`
	BMC    bool   `json:"bmc,omitempty"`
	Ironic bool   `json:"ironic,omitempty"`
	NetBox string `json:"netbox,omitempty"` // id of the device there; "" at a site without NetBox
	Mint   string `json:"mint,omitempty"`   // uuid of the node, if one is to be made
}

// plan reads which stages the site has.
func (e *enrolling) plan(ctx context.Context, in work) (plan, error) {
	row, err := e.site.Row(ctx)
	if err != nil {
		return plan{}, err
	}
	d, err := e.site.Device(ctx, in.Device)
	if err != nil {
		return plan{}, err
	}
	stages := row.Spec.Enrolment
	p := plan{DHCP: stages.DHCP, BMC: stages.BMC, Ironic: stages.Ironic, Mint: uuid.NewString()}
	if d.BMCAddress == "" && (p.DHCP || p.BMC || p.Ironic) {
		return plan{}, act.Final(codes.BMCAddressMissing, "the inventory gives %s no BMC address", d.Name)
	}
	p.NetBox, err = netboxID(ctx, e.site, &row, &d)
	return p, err
}

// netboxID finds the device in NetBox, "" at a site without one.
func netboxID(ctx context.Context, s *act.Site, row *fleet.Site, d *fleet.Device) (string, error) {
	if !row.Spec.Has("netbox") {
		return "", nil
	}
	stored, err := store.FactsOf(ctx, s.DB, []int64{d.ID})
	if err != nil {
		return "", fmt.Errorf("find %s in NetBox: %w", d.Name, err)
	}
	for i := range stored {
		if stored[i].Source == "netbox" && stored[i].Ref != "" && !stored[i].RefGone {
			return stored[i].Ref, nil
		}
	}
	return "", act.Final(codes.NetboxDeviceMissing, "NetBox has not been seen to list %s", d.Name)
}

// use gives a client of the site; a site without it fails with the code.
func use[T any](ctx context.Context, s *act.Site, name string, code codes.Failure) (client T, release func(), err error) {
	client, release, err = act.Use[T](ctx, s, name)
	switch {
	case err != nil && ctx.Err() != nil:
		return client, nil, ctx.Err()
	case err != nil:
		return client, nil, act.Final(code, "%v", err)
	}
	return client, release, nil
}

// failed gives an error of a system of the site a code: away is what trying again
// may mend, refused what stays.
func failed(ctx context.Context, err error, away, refused codes.Failure) error {
	switch kind := sources.KindOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case kind == sources.KindTransient || kind == sources.KindOpen || kind == sources.KindLocked:
		return act.Retry(away, "%v", err)
	}
	return act.Final(refused, "%v", err)
}
