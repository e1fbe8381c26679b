package nova

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// maxLimit is the most servers of a page.
const maxLimit = 1000

// servers are the paths below /servers.
func (c *call) servers(rest []string) error {
	switch {
	case len(rest) == 0 && c.r.Method == http.MethodGet:
		return c.list(false)
	case len(rest) == 0 && c.r.Method == http.MethodPost:
		return c.create()
	case len(rest) == 0:
		return c.notAllowed("GET, POST")
	case len(rest) == 1 && rest[0] == "detail" && c.r.Method == http.MethodGet:
		return c.list(true)
	case len(rest) == 1 && c.r.Method == http.MethodGet:
		v, n := c.server(rest[0])
		if v == nil {
			return noServer(rest[0])
		}
		return c.send(http.StatusOK, map[string]any{"server": c.document(v, n, true)})
	case len(rest) == 1 && c.r.Method == http.MethodDelete:
		return c.remove(rest[0], "delete server", http.StatusNoContent)
	case len(rest) == 1:
		return c.notAllowed("GET, PUT, DELETE")
	case len(rest) == 2 && rest[1] == "action" && c.r.Method == http.MethodPost:
		return c.action(rest[0])
	}
	return notFound("The resource could not be found.")
}

// server gives a server and the node that it is on.
func (c *call) server(uuid string) (v *world.Server, n *world.Node) {
	c.world.Read(func(s *world.State) {
		if v = s.Servers.Get(world.Key(c.site, uuid)); v != nil {
			n = s.Nodes.Get(world.Key(c.site, v.Node))
		}
	})
	return v, n
}

// pair is a server with its node, which may be nil.
type pair struct {
	v *world.Server
	n *world.Node
}

func (c *call) list(whole bool) error {
	query := c.r.URL.Query()
	limit := maxLimit
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 0 {
			return bad("Invalid input for query parameters limit. Value: %s. '%s' does not match '^[0-9]*$'", query.Get("limit"), query.Get("limit"))
		}
		limit = min(limit, n)
	}
	pattern, err := regexp.Compile(query.Get("name"))
	if err != nil {
		return bad("Invalid input for query parameters name. Value: %s. %s", query.Get("name"), err)
	}
	all := c.matching(query, pattern)
	slices.SortFunc(all, func(a, b pair) int { return cmp.Or(b.v.Created.Compare(a.v.Created), cmp.Compare(a.v.UUID, b.v.UUID)) })
	if marker := query.Get("marker"); marker != "" {
		at := slices.IndexFunc(all, func(p pair) bool { return p.v.UUID == marker })
		if at < 0 {
			return bad("marker [%s] not found", marker)
		}
		all = all[at+1:]
	}
	answer := map[string]any{}
	if len(all) > limit {
		all = all[:limit]
		if limit > 0 {
			query.Set("marker", all[limit-1].v.UUID)
			answer["servers_links"] = []map[string]string{{"rel": "next", "href": c.base + strings.TrimPrefix(c.r.URL.Path, c.Prefix) + "?" + query.Encode()}}
		}
	}
	documents := make([]any, 0, len(all))
	for _, p := range all {
		documents = append(documents, c.document(p.v, p.n, whole))
	}
	answer["servers"] = documents
	return c.send(http.StatusOK, answer)
}

// matching gives the servers that the query asks for.
func (c *call) matching(query url.Values, pattern *regexp.Regexp) (all []pair) {
	project := c.project
	if everybody := query.Get("all_tenants"); everybody == "1" || strings.EqualFold(everybody, "true") {
		project = cmp.Or(query.Get("project_id"), query.Get("tenant_id"))
	}
	if c.project == "" {
		project = cmp.Or(query.Get("project_id"), query.Get("tenant_id"))
	}
	tests := map[string]func(p pair, value string) bool{
		"name":   func(p pair, _ string) bool { return pattern.MatchString(p.v.Name) },
		"status": func(p pair, v string) bool { return strings.EqualFold(status(p.v, p.n), v) },
		"node":   func(p pair, v string) bool { return p.v.Node == v },
		"host":   func(_ pair, v string) bool { return v == c.host() },
		"uuid":   func(p pair, v string) bool { return p.v.UUID == v },
	}
	c.world.Read(func(s *world.State) {
		for _, v := range s.Servers.Of(c.site) {
			p := pair{v, s.Nodes.Get(world.Key(c.site, v.Node))}
			ok := project == "" || v.Project == project
			for name, test := range tests {
				ok = ok && (!query.Has(name) || test(p, query.Get(name)))
			}
			if ok {
				all = append(all, p)
			}
		}
	})
	return all
}

// status is the server's, as Nova sees it: one whose node is off is shut off.
func status(v *world.Server, n *world.Node) string {
	if v.Status == "ACTIVE" && n != nil && n.PowerState == world.PowerOff {
		return "SHUTOFF"
	}
	return v.Status
}

// states gives vm_state and power_state of a status.
func states(status string) (vm string, power int) {
	switch status {
	case "ACTIVE":
		return "active", 1
	case "SHUTOFF":
		return "stopped", 4
	case "ERROR":
		return "error", 0
	}
	return "building", 0
}

const stamp = "2006-01-02T15:04:05Z"

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (c *call) document(v *world.Server, n *world.Node, whole bool) map[string]any {
	doc := map[string]any{"id": v.UUID, "name": v.Name, "links": c.links("servers/" + v.UUID)}
	if !whole {
		return doc
	}
	shown := status(v, n)
	vm, power := states(shown)
	var host, image any = nil, ""
	if v.Node != "" {
		host = c.host()
	}
	if v.Image != "" {
		image = map[string]any{"id": v.Image, "links": c.links("images/" + v.Image)[1:]}
	}
	for key, value := range map[string]any{
		"status": shown, "tenant_id": v.Project, "user_id": v.User, "metadata": map[string]any{}, "hostId": v.Site + "-" + v.Project, "image": image,
		"created": v.Created.Format(stamp), "updated": v.Updated.Format(stamp), "addresses": map[string]any{}, "accessIPv4": "", "accessIPv6": "",
		"OS-DCF:diskConfig": "MANUAL", "OS-EXT-AZ:availability_zone": "nova", "config_drive": "True", "key_name": orNil(v.KeyName),
		"OS-SRV-USG:launched_at": v.Created.Format("2006-01-02T15:04:05.000000"), "OS-SRV-USG:terminated_at": nil,
		"OS-EXT-SRV-ATTR:host": host, "OS-EXT-SRV-ATTR:instance_name": "instance-" + v.UUID[:8], "OS-EXT-SRV-ATTR:hypervisor_hostname": orNil(v.Node),
		"OS-EXT-STS:task_state": orNil(v.Task), "OS-EXT-STS:vm_state": vm, "OS-EXT-STS:power_state": power,
		"os-extended-volumes:volumes_attached": []any{}, "security_groups": []any{map[string]string{"name": "default"}},
	} {
		doc[key] = value
	}
	doc["flavor"] = map[string]any{"id": v.Flavor, "links": c.links("flavors/" + v.Flavor)[1:]}
	if c.minor >= 47 {
		doc["flavor"] = map[string]any{"original_name": v.Flavor, "vcpus": 144, "ram": 983040, "disk": 3575, "ephemeral": 0, "swap": 0, "extra_specs": map[string]string{"resources:CUSTOM_GB200": "1"}}
	}
	if shown == "ACTIVE" {
		doc["progress"] = 0
	}
	if v.Fault != "" {
		doc["fault"] = map[string]any{"code": 500, "created": v.Updated.Format(stamp), "message": v.Fault}
	}
	return doc
}

// wanted is a new server as it is asked for.
type wanted struct {
	Server *struct {
		Name       string          `json:"name"`
		Flavor     string          `json:"flavorRef"`
		Image      string          `json:"imageRef"`
		Key        string          `json:"key_name"`
		Zone       string          `json:"availability_zone"`
		Hypervisor string          `json:"hypervisor_hostname"`
		Networks   json.RawMessage `json:"networks"`
	} `json:"server"`
}

func (c *call) create() error {
	var in wanted
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil {
		return bad("Malformed request body")
	}
	switch {
	case in.Server == nil:
		return bad("Invalid input for field/attribute server. 'server' is a required property")
	case in.Server.Name == "":
		return bad("Invalid input for field/attribute server. 'name' is a required property")
	case in.Server.Flavor == "":
		return bad("Invalid input for field/attribute server. 'flavorRef' is a required property")
	case in.Server.Flavor != flavor:
		return bad("Invalid flavorRef provided.")
	case c.minor < 74 && in.Server.Hypervisor != "":
		return bad("Invalid input for field/attribute server. Additional properties are not allowed ('hypervisor_hostname' was unexpected)")
	case c.minor >= 37 && len(in.Server.Networks) == 0:
		return bad("Invalid input for field/attribute server. 'networks' is a required property")
	}
	asked := in.Server.Hypervisor
	if zone := strings.Split(in.Server.Zone, ":"); len(zone) == 3 {
		asked = zone[2]
	}
	v := &world.Server{UUID: newUUID(), Site: c.site, Name: in.Server.Name, Project: c.project, User: c.project, Flavor: in.Server.Flavor, Image: in.Server.Image, KeyName: in.Server.Key}
	err := c.world.Do(world.Effect{Face: world.FaceNova, Site: c.site, Op: "create server", Subject: v.Name, Detail: v.UUID}, func(s *world.State) error {
		if asked != "" && s.Nodes.Get(world.Key(c.site, asked)) == nil {
			return bad("No valid host was found. No such host - host: %s node: %s ", c.host(), asked)
		}
		var host *world.Node
		for _, n := range s.Nodes.Of(c.site) {
			if (asked == "" || n.UUID == asked) && s.Bootable(n, asked != "") {
				host = n
				break
			}
		}
		s.Boot(v, host)
		return nil
	})
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", c.base+"/v2.1/servers/"+v.UUID)
	return c.send(http.StatusAccepted, map[string]any{"server": map[string]any{
		"id": v.UUID, "links": c.links("servers/" + v.UUID), "OS-DCF:diskConfig": "MANUAL", "adminPass": "simulated", "security_groups": []any{map[string]string{"name": "default"}},
	}})
}

// change does something to a server, told of as its machine's.
func (c *call) change(uuid, op string, do func(s *world.State, v *world.Server) error) error {
	v, n := c.server(uuid)
	if v == nil {
		return noServer(uuid)
	}
	subject := v.Name
	if n != nil {
		subject = n.Subject()
	}
	return c.world.Do(world.Effect{Face: world.FaceNova, Site: c.site, Op: op, Subject: subject, Detail: uuid}, func(s *world.State) error {
		now := s.Servers.Get(v.Key())
		if now == nil {
			return noServer(uuid)
		}
		return do(s, now)
	})
}

func (c *call) remove(uuid, op string, status int) error {
	if v, _ := c.server(uuid); v != nil && v.Task == world.TaskDeleting { // asked for already
		c.w.WriteHeader(status)
		return nil
	}
	err := c.change(uuid, op, func(s *world.State, v *world.Server) error {
		s.DeleteServer(v.Key())
		return nil
	})
	if err == nil {
		c.w.WriteHeader(status)
	}
	return err
}

// action is one of the things that a server can be told to do.
func (c *call) action(uuid string) error {
	var in map[string]json.RawMessage
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil || len(in) != 1 {
		return bad("Malformed request body")
	}
	for name, args := range in {
		switch name {
		case "forceDelete":
			return c.remove(uuid, "force delete server", http.StatusAccepted)
		case "os-start", "os-stop", "reboot":
			return c.switchPower(uuid, name)
		case "os-resetState":
			return c.reset(uuid, args)
		}
		return bad("There is no such action: %s", name)
	}
	return nil
}

func (c *call) switchPower(uuid, name string) error {
	err := c.change(uuid, name+" server", func(s *world.State, v *world.Server) error {
		n := s.Nodes.Edit(world.Key(c.site, v.Node))
		if n == nil || n.Reservation != "" || v.Task != "" {
			return &problem{http.StatusConflict, "conflictingRequest", fmt.Sprintf("Cannot '%s' instance %s while it is in task_state %s", name, uuid, cmp.Or(v.Task, "locked"))}
		}
		s.RequestPower(n, name != "os-stop", name == "reboot")
		s.Nodes.Put(n.Key(), n)
		return nil
	})
	if err == nil {
		c.w.WriteHeader(http.StatusAccepted)
	}
	return err
}

func (c *call) reset(uuid string, args json.RawMessage) error {
	var in struct {
		State string `json:"state"`
	}
	if json.Unmarshal(args, &in) != nil || in.State != "active" && in.State != "error" {
		return bad("Invalid input for field/attribute state. Value: %s. It is not one of ['active', 'error']", in.State)
	}
	err := c.change(uuid, "reset server", func(s *world.State, v *world.Server) error {
		v = s.Servers.Edit(v.Key())
		v.Status, v.Task, v.Updated = strings.ToUpper(in.State), "", s.Now
		s.Servers.Put(v.Key(), v)
		return nil
	})
	if err == nil {
		c.w.WriteHeader(http.StatusAccepted)
	}
	return err
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
