package enrol

import (
	"context"
	"slices"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/credentials"
	"github.com/musterhq/muster/sources/dhcp"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/placement"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/topology"
)

// fakeNetBox has the one device.
type fakeNetBox struct{ *world }

func (f *fakeNetBox) device() *netbox.Device {
	return &netbox.Device{Record: sources.Record{Netbox: &facts.Netbox{Status: facts.TextOf(f.status), Tags: slices.Clone(f.tags)}}}
}

func (f *fakeNetBox) Read(context.Context, string) (d *netbox.Device, err error) {
	err = f.call("netbox read", func() (string, error) {
		if f.status == "" {
			return "", errGone
		}
		d = f.device()
		return "", nil
	})
	return d, err
}

func (f *fakeNetBox) Update(_ context.Context, _ string, c netbox.Change) (d *netbox.Device, err error) {
	name := "netbox tag"
	if c.Status != "" {
		name = "netbox status"
	}
	err = f.call(name, func() (string, error) {
		did := ""
		if c.Status != "" && c.Status != f.status {
			did = "status " + c.Status
			f.status = c.Status
		}
		for _, tag := range c.AddTags {
			if !slices.Contains(f.tags, tag) {
				f.tags, did = append(f.tags, tag), "tag "+tag
			}
		}
		f.tags = slices.DeleteFunc(f.tags, func(tag string) bool { return slices.Contains(c.RemoveTags, tag) })
		d = f.device()
		return did, nil
	})
	return d, err
}

func (f *fakeNetBox) Interfaces(context.Context, string) (all []netbox.Interface, err error) {
	err = f.call("netbox interfaces", func() (string, error) {
		all = []netbox.Interface{{Name: "BMC", MAC: bmcMAC1, MgmtOnly: true}, {Name: "eth0", MAC: hostMAC, Peer: &netbox.Peer{Device: "s01", Port: "swp1"}}, {Name: "rail0", MAC: "aa:00:00:00:00:02"}}
		return "", nil
	})
	return all, err
}

// fakeBMC is the machine's BMC.
type fakeBMC struct{ *world }

func (f *fakeBMC) AllowLogin(string) {}

func (f *fakeBMC) Account(context.Context, redfish.Target) (a redfish.Account, err error) {
	a = redfish.Account{User: "root", Password: factory}
	err = f.call("bmc account", func() (string, error) {
		if f.stored {
			a = redfish.Account{User: "muster", Password: password}
		}
		return "", nil
	})
	return a, err
}

func (f *fakeBMC) login(with string) func() (string, error) {
	return func() (string, error) {
		if f.lets != with {
			return "", &sources.Error{Kind: sources.KindForbidden, Op: "log in", Message: "HTTP 401"}
		}
		return "", nil
	}
}

func (f *fakeBMC) Login(context.Context, redfish.Target) error {
	with := factory
	if f.stored {
		with = password
	}
	return f.call("bmc login", f.login(with))
}

func (f *fakeBMC) FactoryLogin(context.Context, redfish.Target) error {
	return f.call("bmc factory login", f.login(factory))
}

func (f *fakeBMC) SetPassword(_ context.Context, _ redfish.Target, _ redfish.Account, _, to string) error {
	return f.call("bmc set password", func() (string, error) {
		switch f.lets {
		case to:
			return "", nil
		case factory:
			f.lets = to
			return "set password", nil
		}
		return "", &sources.Error{Kind: sources.KindForbidden, Op: "set the password", Message: "HTTP 401"}
	})
}

func (f *fakeBMC) FactoryReset(context.Context, redfish.Target) error {
	lost := f.lostReset
	if err := f.call("bmc reset", func() (string, error) {
		if f.noReset || f.stored && f.lets != password {
			return "", &sources.Error{Kind: sources.KindForbidden, Op: "reset", Message: "HTTP 401"}
		}
		f.lets = factory
		return "reset bmc", nil
	}); err != nil {
		return err
	}
	return lost
}

type fakeDHCP struct{ *world }

func (f *fakeDHCP) Reserve(_ context.Context, want dhcp.Reservation) error {
	return f.call("dhcp reserve", func() (string, error) {
		if f.reserved == want {
			return "", nil
		}
		f.reserved = want
		return "reserve " + want.Address + " for " + want.MAC, nil
	})
}

type fakeStore struct{ *world }

func (f *fakeStore) Get(context.Context, string) (c credentials.Credential, err error) {
	err = f.call("store get", func() (string, error) {
		if !f.stored {
			return "", errGone
		}
		c = credentials.Credential{User: "muster", Password: password}
		return "", nil
	})
	return c, err
}

func (f *fakeStore) Ensure(context.Context, string) (c credentials.Credential, err error) {
	err = f.call("store ensure", func() (string, error) {
		c = credentials.Credential{User: "muster", Password: password}
		if f.stored {
			return "", nil
		}
		f.stored = true
		return "make credential", nil
	})
	return c, err
}

func (f *fakeStore) Delete(context.Context, string) error {
	return f.call("store delete", func() (string, error) {
		if !f.stored {
			return "", nil
		}
		f.stored = false
		return "remove credential", nil
	})
}

type fakeTopology struct{ *world }

func (f *fakeTopology) Declare(_ context.Context, want topology.Intent) error {
	return f.call("topology declare", func() (string, error) {
		f.intents = append(f.intents, want)
		return "declare " + want.Name, nil
	})
}

type fakeNova struct{ *world }

func (f *fakeNova) Server(_ context.Context, uuid string) (s *nova.Server, err error) {
	err = f.call("nova server", func() (string, error) {
		for i := range f.servers {
			if f.servers[i].ID == uuid {
				s = &f.servers[i]
				return "", nil
			}
		}
		return "", errGone
	})
	return s, err
}

func (f *fakeNova) Servers(context.Context, nova.Filter) (on []nova.Server, err error) {
	err = f.call("nova servers", func() (string, error) { on = f.servers; return "", nil })
	return on, err
}

type fakePlacement struct{ *world }

func (f *fakePlacement) Allocations(context.Context, string) (held []placement.Allocation, err error) {
	err = f.call("placement allocations", func() (string, error) {
		if !f.provider {
			return "", errGone
		}
		held = f.held
		return "", nil
	})
	return held, err
}

func (f *fakePlacement) DeleteProvider(context.Context, string) error {
	return f.call("placement delete", func() (string, error) {
		switch {
		case !f.provider:
			return "", nil
		case len(f.held) > 0:
			return "", conflict("it is in use by %s", f.held[0].Consumer)
		}
		f.provider = false
		return "delete provider", nil
	})
}
