package simulator

import (
	"crypto/rand"
	"net/http"

	"github.com/musterhq/muster/simulator/contract"
	"github.com/musterhq/muster/simulator/ironic"
	"github.com/musterhq/muster/simulator/keystone"
	"github.com/musterhq/muster/simulator/netbox"
	"github.com/musterhq/muster/simulator/nova"
	"github.com/musterhq/muster/simulator/placement"
	"github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/slurm"
)

// slurmGeneration is the SLURM of the nth site: they differ, as real ones do.
func slurmGeneration(index int) int { return [...]int{45, 42, 38}[index/2%3] }

// faces is the handler of everything that speaks HTTP.
func (s *simulator) faces() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("/control/", http.StripPrefix("/control", s.controlHandler()))
	tokens := keystone.New(s.world, keystone.Options{Prefix: "/keystone", User: userName, Password: s.secrets.password})
	mux.Handle("/keystone/", s.rules.Wrap("keystone", "", tokens))
	inventory, err := netbox.New(s.world, netbox.Options{Prefix: "/netbox", Tokens: []netbox.Token{{Text: s.secrets.netbox}}})
	if err != nil {
		return nil, err
	}
	mux.Handle("/netbox/", s.rules.Wrap("netbox", "", http.StripPrefix("/netbox", inventory)))
	for i := range s.said.Sites {
		if err := s.siteFaces(mux, &s.said.Sites[i], tokens); err != nil {
			return nil, err
		}
	}
	return mux, nil
}

// siteFaces mounts the faces of one site.
func (s *simulator) siteFaces(mux *http.ServeMux, site *Site, tokens *keystone.Keystone) error {
	mount := func(face string, h http.Handler) {
		mux.Handle("/"+site.Name+"/"+face+"/", s.rules.Wrap(face, site.Name, h))
	}
	prefix := func(face string) string { return "/" + site.Name + "/" + face }
	if site.Ironic != "" {
		auth := map[string]string{authBasic: ironic.AuthHTTPBasic, authNone: ironic.AuthNone, authKeystone: ironic.AuthKeystone}[site.IronicAuth]
		mount("ironic", ironic.New(s.world, site.Name, ironic.Options{
			Prefix: prefix("ironic"), Auth: auth, User: userName, Password: s.secrets.password, Tokens: tokens,
		}))
	}
	if site.Placement != "" {
		mount("placement", placement.New(s.world, site.Name, placement.Options{Prefix: prefix("placement"), Tokens: tokens}))
		mount("nova", nova.New(s.world, site.Name, nova.Options{Prefix: prefix("nova"), Tokens: tokens}))
	}
	s.contracts(site, mount)
	if site.SlurmURL != "" {
		h, err := slurm.New(s.world, site.Name, slurm.Options{Generation: slurmGeneration(site.Index), Key: []byte(s.secrets.slurm), Clock: s.Clock})
		if err != nil {
			return err
		}
		mount("slurm", http.StripPrefix(prefix("slurm"), h))
	}
	return nil
}

// longestPassword is what the simulated BMCs take.
const longestPassword = 20

// contracts mounts what speaks muster's own contracts.
func (s *simulator) contracts(site *Site, mount func(string, http.Handler)) {
	below := func(face string, h http.Handler) { mount(face, http.StripPrefix("/"+site.Name+"/"+face, h)) }
	if site.DHCP != "" {
		below(contract.FaceDHCP, contract.DHCP(s.world, site.Name, contract.Options{Token: s.secrets.dhcp}))
	}
	if site.Credentials != "" {
		below(contract.FaceCredentials, contract.Credentials(s.world, site.Name, contract.Options{
			Token: s.secrets.credentials, User: bmcUser, Password: s.secrets.bmc, Mint: func() string { return rand.Text()[:longestPassword] },
		}))
	}
	if site.Topology != "" {
		below(contract.FaceTopology, contract.Topology(s.world, site.Name, contract.Options{Token: s.secrets.topology}))
	}
}

// bmcServer answers as every BMC.
func (s *simulator) bmcServer() (*http.Server, error) {
	authority, err := redfish.OpenAuthority(s.Dir, s.Clock)
	if err != nil {
		return nil, err
	}
	s.said.CA = authority.Path()
	server := s.server(s.rules.Wrap(redfish.FaceName, "", redfish.New(s.world, redfish.Options{User: bmcUser, Password: s.secrets.bmc, LenientAt: s.lenientBMCs()})))
	server.TLSConfig, server.IdleTimeout = authority.TLS(), bmcIdle
	return server, nil
}

// lenientBMCs tells at which sites the BMCs are lenient: every third of four, so
// that a fleet has both kinds.
func (s *simulator) lenientBMCs() func(site string) bool {
	lenient := map[string]bool{}
	for i := range s.said.Sites {
		lenient[s.said.Sites[i].Name] = s.said.Sites[i].Index%4 == 3
	}
	return func(site string) bool { return lenient[site] }
}
