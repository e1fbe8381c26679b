package ironic

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/musterhq/muster/simulator/world"
)

// discover answers what is served at all.
func (c *call) discover(root bool) error {
	version := map[string]any{
		"id": "v1", "links": []map[string]string{{"href": c.base + "/v1/", "rel": "self"}}, "status": "CURRENT",
		"min_version": "1.1", "version": "1." + strconv.Itoa(c.Newest),
	}
	if root {
		return c.send(http.StatusOK, map[string]any{
			"name": "OpenStack Ironic API", "description": "A simulated Ironic.", "default_version": version, "versions": []any{version},
		})
	}
	answer := map[string]any{
		"id": "v1", "links": version["links"], "version": version,
		"media_types": map[string]string{"base": "application/json", "type": "application/vnd.openstack.ironic.v1+json"},
	}
	for _, name := range []string{"chassis", "nodes", "ports", "drivers"} {
		answer[name] = []map[string]string{{"href": c.base + "/v1/" + name + "/", "rel": "self"}, {"href": c.base + "/" + name + "/", "rel": "bookmark"}}
	}
	return c.send(http.StatusOK, answer)
}

func (c *call) drivers(rest []string) error {
	if len(rest) > 1 || c.Method != http.MethodGet {
		return noRoute(http.StatusNotFound)
	}
	var all []any
	for _, name := range []string{"fake-hardware", "redfish"} {
		driver := map[string]any{"name": name, "hosts": []string{world.Conductor(c.site)}, "type": "dynamic"}
		for key, path := range map[string]string{"links": "", "properties": "/properties"} {
			driver[key] = []map[string]string{
				{"href": fmt.Sprintf("%s/v1/drivers/%s%s", c.base, name, path), "rel": "self"}, {"href": fmt.Sprintf("%s/drivers/%s%s", c.base, name, path), "rel": "bookmark"},
			}
		}
		if len(rest) == 1 && rest[0] == name {
			return c.send(http.StatusOK, driver)
		}
		all = append(all, driver)
	}
	if len(rest) == 1 {
		return refuse(http.StatusNotFound, "Could not find the following driver(s) or hardware type(s): %s.", rest[0])
	}
	return c.send(http.StatusOK, map[string]any{"drivers": all})
}

func (c *call) conductors(rest []string) error {
	if c.minor < 49 || c.Method != http.MethodGet || len(rest) > 1 {
		return noRoute(http.StatusNotFound)
	}
	name := world.Conductor(c.site)
	conductor := map[string]any{
		"hostname": name, "conductor_group": "", "alive": true,
		"links": []map[string]string{{"href": c.base + "/v1/conductors/" + name, "rel": "self"}, {"href": c.base + "/conductors/" + name, "rel": "bookmark"}},
	}
	switch {
	case len(rest) == 0:
		return c.send(http.StatusOK, map[string]any{"conductors": []any{conductor}})
	case rest[0] != name:
		return refuse(http.StatusNotFound, "Conductor %s could not be found.", rest[0])
	}
	conductor["drivers"] = []string{"fake-hardware", "redfish"}
	return c.send(http.StatusOK, conductor)
}
