package keystone

import (
	"crypto/md5" //nolint:gosec // it makes ids, not secrets
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// Options are how a face is reached and by whom.
type Options struct {
	Prefix         string // of its paths, such as /keystone
	User, Password string
}

// Keystone is the face; it also tells the other ones which tokens are good.
type Keystone struct {
	Options
	world *world.World
	key   [sha256.Size]byte

	mu      sync.Mutex
	revoked map[string]time.Time // by audit id, until the token would have ended
}

var _ http.Handler = (*Keystone)(nil)

// New gives the face of the one Keystone.
func New(w *world.World, o Options) *Keystone {
	return &Keystone{Options: o, world: w, key: sha256.Sum256([]byte("keystone tokens\x00" + o.Password)), revoked: map[string]time.Time{}}
}

const maxBody = 1 << 20

// problem is an error in Keystone's words.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string { return p.message }

var errUnauthorized = &problem{http.StatusUnauthorized, "The request you have made requires authentication."}

func malformed(what string) error {
	return &problem{http.StatusBadRequest, "Expecting to find " + what +
		". The server could not comply with the request since it is either malformed or otherwise incorrect. The client is assumed to be in error."}
}

func missing(what, id string) error {
	return &problem{http.StatusNotFound, fmt.Sprintf("Could not find %s: %s.", what, id)}
}

// call is one request on its way.
type call struct {
	*Keystone
	w    http.ResponseWriter
	r    *http.Request
	root string // such as http://host
	base string // such as http://host/keystone/v3
}

func (k *Keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	c := &call{Keystone: k, w: w, r: r, root: scheme + r.Host, base: scheme + r.Host + k.Prefix + "/v3"}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	w.Header().Set("Vary", "X-Auth-Token")
	if err := c.route(strings.FieldsFunc(strings.TrimPrefix(r.URL.Path, k.Prefix), func(c rune) bool { return c == '/' })); err != nil {
		c.fail(err)
	}
}

func (c *call) route(parts []string) error {
	path, method := strings.Join(parts, "/"), c.r.Method
	switch {
	case path == "" && method == http.MethodGet:
		c.w.Header().Set("Location", c.base+"/")
		return c.send(http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{c.version()}}})
	case path == "v3" && method == http.MethodGet:
		return c.send(http.StatusOK, map[string]any{"version": c.version()})
	case path == "v3/auth/tokens" && method == http.MethodPost:
		return c.issue()
	}
	t, ok := c.good(c.r.Header.Get("X-Auth-Token"))
	switch {
	case path == "v3/auth/tokens" && (method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete):
		if !ok {
			return errUnauthorized
		}
		return c.subject()
	case path == "v3/auth/catalog" && method == http.MethodGet:
		if !ok {
			return errUnauthorized
		}
		return c.send(http.StatusOK, map[string]any{"catalog": c.catalog()})
	case path == "v3/projects" && method == http.MethodGet, path == "v3/auth/projects" && method == http.MethodGet:
		if !ok {
			return errUnauthorized
		}
		return c.projects()
	case len(parts) >= 4 && parts[0] == "v3" && parts[1] == "users" && parts[3] == "application_credentials":
		if !ok {
			return errUnauthorized
		}
		return c.credentials(t, parts[2], parts[4:])
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(c.w, "<!doctype html>\n<html lang=en>\n<title>404 Not Found</title>\n<h1>Not Found</h1>\n") // who went away does not hear it
	return nil
}

func (c *call) version() map[string]any {
	return map[string]any{
		"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
		"links":       []map[string]string{{"rel": "self", "href": c.base + "/"}},
		"media-types": []map[string]string{{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}},
	}
}

func (c *call) send(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // who went away does not hear it
	return nil
}

func (c *call) fail(err error) {
	p := &problem{http.StatusInternalServerError, err.Error()}
	_ = errors.As(err, &p)
	if p.status == http.StatusUnauthorized {
		c.w.Header().Set("WWW-Authenticate", `Keystone uri="`+c.base+`"`)
	}
	_ = c.send(p.status, map[string]any{"error": map[string]any{"code": p.status, "message": p.message, "title": http.StatusText(p.status)}})
}

// id makes the id of a thing from its name.
func id(parts ...string) string {
	sum := md5.Sum([]byte(strings.Join(parts, "\x00"))) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// UserID is the id of the one user.
func (k *Keystone) UserID() string { return id("user", k.User) }

var defaultDomain = map[string]string{"id": "default", "name": "Default"}

func roles() []map[string]string {
	return []map[string]string{{"id": id("role", "admin"), "name": "admin"}, {"id": id("role", "member"), "name": "member"}, {"id": id("role", "reader"), "name": "reader"}}
}

// catalog lists the services, with a region for each site.
func (c *call) catalog() []any {
	var regions, managed, placed []string
	c.world.Read(func(s *world.State) {
		for name, site := range s.Sites.All() {
			regions = append(regions, name)
			if !site.InventoryOnly {
				managed = append(managed, name)
			}
			if site.Placement {
				placed = append(placed, name)
			}
		}
	})
	at := func(suffix string) func(string) string {
		return func(region string) string { return c.root + "/" + region + suffix }
	}
	return []any{
		service("identity", "keystone", regions, func(string) string { return c.base }),
		service("baremetal", "ironic", managed, at("/ironic")),
		service("placement", "placement", placed, at("/placement")),
		service("compute", "nova", placed, at("/nova/v2.1")),
	}
}

func service(kind, name string, regions []string, address func(region string) string) map[string]any {
	endpoints := []any{}
	for _, region := range regions {
		for _, face := range []string{"public", "internal", "admin"} {
			endpoints = append(endpoints, map[string]string{
				"id": id("endpoint", kind, region, face), "interface": face, "region": region, "region_id": region, "url": address(region),
			})
		}
	}
	return map[string]any{"id": id("service", kind), "type": kind, "name": name, "endpoints": endpoints}
}

func (c *call) projects() error {
	all := []any{}
	c.world.Read(func(s *world.State) {
		for _, p := range s.Projects() {
			all = append(all, map[string]any{"id": p.ID, "name": p.Name, "domain_id": "default", "enabled": true, "is_domain": false, "description": "", "parent_id": "default"})
		}
	})
	return c.send(http.StatusOK, map[string]any{"projects": all, "links": map[string]any{"self": c.base + "/projects", "next": nil, "previous": nil}})
}
