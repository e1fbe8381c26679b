package simulator

import (
	"net/http"

	"github.com/musterhq/muster/simulator/ironic"
	"github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/slurm"
)

// slurmGeneration is the SLURM of the nth site: they differ, as real ones do.
func slurmGeneration(index int) int { return [...]int{45, 42, 38}[index/2%3] }

// faces is the handler of everything that speaks HTTP.
func (s *simulator) faces() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("/control/", http.StripPrefix("/control", s.controlHandler()))
	for i := range s.said.Sites {
		if err := s.siteFaces(mux, &s.said.Sites[i]); err != nil {
			return nil, err
		}
	}
	return mux, nil
}

// siteFaces mounts the faces of one site.
func (s *simulator) siteFaces(mux *http.ServeMux, site *Site) error {
	mount := func(face string, h http.Handler) {
		path := "/" + site.Name + "/" + face
		mux.Handle(path+"/", s.rules.Wrap(face, site.Name, http.StripPrefix(path, h)))
	}
	if site.Ironic != "" {
		prefix := "/" + site.Name + "/ironic"
		auth := map[string]string{authBasic: ironic.AuthHTTPBasic, authNone: ironic.AuthNone, authKeystone: ironic.AuthKeystone}[site.IronicAuth]
		mux.Handle(prefix+"/", s.rules.Wrap("ironic", site.Name, ironic.New(s.world, site.Name, ironic.Options{
			Prefix: prefix, Auth: auth, User: userName, Password: s.secrets.password,
		})))
	}
	if site.SlurmURL != "" {
		h, err := slurm.New(s.world, site.Name, slurm.Options{Generation: slurmGeneration(site.Index), Key: []byte(s.secrets.slurm), Clock: s.Clock})
		if err != nil {
			return err
		}
		mount("slurm", h)
	}
	return nil
}

// bmcServer answers as every BMC.
func (s *simulator) bmcServer() (*http.Server, error) {
	authority, err := redfish.OpenAuthority(s.Dir, s.Clock)
	if err != nil {
		return nil, err
	}
	s.said.CA = authority.Path()
	server := s.server(s.rules.Wrap(redfish.FaceName, "", redfish.New(s.world, redfish.Options{User: bmcUser, Password: s.secrets.bmc})))
	server.TLSConfig = authority.TLS()
	return server, nil
}
