package nova

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// Tokens tells a good token of Keystone from another, and its project.
type Tokens interface {
	Check(token string) bool
	Project(token string) string
}

// Options are how a face is reached and by whom. Without Tokens everybody is in.
type Options struct {
	Prefix string // of its paths, such as /sim1/nova
	Tokens Tokens
}

const (
	newest  = 93
	maxBody = 1 << 20
)

// New gives the face of a site's Nova.
func New(w *world.World, site string, o Options) http.Handler {
	return &face{Options: o, world: w, site: site}
}

type face struct {
	Options
	world *world.World
	site  string
}

// problem is an error in Nova's words.
type problem struct {
	status  int
	kind    string
	message string
}

func (p *problem) Error() string { return p.message }

func bad(format string, args ...any) error {
	return &problem{http.StatusBadRequest, "badRequest", fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &problem{http.StatusNotFound, "itemNotFound", fmt.Sprintf(format, args...)}
}

func noServer(uuid string) error { return notFound("Instance %s could not be found.", uuid) }

// call is one request on its way.
type call struct {
	*face
	w       http.ResponseWriter
	r       *http.Request
	minor   int
	base    string // of links, such as http://host/sim1/nova
	project string // of the token, "" all
}

func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	c := &call{face: f, w: w, r: r, base: scheme + r.Host + f.Prefix, minor: 1}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	parts := strings.FieldsFunc(strings.TrimPrefix(r.URL.Path, f.Prefix), func(c rune) bool { return c == '/' })
	if len(parts) > 1 && f.Tokens != nil {
		token := r.Header.Get("X-Auth-Token")
		if !f.Tokens.Check(token) {
			w.Header().Set("WWW-Authenticate", `Keystone uri="`+scheme+r.Host+`/keystone/v3"`)
			_ = c.send(http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}})
			return
		}
		c.project = f.Tokens.Project(token)
	}
	if err := c.negotiate(); err != nil {
		c.fail(err)
		return
	}
	w.Header().Set("OpenStack-API-Version", "compute 2."+strconv.Itoa(c.minor))
	w.Header().Set("X-OpenStack-Nova-API-Version", "2."+strconv.Itoa(c.minor))
	w.Header().Set("Vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version")
	if err := c.route(parts); err != nil {
		c.fail(err)
	}
}

// negotiate takes the version that the request names.
func (c *call) negotiate() error {
	version := c.r.Header.Get("X-OpenStack-Nova-API-Version")
	for _, one := range strings.Split(c.r.Header.Get("OpenStack-API-Version"), ",") {
		if kind, asked, ok := strings.Cut(strings.TrimSpace(one), " "); ok && kind == "compute" {
			version = strings.TrimSpace(asked)
		}
	}
	switch version {
	case "":
		return nil
	case "latest":
		c.minor = newest
		return nil
	}
	minor, found := strings.CutPrefix(version, "2.")
	n, err := strconv.Atoi(minor)
	if !found || err != nil || n < 1 || n > newest {
		return &problem{http.StatusNotAcceptable, "computeFault", fmt.Sprintf("Version %s is not supported by the API. Minimum is 2.1 and maximum is 2.%d.", version, newest)}
	}
	c.minor = n
	return nil
}

func (c *call) route(parts []string) error {
	version := map[string]any{
		"id": "v2.1", "status": "CURRENT", "version": "2." + strconv.Itoa(newest), "min_version": "2.1", "updated": "2013-07-23T11:33:21Z",
		"links": []map[string]string{{"rel": "self", "href": c.base + "/v2.1/"}},
	}
	switch {
	case len(parts) == 0:
		return c.send(http.StatusOK, map[string]any{"versions": []any{version}})
	case parts[0] != "v2.1":
		return notFound("The resource could not be found.")
	case len(parts) == 1:
		return c.send(http.StatusOK, map[string]any{"version": version})
	}
	rest := parts[2:]
	switch parts[1] {
	case "servers":
		return c.servers(rest)
	case "flavors":
		return c.flavors(rest)
	case "os-hypervisors":
		return c.hypervisors(rest)
	}
	return notFound("The resource could not be found.")
}

func (c *call) send(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // who went away does not hear it
	return nil
}

func (c *call) fail(err error) {
	p := &problem{http.StatusInternalServerError, "computeFault", err.Error()}
	_ = errors.As(err, &p)
	_ = c.send(p.status, map[string]any{p.kind: map[string]any{"code": p.status, "message": p.message}})
}

func (c *call) notAllowed(allow string) error {
	c.w.Header().Set("Allow", allow)
	return &problem{http.StatusMethodNotAllowed, "badMethod", "The method specified is not allowed for this resource."}
}

func (c *call) links(path string) []map[string]string {
	return []map[string]string{{"rel": "self", "href": c.base + "/v2.1/" + path}, {"rel": "bookmark", "href": c.base + "/" + path}}
}

// flavor is the only one: a whole tray.
const flavor = "baremetal.gb200"

func (c *call) flavorDocument(whole bool) map[string]any {
	doc := map[string]any{"id": flavor, "name": flavor, "links": c.links("flavors/" + flavor)}
	if whole {
		doc["vcpus"], doc["ram"], doc["disk"], doc["swap"], doc["OS-FLV-EXT-DATA:ephemeral"] = 144, 983040, 3575, "", 0
		doc["os-flavor-access:is_public"], doc["OS-FLV-DISABLED:disabled"], doc["rxtx_factor"] = true, false, 1.0
		doc["extra_specs"] = map[string]string{"resources:CUSTOM_GB200": "1", "resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}
	}
	return doc
}

func (c *call) flavors(rest []string) error {
	switch {
	case c.r.Method != http.MethodGet:
		return c.notAllowed("GET")
	case len(rest) == 0:
		return c.send(http.StatusOK, map[string]any{"flavors": []any{c.flavorDocument(false)}})
	case rest[0] == "detail":
		return c.send(http.StatusOK, map[string]any{"flavors": []any{c.flavorDocument(true)}})
	case rest[0] == flavor:
		return c.send(http.StatusOK, map[string]any{"flavor": c.flavorDocument(true)})
	}
	return notFound("Flavor %s could not be found.", rest[0])
}

// hypervisors are the nodes that nova-compute has published.
func (c *call) hypervisors(rest []string) error {
	if c.r.Method != http.MethodGet {
		return c.notAllowed("GET")
	}
	whole := len(rest) > 0
	asked := c.r.URL.Query().Get("hypervisor_hostname_pattern")
	all := []any{}
	c.world.Read(func(s *world.State) {
		for _, p := range s.Providers.Of(c.site) {
			if s.Nodes.Get(p.Key()) == nil || asked != "" && !strings.Contains(p.Name, asked) || whole && rest[0] != "detail" && rest[0] != p.UUID {
				continue
			}
			one := map[string]any{"id": p.UUID, "hypervisor_hostname": p.Name, "state": "up", "status": "enabled"}
			if whole {
				one["hypervisor_type"], one["hypervisor_version"], one["host_ip"] = "ironic", 1, "127.0.0.1"
				one["service"] = map[string]any{"id": p.UUID, "host": c.host(), "disabled_reason": nil}
			}
			all = append(all, one)
		}
	})
	if whole && rest[0] != "detail" {
		if len(all) == 0 {
			return notFound("Compute host %s could not be found.", rest[0])
		}
		return c.send(http.StatusOK, map[string]any{"hypervisor": all[0]})
	}
	return c.send(http.StatusOK, map[string]any{"hypervisors": all})
}

func (c *call) host() string { return c.site + "-compute" }
