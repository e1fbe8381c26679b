package recording

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/recorded"
)

// Device is one machine of a folder, with what every source says of it.
type Device struct {
	Site   *fleet.SiteSpec
	Name   string
	Serial string
	Refs   map[string]string // by source; none for one that does not list it
	Facts  facts.Facts       // raw: without the family device, the site's and derived facts
}

// listing is one source of one site as its file holds it.
type listing []sources.Record

// Devices reads a site's recordings and joins them as the reconciler does after
// a first listing of each: the inventory's records are the devices.
func Devices(ctx context.Context, spec *fleet.SiteSpec, now time.Time) ([]*Device, error) {
	inventory := spec.InventorySource()
	records, err := read(ctx, spec, inventory, now)
	if err != nil {
		return nil, err
	}
	var devices []*Device
	for i := range records {
		r := &records[i]
		d := &Device{Site: spec, Name: r.Name, Serial: r.Serial, Refs: map[string]string{}}
		if d.Name == "" {
			d.Name = r.Ref
		}
		d.take(inventory, r)
		devices = append(devices, d)
	}
	for _, source := range spec.SourceNames() {
		if source == inventory {
			continue
		}
		records, err := read(ctx, spec, source, now)
		if err != nil {
			return nil, err
		}
		join(source, records, devices)
	}
	return devices, nil
}

func read(ctx context.Context, spec *fleet.SiteSpec, source string, now time.Time) (listing, error) {
	s, err := recorded.New(spec.Sources.Recorded[source], source, func() time.Time { return now })
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var all listing
	if _, err := s.List(ctx, func(page []sources.Record) error {
		all = append(all, page...)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the recorded %s of site %s: %w", source, spec.Name, err)
	}
	return all, nil
}

// join gives each device its record of a source. What the source does not list
// it says so of.
func join(source string, records listing, devices []*Device) {
	in := fleet.JoinInput{Listed: map[string]bool{}, Records: make([]fleet.Listed, len(records))}
	for i := range records {
		r := &records[i]
		in.Listed[r.Ref] = true
		in.Records[i] = fleet.Listed{Ref: r.Ref, Name: r.Name, Serial: r.Serial}
		if source == "bmc" {
			in.Records[i].Address = r.Ref
		}
	}
	for i, d := range devices {
		in.Devices = append(in.Devices, fleet.Joinable{Device: int64(i), Name: d.Name, Serial: d.Serial, Address: d.address()})
	}
	for _, j := range fleet.Join(in).Joined {
		devices[j.Device].take(source, &records[j.Record])
	}
	for _, d := range devices {
		if _, listed := d.Refs[source]; listed {
			continue
		}
		switch source {
		case "ironic":
			d.Facts.Ironic.Listed = facts.False
		case "slurm":
			d.Facts.Slurm.Listed = facts.False
		}
	}
}

// take adds a record's facts.
func (d *Device) take(source string, r *sources.Record) {
	d.Refs[source] = r.Ref
	switch {
	case r.Ironic != nil:
		d.Facts.Ironic = *r.Ironic
	case r.Placement != nil:
		d.Facts.Placement = *r.Placement
	case r.Slurm != nil:
		d.Facts.Slurm = *r.Slurm
	case r.Netbox != nil:
		d.Facts.Netbox = *r.Netbox
	case r.BMC != nil:
		d.Facts.BMC = *r.BMC
	}
}

// address is where the device's BMC is.
func (d *Device) address() string {
	address := d.Facts.Netbox.OobIP
	if d.Site.InventorySource() == "ironic" {
		address = d.Facts.Ironic.BMCAddress
	}
	return host(address.Value)
}

// host is an address without the length of its network.
func host(address string) string {
	for i := range address {
		if address[i] == '/' {
			return address[:i]
		}
	}
	return address
}

// Find finds one device by name in every site; the error tells of none and of
// several.
func Find(ctx context.Context, specs []fleet.SiteSpec, name string, now time.Time) (*Device, error) {
	var found []*Device
	known := 0
	for i := range specs {
		devices, err := Devices(ctx, &specs[i], now)
		if err != nil {
			return nil, err
		}
		known += len(devices)
		for _, d := range devices {
			if d.Name == name {
				found = append(found, d)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: none of the %s devices is called %q", ErrNoDevice, strconv.Itoa(known), name)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%w: %d devices are called %q", ErrNoDevice, len(found), name)
}
