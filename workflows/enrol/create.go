package enrol

import (
	"context"
	"strings"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// accounts gives the logins of BMCs.
type accounts interface {
	Account(ctx context.Context, target redfish.Target) (redfish.Account, error)
}

// create makes the device's node from the site's template, leased to the enrolment
// from the first moment on.
func (e *enrolling) create(ctx context.Context, client enroller, spec *fleet.SiteSpec, d *fleet.Device, in wanted) (*sources.Record, error) {
	if spec.Enrolment.Node == nil {
		return nil, act.Final(codes.IronicNodeCreateFailed, "Ironic has no node of %s, and the site does not say what nodes are made from: describe it in enrolment.node", d.Name)
	}
	quotes := []string{"{bmc.address}", fleet.AddressKey(d.BMCAddress), "{device.name}", d.Name, "{device.serial}", d.Serial}
	if quotesAccount(spec.Enrolment.Node.DriverInfo) {
		account, err := e.account(ctx, d)
		if err != nil {
			return nil, err
		}
		quotes = append(quotes, "{bmc.user}", account.User, "{bmc.password}", account.Password)
	}
	n := newNode(spec, d, in, strings.NewReplacer(quotes...))
	if err := withdraw(ctx, e.site, in.Target, n.UUID); err != nil {
		return nil, err
	}
	r, err := client.Create(ctx, n)
	switch kind := sources.KindOf(err); {
	case err == nil:
		return r, nil
	case ctx.Err() == nil && (kind == sources.KindRefused || kind == sources.KindForbidden):
		return nil, act.Final(codes.IronicNodeCreateFailed, "%v", err)
	}
	return nil, conflictOr(ctx, err)
}

func newNode(spec *fleet.SiteSpec, d *fleet.Device, in wanted, quoted *strings.Replacer) ironic.NewNode {
	t := spec.Enrolment.Node
	n := ironic.NewNode{
		UUID: in.Mint, Name: d.Name, Driver: t.Driver, ResourceClass: d.ResourceClass, Lessee: spec.Lessees.Enrol, ConductorGroup: t.ConductorGroup,
		Interfaces: t.Interfaces, DriverInfo: map[string]any{}, Properties: t.Properties,
	}
	if in.Pinned != "" {
		n.UUID = in.Pinned
	}
	for key, value := range t.DriverInfo {
		if text, is := value.(string); is {
			value = quoted.Replace(text)
		}
		n.DriverInfo[key] = value
	}
	return n
}

// quotesAccount reports whether a template wants the login of the BMC.
func quotesAccount(info map[string]any) bool {
	for _, value := range info {
		if text, is := value.(string); is && (strings.Contains(text, "{bmc.user}") || strings.Contains(text, "{bmc.password}")) {
			return true
		}
	}
	return false
}

// account gives the login that the device's BMC has.
func (e *enrolling) account(ctx context.Context, d *fleet.Device) (redfish.Account, error) {
	client, release, err := use[accounts](ctx, e.site, "bmc", codes.BMCCredentialRefused)
	if err != nil {
		return redfish.Account{}, err
	}
	defer release()
	account, err := client.Account(ctx, targetOf(d))
	if err != nil {
		return redfish.Account{}, failed(ctx, err, codes.CredentialStoreUnavailable, codes.BMCCredentialRefused)
	}
	return account, nil
}
