package ironic

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// Tokens tells a good token of Keystone from another.
type Tokens interface{ Check(token string) bool }

// The ways to know a user.
const (
	AuthNone      = ""
	AuthHTTPBasic = "http_basic"
	AuthKeystone  = "keystone"
)

// Options are how a face is reached and by whom.
type Options struct {
	Prefix         string // of its paths, such as /sim1/ironic
	Auth           string // one of the Auth…
	User, Password string // of AuthHTTPBasic
	Tokens         Tokens // of AuthKeystone
	MaxLimit       int    // nodes of a page at most, default 1000
	Newest         int    // minor of the newest version served, default 82
}

const (
	newest   = 82
	maxLimit = 1000
	maxBody  = 1 << 20
)

// New gives the face of a site's Ironic.
func New(w *world.World, site string, o Options) http.Handler {
	if o.MaxLimit == 0 {
		o.MaxLimit = maxLimit
	}
	if o.Newest == 0 {
		o.Newest = newest
	}
	return &face{world: w, site: site, Options: o}
}

type face struct {
	Options
	world *world.World
	site  string
}

// call is one request on its way.
type call struct {
	*face
	http.ResponseWriter
	*http.Request
	minor int
	base  string // of links, such as http://host/sim1/ironic
}

func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, f.Prefix)
	c := &call{face: f, ResponseWriter: w, Request: r, base: origin(r) + f.Prefix}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	parts := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
	w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1."+strconv.Itoa(f.Newest))
	if err := f.admit(c, parts); err != nil {
		c.fail(err)
		return
	}
	if err := c.negotiate(); err != nil {
		c.fail(err)
		return
	}
	if len(parts) > 0 && parts[0] != "v1" {
		c.fail(noRoute(http.StatusNotFound))
		return
	}
	if len(parts) > 0 {
		w.Header().Set("X-OpenStack-Ironic-API-Version", "1."+strconv.Itoa(c.minor))
	}
	if err := c.route(parts); err != nil {
		c.fail(err)
	}
}

// origin is the scheme and host under which a request came.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// admit checks who asks; the discovery documents are for everybody.
func (f *face) admit(c *call, parts []string) error {
	if len(parts) == 0 || len(parts) == 1 && parts[0] == "v1" {
		return nil
	}
	switch f.Auth {
	case AuthHTTPBasic:
		user, password, given := c.BasicAuth()
		good := subtle.ConstantTimeCompare([]byte(user+"\x00"+password), []byte(f.User+"\x00"+f.Password)) == 1
		if !good {
			text := "Incorrect username or password"
			if !given {
				text = "Authorization required"
			}
			return &unauthorized{`Basic realm="Baremetal API"`, fmt.Sprintf(`{"error": {"message": %q, "code": 401}}`, text)}
		}
	case AuthKeystone:
		if f.Tokens == nil || !f.Tokens.Check(c.Request.Header.Get("X-Auth-Token")) {
			return &unauthorized{`Keystone uri="` + origin(c.Request) + `/keystone/v3"`,
				`{"error": {"message": "The request you have made requires authentication.", "code": 401, "title": "Unauthorized"}}`}
		}
	}
	return nil
}

// negotiate takes the version that the request names.
func (c *call) negotiate() error {
	asked := c.Request.Header.Get("X-OpenStack-Ironic-API-Version")
	served := fmt.Sprintf("[1.1, 1.%d]", c.Newest)
	switch asked {
	case "":
		c.minor = 1
		return nil
	case "latest":
		c.minor = c.Newest
		return nil
	}
	major, minor, _ := strings.Cut(asked, ".")
	n, err := strconv.Atoi(minor)
	first, wrong := strconv.Atoi(major)
	switch {
	case err != nil || wrong != nil:
		return routing(http.StatusNotAcceptable, "Invalid value for X-OpenStack-Ironic-API-Version header")
	case first != 1:
		return routing(http.StatusNotAcceptable,
			"Mutually exclusive versions requested. Version %s requested but not supported by this service. The supported version range is: %s.", asked, served)
	case n < 1 || n > c.Newest:
		return routing(http.StatusNotAcceptable,
			"Version %s was requested but the minor version is not supported by this service. The supported version range is: %s.", asked, served)
	}
	c.minor = n
	return nil
}

// route finds what a path and method stand for.
func (c *call) route(parts []string) error {
	if len(parts) < 2 {
		return c.discover(len(parts) == 0)
	}
	rest := parts[2:]
	switch parts[1] {
	case "nodes":
		return c.nodes(rest)
	case "ports":
		return c.ports(rest)
	case "drivers":
		return c.drivers(rest)
	case "conductors":
		return c.conductors(rest)
	case "chassis", "portgroups", "allocations", "deploy_templates":
		if len(rest) == 0 && c.Method == http.MethodGet {
			return c.send(http.StatusOK, map[string]any{parts[1]: []any{}})
		}
		if len(rest) > 0 {
			return refuse(http.StatusNotFound, "%s %s could not be found.", strings.ToUpper(parts[1][:1])+strings.TrimSuffix(parts[1][1:], "s"), rest[0])
		}
		return refuse(http.StatusBadRequest, "The simulated Ironic makes no %s.", parts[1])
	}
	return noRoute(http.StatusNotFound)
}

// nodes are the paths below /v1/nodes.
func (c *call) nodes(rest []string) error {
	switch {
	case len(rest) == 0 && c.Method == http.MethodGet:
		return c.list(false)
	case len(rest) == 0 && c.Method == http.MethodPost:
		return c.create()
	case len(rest) == 0 && c.Method == http.MethodDelete:
		return refuse(http.StatusBadRequest, "Missing mandatory parameter: node_ident")
	case len(rest) == 0:
		return c.notAllowed("GET, POST")
	case len(rest) == 1 && rest[0] == "detail" && c.Method == http.MethodGet:
		return c.list(true)
	case len(rest) == 1:
		return c.node(rest[0])
	}
	sub := strings.Join(rest[1:], "/")
	if handle, known := nodeParts[sub]; known {
		return handle(c, rest[0])
	}
	switch {
	case rest[1] == "traits" && len(rest) == 3:
		return c.trait(rest[0], rest[2])
	case len(rest) == 2 && c.Method == http.MethodGet:
		return refuse(http.StatusBadRequest, "Field %s is not a valid field.", rest[1])
	}
	return noRoute(http.StatusNotFound)
}

// nodeParts are the paths below a node.
var nodeParts = map[string]func(*call, string) error{
	"states":                           (*call).states,
	"states/provision":                 (*call).provision,
	"states/power":                     (*call).power,
	"maintenance":                      (*call).maintenance,
	"traits":                           (*call).traits,
	"validate":                         (*call).validate,
	"ports":                            (*call).portsOf,
	"management/boot_device":           (*call).bootDevice,
	"management/boot_device/supported": (*call).bootDevices,
	"inventory":                        (*call).inventory,
	"history":                          empty("history"),
	"portgroups":                       empty("portgroups"),
	"vifs":                             empty("vifs"),
	"bios":                             empty("bios"),
}
