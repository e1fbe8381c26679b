package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/store"
)

// A simulated site is read more often than a real one, so that one sees things
// move; the larger the fleet the less often, up to what policy says of real ones.
const (
	smallFleet = 1500 // devices that the shortest intervals are for

	quick, quickMost   = 5 * time.Second, 30 * time.Second // Ironic, Placement, SLURM
	netbox, netboxMost = 15 * time.Second, 5 * time.Minute
	bmc, bmcMost       = 20 * time.Second, 5 * time.Minute
)

func interval(least, most time.Duration, devices int) string {
	scale := max(1, float64(devices)/smallFleet)
	return min(most, time.Duration(float64(least)*scale).Round(time.Second)).String()
}

type object = map[string]any

// sites writes a file of each simulated site and reads it as any site's file is.
func (s *simulation) sites(e simulator.Endpoints) ([]fleet.SiteSpec, error) {
	dir := filepath.Join(s.dir, "sites")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("write the simulated sites: %w", err)
	}
	var specs []fleet.SiteSpec
	for i := range e.Sites {
		path := filepath.Join(dir, e.Sites[i].Name+".json")
		text, err := json.MarshalIndent(Describe(&e, &e.Sites[i]), "", "  ")
		if err == nil {
			err = os.WriteFile(path, append(text, '\n'), 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("write the simulated sites: %w", err)
		}
		spec, err := recording.ReadSite(path)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// Describe says a simulated site in the words of a site's file.
func Describe(e *simulator.Endpoints, site *simulator.Site) map[string]any {
	every := interval(quick, quickMost, e.Devices)
	sources := object{"netbox": object{"url": site.NetBox, "token": "file:" + e.Secrets.NetBox, "interval": interval(netbox, netboxMost, e.Devices)}}
	openstack := func(url string) object {
		o := object{"url": url, "auth": site.IronicAuth}
		if site.IronicAuth != "none" {
			o["username"], o["password"] = e.User, "file:"+e.Secrets.Password
		}
		if site.Keystone != "" {
			o["keystone"] = object{"url": site.Keystone, "project": site.Project, "region": site.Name}
		}
		return o
	}
	if site.Ironic != "" {
		sources["ironic"] = openstack(site.Ironic)
		sources["ironic"].(object)["interval"] = every
	}
	if site.Placement != "" {
		sources["placement"], sources["nova"] = openstack(site.Placement), openstack(site.Nova)
		sources["placement"].(object)["interval"] = every
	}
	if site.SlurmURL != "" {
		sources["slurm"] = object{"url": site.SlurmURL, "user": "root", "token": "file:" + e.Secrets.Slurm, "interval": every}
	}
	if site.Networks != "" {
		sources["bmc"] = object{
			"port": e.BMCPort, "networks": []string{site.Networks}, "interval": interval(bmc, bmcMost, e.Devices),
			"tls": object{"ca": e.CA}, "credentials": []object{{"match": "*", "ref": "file:" + e.Secrets.BMC}},
		}
	}
	own := func(url, token string) object { return object{"url": url, "token": "file:" + token} }
	if site.DHCP != "" {
		sources["dhcp"], sources["topology"] = own(site.DHCP, e.Secrets.DHCP), own(site.Topology, e.Secrets.Topology)
	}
	if site.Credentials != "" {
		sources["credentials"] = own(site.Credentials, e.Secrets.Credentials)
		sources["bmc"].(object)["credentials"] = []object{{"match": "*", "ref": "store"}, {"match": "*", "ref": "file:" + e.Secrets.Factory}}
	}
	described := object{
		"name": site.Name, "engagement_mode": site.Mode, "placement_enabled": site.Placement != "",
		"trait_based": site.TraitBased, "customer_ready_trait": site.Trait,
		"lessees":   object{"enrol": site.Lessees.Enrol, "slurm": site.Lessees.Slurm, "maintenance": site.Lessees.Maintenance},
		"inventory": "netbox", "inventory_only": site.InventoryOnly,
		"netbox":  object{"instance": "simulated", "sites": []string{site.Name}},
		"sources": sources,
	}
	if site.Ironic != "" {
		described["enrolment"], described["imaging"] = enrolment(site), imaging(e, site)
	}
	return described
}

// enrolment says how the simulated machines are enrolled.
func enrolment(site *simulator.Site) object {
	return object{
		"dhcp": site.DHCP != "", "bmc": true, "ironic": true,
		"node": object{
			"driver": "redfish", "interfaces": object{"deploy_interface": "direct", "boot_interface": "redfish-virtual-media"},
			"driver_info": object{
				"redfish_address": "https://{bmc.address}", "redfish_system_id": "/redfish/v1/Systems/System_0",
				"redfish_username": "{bmc.user}", "redfish_password": "{bmc.password}", "redfish_verify_ca": false,
			},
			"properties": object{"capabilities": "boot_mode:uefi"},
			"ports":      "eth*",
		},
	}
}

// imaging says how an image is put on the simulated machines: through Nova where
// the site has it.
func imaging(e *simulator.Endpoints, site *simulator.Site) object {
	if site.Nova != "" {
		return object{"nova": object{
			"image": "5e0f2b8c-1c56-4f0e-9d0b-7a3f5f1f0a11", "flavor": "baremetal.gb200", "network": "0b8a6f5e-33a1-4f5c-8a53-0d6d4b6f2c22", "key": "muster",
			"username": e.User, "password": "file:" + e.Secrets.Password, "project": site.SlurmProject,
		}}
	}
	return object{"direct": object{"image": "http://images.example/muster-test.raw", "checksum": "d41d8cd98f00b204e9800998ecf8427e"}}
}

// place is where the stored rows of the simulated sites say that it is.
type place struct {
	URL     string `json:"url"`
	BMCPort int    `json:"bmc_port"`
	Dir     string `json:"dir"`
}

// follow changes what the stored rows of the simulated sites say of the place of
// their endpoints, when that is another than at the last start. All else in them
// is the operator's.
func (i *instance) follow(ctx context.Context, e simulator.Endpoints) error {
	path := filepath.Join(i.fleet.dir, "sites", "place")
	now := place{URL: e.URL, BMCPort: e.BMCPort, Dir: i.fleet.dir}
	var before place
	body, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(body, &before)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read where the simulated fleet was: %w", err)
	}
	if err == nil && before == now {
		return nil
	}
	for k := range e.Sites {
		if err != nil {
			break // there was no start before: nothing is stored
		}
		if err := i.move(ctx, e.Sites[k].Name, before, now); err != nil {
			return fmt.Errorf("tell site %s where the simulated fleet is now: %w", e.Sites[k].Name, err)
		}
	}
	if body, err = json.Marshal(now); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(body, '\n'), 0o600); err != nil {
		return fmt.Errorf("write where the simulated fleet is: %w", err)
	}
	return os.Rename(path+".new", path)
}

// move changes one stored site.
func (i *instance) move(ctx context.Context, name string, before, now place) error {
	stored, err := store.SiteByName(ctx, i.db, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(stored.Spec)
	if err != nil {
		return err
	}
	changed := strings.NewReplacer(before.URL+"/", now.URL+"/", before.Dir+"/", now.Dir+"/").Replace(string(text))
	var spec fleet.SiteSpec
	if err := json.Unmarshal([]byte(changed), &spec); err != nil {
		return err
	}
	if b := spec.Sources.BMC; b != nil && b.Port == before.BMCPort {
		b.Port = now.BMCPort
	}
	if reflect.DeepEqual(spec, stored.Spec) {
		return nil
	}
	i.Log.Info("the simulated fleet listens elsewhere than before", "site", name, "url", now.URL, "bmc_port", now.BMCPort)
	_, err = devices.ApplySite(ctx, i.db, spec, devices.SiteOptions{Actor: actor})
	return err
}
