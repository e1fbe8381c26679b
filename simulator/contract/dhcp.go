package contract

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/musterhq/muster/simulator/world"
)

// reservation is one as the contract shows it.
type reservation struct {
	Device   string `json:"device"`
	MAC      string `json:"mac"`
	Address  string `json:"address"`
	Hostname string `json:"hostname,omitempty"`
}

// DHCP gives the DHCP service of a site.
func DHCP(w *world.World, site string, o Options) http.Handler {
	f := &face{Options: o, world: w, site: site, name: FaceDHCP}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/reservations/{device}", answered(f.reserved))
	mux.Handle("PUT /v1/reservations/{device}", answered(f.reserve))
	mux.Handle("DELETE /v1/reservations/{device}", answered(f.release))
	return f.guarded(mux)
}

func (f *face) reserved(r *http.Request) (int, any, error) {
	var found *world.Reservation
	f.world.Read(func(s *world.State) { found = s.Reservations.Get(world.Key(f.site, r.PathValue("device"))) })
	if found == nil {
		return 0, nil, notFound("reservation")
	}
	return http.StatusOK, shown(found), nil
}

func shown(r *world.Reservation) reservation {
	return reservation{Device: r.Device, MAC: r.MAC, Address: r.Address, Hostname: r.Hostname}
}

func (f *face) reserve(r *http.Request) (int, any, error) {
	var sent reservation
	if _, err := read(r, &sent); err != nil {
		return 0, nil, err
	}
	device := r.PathValue("device")
	mac, macErr := net.ParseMAC(sent.MAC)
	address, addressErr := netip.ParseAddr(sent.Address)
	switch {
	case sent.Device != "" && sent.Device != device:
		return 0, nil, invalid("the body is of another device than the path")
	case macErr != nil:
		return 0, nil, invalid("mac is no MAC address")
	case addressErr != nil:
		return 0, nil, invalid("address is no IP address")
	}
	want := &world.Reservation{Site: f.site, Device: device, MAC: mac.String(), Address: address.Unmap().String(), Hostname: sent.Hostname}
	status := http.StatusOK
	err := f.do("reserve", device, want.MAC+" "+want.Address, func(s *world.State) error {
		before := s.Reservations.Get(want.Key())
		if before != nil && *before == *want {
			return errSame
		}
		for _, other := range s.Reservations.Of(f.site) {
			if other.Device != device && (other.MAC == want.MAC || other.Address == want.Address) {
				return refuse(http.StatusConflict, "conflict", "the MAC or the address is that of "+other.Device)
			}
		}
		if before == nil {
			status = http.StatusCreated
		}
		s.Reservations.Put(want.Key(), want)
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	return status, shown(want), nil
}

func (f *face) release(r *http.Request) (int, any, error) {
	device := r.PathValue("device")
	err := f.do("release", device, "", func(s *world.State) error {
		key := world.Key(f.site, device)
		if s.Reservations.Get(key) == nil {
			return notFound("reservation")
		}
		s.Reservations.Delete(key)
		return nil
	})
	return http.StatusNoContent, nil, err
}
