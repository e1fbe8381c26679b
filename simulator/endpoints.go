package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// Endpoints say where a simulated fleet is reached and what it is made of.
type Endpoints struct {
	PID     int         `json:"pid"`
	URL     string      `json:"url"`      // of HTTP, without a slash at its end
	BMCPort int         `json:"bmc_port"` // of every BMC, with TLS
	CA      string      `json:"ca"`       // file of the authority of the BMCs' certificates
	User    string      `json:"user"`     // of Keystone and http_basic
	Secrets Secrets     `json:"secrets"`
	Shape   world.Shape `json:"shape"`
	Sites   []Site      `json:"sites"`
	Devices int         `json:"devices"`
}

// Site is a simulated site with the ways to reach its systems. A URL is "" where
// the site has no such system.
type Site struct {
	world.Site
	IronicAuth string `json:"ironic_auth,omitempty"` // keystone, http_basic, none
	Ironic     string `json:"ironic,omitempty"`
	Keystone   string `json:"keystone,omitempty"`
	Project    string `json:"project,omitempty"` // in Keystone
	Placement  string `json:"placement,omitempty"`

	SlurmProject string `json:"slurm_project,omitempty"` // by its name, where it is in Keystone

	Nova     string `json:"nova,omitempty"`
	SlurmURL string `json:"slurm_url,omitempty"`
	NetBox   string `json:"netbox"`

	DHCP        string `json:"dhcp,omitempty"`
	Credentials string `json:"credentials,omitempty"` // where BMCs have passwords of their own
	Topology    string `json:"topology,omitempty"`

	Networks string `json:"networks,omitempty"` // of its BMCs
	Machines int    `json:"machines"`
}

// Secrets are files, each with one line.
type Secrets struct {
	Password string `json:"password"` // of User
	Slurm    string `json:"slurm"`    // a token
	NetBox   string `json:"netbox"`   // a token
	BMC      string `json:"bmc"`      // user:password
	Factory  string `json:"factory"`  // user:password of a BMC as it comes, where a site keeps each one's own

	DHCP        string `json:"dhcp"`        // a token
	Credentials string `json:"credentials"` // a token
	Topology    string `json:"topology"`    // a token
}

const (
	endpointsName = "endpoints.json"
	controlName   = "control.json"
	userName      = "muster"
	bmcUser       = "admin"
	projectName   = "service"
)

// The system that a site is reached by is its own choice, so that every way is
// used by some site.
const (
	authKeystone = "keystone"
	authBasic    = "http_basic"
	authNone     = "none"
)

// ironicAuth is how the nth site's Ironic knows its users.
func ironicAuth(index int) string {
	switch index % 4 {
	case 1:
		return authKeystone
	case 2:
		return authBasic
	}
	return authNone
}

// describe says where everything of a world is.
func describe(w *world.World, base string) (sites []Site, devices int) {
	w.Read(func(s *world.State) {
		for _, one := range s.Sites.All() {
			site := Site{Site: *one, NetBox: base + "/netbox"}
			root := base + "/" + one.Name
			if !one.InventoryOnly {
				site.IronicAuth, site.Ironic = ironicAuth(one.Index), root+"/ironic"
				site.Networks = fmt.Sprintf("127.%d.0.0/16", one.Index)
				site.DHCP, site.Topology = root+"/dhcp", root+"/topology"
			}
			if site.IronicAuth == authKeystone {
				site.Keystone, site.Project = base+"/keystone/v3", projectName
				project, _ := s.Project(one.Lessees.Slurm)
				site.SlurmProject = project.Name
			}
			if one.Placement {
				site.Placement, site.Nova = root+"/placement", root+"/nova/v2.1"
			}
			if one.CredentialStore {
				site.Credentials = root + "/credentials"
			}
			if one.Slurm {
				site.SlurmURL = root + "/slurm"
			}
			for range s.Machines.Of(one.Name) {
				site.Machines++
			}
			devices += site.Machines
			sites = append(sites, site)
		}
	})
	return sites, devices
}

// ReadEndpoints reads what the simulator of a directory said last; false: none
// ever ran there.
func ReadEndpoints(dir string) (e Endpoints, there bool, err error) {
	there, err = readJSON(filepath.Join(dir, endpointsName), &e)
	return e, there, err
}

// Control says how to command a running simulator.
type Control struct {
	PID   int    `json:"pid"`
	URL   string `json:"url"`
	Token string `json:"token"`
}

// ReadControl reads how the simulator of a directory is commanded; false: none
// ever ran there.
func ReadControl(dir string) (c Control, there bool, err error) {
	there, err = readJSON(filepath.Join(dir, controlName), &c)
	return c, there, err
}

func readJSON(path string, into any) (there bool, err error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// writeJSON replaces a file whole: a reader sees the old one or the new one.
func writeJSON(path string, value any) error {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, string(body)+"\n")
}

func writeFile(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// secret gives the secret in a file, made by make when there is none.
func secret(path string, fresh func() string) (string, error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		made := fresh()
		return made, writeFile(path, made+"\n")
	}
	return strings.TrimSpace(string(body)), err
}

// portIn is the port of a URL, 0 if it names none.
func portIn(at string) int {
	u, err := url.Parse(at)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}
