package enrol

import (
	"context"
	"net/netip"
	"strings"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources/dhcp"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/workflows/act"
)

// reserver is a DHCP service.
type reserver interface {
	Reserve(ctx context.Context, want dhcp.Reservation) error
}

// ports is what NetBox has of the interfaces of devices.
type ports interface {
	Interfaces(ctx context.Context, id string) ([]netbox.Interface, error)
}

// reserve has DHCP give the BMC the address that the inventory says. The addresses
// of the machine's other interfaces are those of who runs on it.
func (e *enrolling) reserve(ctx context.Context, in work) error {
	d, err := e.site.Device(ctx, in.Device)
	if err != nil {
		return err
	}
	address := fleet.AddressKey(d.BMCAddress)
	if _, err := netip.ParseAddr(address); err != nil {
		return act.Final(codes.DHCPConfigurationFailed, "the BMC's address in the inventory, %q, is no IP address: nothing can be reserved for it", d.BMCAddress)
	}
	if in.NetBox == "" {
		return act.Final(codes.DHCPConfigurationFailed, "the site has no NetBox, and nothing else says which MAC address the BMC has: turn enrolment.dhcp off")
	}
	all, err := e.interfaces(ctx, in.NetBox)
	if err != nil {
		return err
	}
	mac, why := bmcMAC(all)
	if mac == "" {
		return act.Final(codes.DHCPConfigurationFailed, "%s", why)
	}
	client, release, err := use[reserver](ctx, e.site, "dhcp", codes.DHCPConfigurationFailed)
	if err != nil {
		return err
	}
	defer release()
	if err := client.Reserve(ctx, dhcp.Reservation{Device: d.Name, MAC: mac, Address: address, Hostname: d.Name}); err != nil {
		return failed(ctx, err, codes.DHCPConfigurationFailed, codes.DHCPConfigurationFailed)
	}
	return nil
}

// interfaces reads what NetBox has of the device's interfaces.
func (e *enrolling) interfaces(ctx context.Context, id string) ([]netbox.Interface, error) {
	client, release, err := use[ports](ctx, e.site, "netbox", codes.NetboxUnavailable)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := client.Interfaces(ctx, id)
	return all, netboxUnread(ctx, err)
}

// bmcMAC picks the BMC's interface: the only one of management that has a MAC
// address, or the only one of these that is named so.
func bmcMAC(all []netbox.Interface) (mac, why string) {
	var of, named []netbox.Interface
	for i := range all {
		if !all[i].MgmtOnly || all[i].MAC == "" {
			continue
		}
		of = append(of, all[i])
		if strings.Contains(strings.ToLower(all[i].Name), "bmc") {
			named = append(named, all[i])
		}
	}
	switch {
	case len(of) == 1:
		return of[0].MAC, ""
	case len(named) == 1:
		return named[0].MAC, ""
	case len(of) == 0:
		return "", "NetBox has no management interface with a MAC address of the device: give it the BMC's"
	}
	return "", "NetBox has several management interfaces of the device: name that of the BMC \"bmc\""
}
