package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/service"
)

// Config says where the service is. Its Name and Mute are set here.
type Config = service.Config

// Client is the DHCP service of one site. It may be used by many goroutines.
type Client struct{ service *service.Client }

// New gives a client; it calls nobody.
func New(c Config, clock sources.Clock) (*Client, error) {
	c.Name = "the DHCP service"
	s, err := service.New(c, clock)
	if err != nil {
		return nil, err
	}
	return &Client{s}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.service.Close() }

// Reservation is the address that a device's interface is given always.
type Reservation struct {
	Device   string `json:"device"`
	MAC      string `json:"mac"`
	Address  string `json:"address"` // without a prefix length
	Hostname string `json:"hostname,omitempty"`
}

// Get reads a device's reservation; missing (sources.ErrGone) where it has none.
func (c *Client) Get(ctx context.Context, device string) (Reservation, error) {
	var r Reservation
	err := c.service.Do(ctx, service.Request{Op: "read the DHCP reservation of " + device, Method: http.MethodGet, Path: []string{"reservations", device}}, &r)
	return r, err
}

// Reserve makes a device's reservation what it is to be, and reads it back. What
// is so already is not written. An address or a MAC that another device has is a
// conflict; a lost answer is looked at.
func (c *Client) Reserve(ctx context.Context, want Reservation) error {
	op := "reserve the address of " + want.Device
	want, err := want.plain()
	if err != nil {
		return &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	now, err := c.Get(ctx, want.Device)
	switch {
	case err == nil && now.is(want):
		return nil
	case err != nil && !errors.Is(err, sources.ErrGone):
		return err
	}
	written := c.service.Do(ctx, service.Request{Op: op, Method: http.MethodPut, Path: []string{"reservations", want.Device}, Body: want}, nil)
	if written != nil && !service.Unsettled(written) {
		return written
	}
	now, err = c.Get(ctx, want.Device)
	return service.Verified(op, written, err, now.is(want), fmt.Sprintf("%s has %s", now.MAC, now.Address))
}

// Release ends a device's reservation, and sees it gone. Gone already is done.
func (c *Client) Release(ctx context.Context, device string) error {
	op := "release the address of " + device
	written := c.service.Do(ctx, service.Request{Op: op, Method: http.MethodDelete, Path: []string{"reservations", device}}, nil)
	if errors.Is(written, sources.ErrGone) {
		return nil
	}
	if written != nil && !service.Unsettled(written) {
		return written
	}
	_, err := c.Get(ctx, device)
	gone := errors.Is(err, sources.ErrGone)
	if gone {
		err = nil
	}
	return service.Verified(op, written, err, gone, "the reservation is there")
}

// plain gives a reservation in one spelling.
func (r Reservation) plain() (Reservation, error) {
	mac, err := net.ParseMAC(r.MAC)
	if err != nil {
		return r, fmt.Errorf("%q is no MAC address", sources.CleanText(r.MAC, 64))
	}
	address, err := netip.ParseAddr(r.Address)
	if err != nil {
		return r, fmt.Errorf("%q is no IP address", sources.CleanText(r.Address, 64))
	}
	r.MAC, r.Address = mac.String(), address.Unmap().String()
	return r, nil
}

// is reports whether a stored reservation is the wanted one, in any spelling.
func (r Reservation) is(want Reservation) bool {
	read, err := r.plain()
	return err == nil && read.MAC == want.MAC && read.Address == want.Address && (want.Hostname == "" || strings.EqualFold(read.Hostname, want.Hostname))
}
