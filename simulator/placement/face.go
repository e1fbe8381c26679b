package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// Face is the name under which effects tell of this API.
const Face = "placement"

// Tokens tells a good token of Keystone from another.
type Tokens interface{ Check(token string) bool }

// Options are how a face is reached and by whom. Without Tokens it is one
// without Keystone, which takes the word admin for a token.
type Options struct {
	Prefix string // of its paths, such as /sim1/placement
	Tokens Tokens
}

const (
	newest  = 39
	maxBody = 4 << 20
)

// New gives the face of a site's Placement.
func New(w *world.World, site string, o Options) http.Handler {
	return &face{Options: o, world: w, site: site}
}

type face struct {
	Options
	world *world.World
	site  string
}

// problem is an error in Placement's words.
type problem struct {
	status int
	detail string
	code   string
}

func (p *problem) Error() string { return p.detail }

func problemOf(status int, code, format string, args ...any) error {
	if code == "" {
		code = "placement.undefined_code"
	}
	return &problem{status, fmt.Sprintf(format, args...), code}
}

func bad(format string, args ...any) error {
	return problemOf(http.StatusBadRequest, "", format, args...)
}

func notFound(format string, args ...any) error {
	return problemOf(http.StatusNotFound, "", format, args...)
}

func conflict(code, format string, args ...any) error {
	return problemOf(http.StatusConflict, code, format, args...)
}

func noProvider(uuid string) error { return notFound("No resource provider with uuid %s found", uuid) }

// errUnchanged ends a change that turned out to be none: success, and no effect.
var errUnchanged = errors.New("nothing changed")

// call is one request on its way.
type call struct {
	*face
	w     http.ResponseWriter
	r     *http.Request
	minor int
}

func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{face: f, w: w, r: r}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	parts := strings.FieldsFunc(strings.TrimPrefix(r.URL.Path, f.Prefix), func(c rune) bool { return c == '/' })
	if len(parts) > 0 {
		if status := f.admit(r.Header.Get("X-Auth-Token")); status == http.StatusUnauthorized {
			c.unauthorized()
			return
		} else if status != 0 {
			c.fail(problemOf(status, "", "Policy does not allow placement:%s to be performed.", parts[0]))
			return
		}
	}
	if err := c.negotiate(); err != nil {
		c.fail(err)
		return
	}
	w.Header().Set("OpenStack-API-Version", "placement 1."+strconv.Itoa(c.minor))
	w.Header().Set("Vary", "openstack-api-version")
	if err := c.route(parts); err != nil {
		c.fail(err)
	}
}

// admit gives the status with which a token is refused, 0 if it is good.
func (f *face) admit(token string) int {
	switch {
	case token == "":
		return http.StatusUnauthorized
	case f.Tokens != nil && !f.Tokens.Check(token):
		return http.StatusUnauthorized
	case f.Tokens == nil && token != "admin":
		return http.StatusForbidden
	}
	return 0
}

func (c *call) unauthorized() {
	body := `{"message": "This server could not verify that you are authorized to access the document you requested. Either you supplied the wrong credentials (e.g., bad password), ` +
		`or your browser does not understand how to supply the credentials required.<br /><br />\n\n\n", "code": "401 Unauthorized", "title": "Unauthorized"}`
	if c.Tokens != nil {
		c.w.Header().Set("WWW-Authenticate", `Keystone uri="http://`+c.r.Host+`/keystone/v3"`)
		body = `{"error": {"message": "The request you have made requires authentication.", "code": 401, "title": "Unauthorized"}}`
	}
	c.write(http.StatusUnauthorized, []byte(body))
}

// negotiate takes the version that the request names.
func (c *call) negotiate() error {
	version := ""
	for _, one := range strings.Split(c.r.Header.Get("OpenStack-API-Version"), ",") {
		if kind, asked, ok := strings.Cut(strings.TrimSpace(one), " "); ok && kind == "placement" {
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
	minor, found := strings.CutPrefix(version, "1.")
	n, err := strconv.Atoi(minor)
	if !found || err != nil || n < 0 || n > newest {
		return problemOf(http.StatusNotAcceptable, "", "Unacceptable version header: %s", version)
	}
	c.minor = n
	return nil
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)

func (c *call) route(parts []string) error {
	if len(parts) == 0 {
		return c.send(http.StatusOK, map[string]any{"versions": []any{map[string]any{
			"id": "v1.0", "min_version": "1.0", "max_version": "1." + strconv.Itoa(newest), "status": "CURRENT", "links": []any{map[string]string{"rel": "self", "href": ""}},
		}}})
	}
	switch parts[0] {
	case "resource_providers":
		return c.providers(parts[1:])
	case "allocations":
		return c.allocations(parts[1:])
	case "traits":
		return c.names("trait", parts[1:])
	case "resource_classes":
		return c.names("class", parts[1:])
	case "usages":
		if len(parts) == 1 && c.minor >= 9 {
			return c.projectUsages()
		}
	case "allocation_candidates":
		if len(parts) == 1 && c.minor >= 10 {
			return c.candidates()
		}
	}
	return notFound("")
}

// explanations are what comes before the detail of an error.
var explanations = map[int]string{
	http.StatusBadRequest: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
	http.StatusForbidden:  "Access was denied to this resource.", http.StatusNotFound: "The resource could not be found.",
	http.StatusConflict:         "There was a conflict when trying to complete your request.",
	http.StatusMethodNotAllowed: "The method is not allowed for this resource.",
	http.StatusNotAcceptable:    "The resource could not be generated that was acceptable to your browser (content of type application/json.",
}

func (c *call) fail(err error) {
	p := &problem{http.StatusInternalServerError, err.Error(), "placement.undefined_code"}
	_ = errors.As(err, &p)
	one := map[string]any{"status": p.status, "title": http.StatusText(p.status), "detail": explanations[p.status] + "\n\n " + p.detail + "  ", "request_id": "req-simulated"}
	if c.minor >= 23 {
		one["code"] = p.code
	}
	if p.status == http.StatusNotAcceptable {
		one["max_version"], one["min_version"] = "1."+strconv.Itoa(newest), "1.0"
	}
	_ = c.send(p.status, map[string]any{"errors": []any{one}})
}

func (c *call) notAllowed(allow string) error {
	c.w.Header().Set("Allow", allow)
	return problemOf(http.StatusMethodNotAllowed, "", "The method specified is not allowed for this resource.")
}

func (c *call) write(status int, body []byte) {
	if c.minor >= 15 && status == http.StatusOK {
		c.w.Header().Set("Cache-Control", "no-cache")
		c.w.Header().Set("Last-Modified", c.world.Now().Format(time.RFC1123))
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // who went away does not hear it
}

func (c *call) send(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c.write(status, body)
	return nil
}

func (c *call) empty(status int) error {
	c.w.WriteHeader(status)
	return nil
}

func (c *call) read(into any) error {
	decoder := json.NewDecoder(c.r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return bad("JSON does not validate: %s", err)
	}
	return nil
}

// provider reads one.
func (c *call) provider(uuid string) (p *world.Provider, err error) {
	c.world.Read(func(s *world.State) { p = s.Providers.Get(world.Key(c.site, uuid)) })
	if p == nil {
		return nil, noProvider(uuid)
	}
	return p, nil
}

// subject is the name under which effects tell of a provider.
func subject(s *world.State, p *world.Provider) string {
	if n := s.Nodes.Get(p.Key()); n != nil {
		return n.Subject()
	}
	return p.Name
}

// change changes a provider, which is a copy that is Put if edit gives no error.
func (c *call) change(uuid, op string, edit func(s *world.State, p *world.Provider) error) (changed *world.Provider, err error) {
	p, err := c.provider(uuid)
	if err != nil {
		return nil, err
	}
	name := ""
	c.world.Read(func(s *world.State) { name = subject(s, p) })
	err = c.world.Do(world.Effect{Face: Face, Site: c.site, Op: op, Subject: name}, func(s *world.State) error {
		changed = s.Providers.Edit(p.Key())
		if changed == nil {
			return noProvider(uuid)
		}
		if err := edit(s, changed); err != nil {
			return err
		}
		s.Providers.Put(changed.Key(), changed)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return changed, err
}
