package netbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// Options say how the NetBox is.
type Options struct {
	Version string  // 3.7, 4.0, 4.2, 4.4, 4.5, 4.6 or 4.7 (the default)
	Tokens  []Token // that it knows
	Prefix  string  // of the addresses that it gives, such as /netbox; paths come without it
}

// release is one release of NetBox.
type release struct {
	generation     int // 47 for 4.7
	name           string
	django, python string
}

var releases = map[string]release{
	"3.7": {37, "3.7.8", "4.2.11", "3.11.7"}, "4.0": {40, "4.0.11", "5.0.9", "3.12.1"}, "4.2": {42, "4.2.9", "5.1.8", "3.12.1"},
	"4.4": {44, "4.4.10", "5.2.9", "3.12.1"}, "4.5": {45, "4.5.10", "5.2.13", "3.12.1"}, "4.6": {46, "4.6.8", "6.0.5", "3.12.1"},
	"4.7": {47, "4.7.3", "6.1.2", "3.12.1"},
}

// face is the NetBox.
type face struct {
	release
	world *world.World
	o     Options
	kinds map[string]*kind // by their paths
}

// New gives the NetBox of all sites. Its paths begin with /api/.
func New(w *world.World, o Options) (http.Handler, error) {
	if o.Version == "" {
		o.Version = "4.7"
	}
	r, ok := releases[o.Version]
	if !ok {
		return nil, fmt.Errorf("simulate NetBox: there is no version %q: choose 3.7, 4.0, 4.2, 4.4, 4.5, 4.6 or 4.7", o.Version)
	}
	kinds, err := kindsOf(r.generation)
	if err != nil {
		return nil, fmt.Errorf("simulate NetBox: %w", err)
	}
	return &face{release: r, world: w, o: o, kinds: kinds}, nil
}

// exchange is one request and its answer in the making.
type exchange struct {
	*face
	w     http.ResponseWriter
	r     *http.Request
	token *Token
	query url.Values
}

func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{face: f, w: w, r: r, query: r.URL.Query()}
	path, api := strings.CutPrefix(r.URL.Path, "/api/")
	if !api {
		if f.generation < 42 {
			http.Redirect(w, r, f.o.Prefix+"/login/?next="+url.QueryEscape(r.URL.Path), http.StatusFound)
			return
		}
		x.html()
		return
	}
	slashed := path == "" || strings.HasSuffix(path, "/")
	handle := x.route(strings.TrimSuffix(path, "/"))
	if handle == nil || !slashed && f.generation >= 45 && !x.reads() {
		x.html()
		return
	}
	if !slashed {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Location", f.o.Prefix+r.URL.Path+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	w.Header().Set("API-Version", f.o.Version)
	w.Header().Set("Vary", "HX-Request, Accept-Language, Cookie, origin")
	if !x.acceptable() {
		return
	}
	token, why := f.caller(r)
	if token == nil {
		x.detail(http.StatusForbidden, why)
		return
	}
	x.token = token
	handle()
}

func (x *exchange) reads() bool { return x.r.Method == http.MethodGet || x.r.Method == http.MethodHead }

// route gives what answers a path below /api/, nil where there is none.
func (x *exchange) route(path string) func() {
	switch path {
	case "":
		return x.root
	case "status":
		return x.status
	case "authentication-check":
		if x.generation < 45 {
			return nil
		}
		return x.whoami
	}
	parts := strings.Split(path, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return nil
	}
	k := x.kinds[parts[0]+"/"+parts[1]]
	switch {
	case k == nil:
		return nil
	case len(parts) == 2:
		return func() { x.collection(k) }
	}
	return func() { x.single(k, parts[2]) }
}

func (x *exchange) collection(k *kind) {
	x.w.Header().Set("Allow", "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS")
	if !x.token.may(x.r.Method, k) {
		x.detail(http.StatusForbidden, noPermission)
		return
	}
	if k.fixed && !x.reads() {
		x.notAllowed()
		return
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead:
		x.list(k)
	case http.MethodPost:
		x.create(k)
	case http.MethodPatch:
		x.patchAll(k)
	case http.MethodDelete:
		x.deleteAll(k)
	default:
		x.notAllowed()
	}
}

func (x *exchange) single(k *kind, text string) {
	x.w.Header().Set("Allow", "GET, PUT, PATCH, DELETE, HEAD, OPTIONS")
	if !x.token.may(x.r.Method, k) {
		x.detail(http.StatusForbidden, noPermission)
		return
	}
	if k.fixed && !x.reads() {
		x.notAllowed()
		return
	}
	id, err := strconv.Atoi(text)
	if err != nil || id < 0 {
		x.detail(http.StatusNotFound, "Not found.")
		return
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead:
		x.get(k, id)
	case http.MethodPatch, http.MethodPut:
		x.patch(k, id, x.r.Method == http.MethodPut)
	case http.MethodDelete:
		x.delete(k, id)
	default:
		x.notAllowed()
	}
}

func (x *exchange) notAllowed() {
	x.detail(http.StatusMethodNotAllowed, fmt.Sprintf("Method %q not allowed.", x.r.Method))
}

var acceptVersion = regexp.MustCompile(`version=([0-9.]+)`)

// acceptable refuses what the caller wants and NetBox does not have.
func (x *exchange) acceptable() bool {
	accept := x.r.Header.Get("Accept")
	if match := acceptVersion.FindStringSubmatch(accept); match != nil && match[1] != x.o.Version {
		x.detail(http.StatusNotAcceptable, `Invalid version in "Accept" header.`)
		return false
	}
	for _, fine := range []string{"application/json", "*/*", "text/html"} {
		if accept == "" || strings.Contains(accept, fine) {
			return true
		}
	}
	x.detail(http.StatusNotAcceptable, "Could not satisfy the request Accept header.")
	return false
}

// html is how Django says that there is no such page, whatever was asked for.
func (x *exchange) html() {
	x.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	x.w.WriteHeader(http.StatusNotFound)
	_, _ = fmt.Fprintf(x.w, "<!DOCTYPE html>\n<html\n  lang=\"en\"\n  data-netbox-version=%q\n  >\n<head>\n<title>Page Not Found | NetBox</title>\n</head>\n<body></body>\n</html>\n", x.name)
}

func (x *exchange) detail(status int, text string) {
	x.send(status, append(wire.Quote([]byte(`{"detail":`), text), '}'))
}

func (x *exchange) send(status int, body []byte) {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the caller may have left
}

// base is the address that NetBox believes to have.
func (x *exchange) base() string {
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + x.r.Host + x.o.Prefix
}

// root lists the parts of the API.
func (x *exchange) root() {
	b := []byte{'{'}
	for i, name := range []string{"dcim", "extras", "ipam", "status", "tenancy"} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(wire.Quote(b, name), ':')
		b = wire.Quote(b, x.base()+"/api/"+name+"/")
	}
	x.send(http.StatusOK, append(b, '}'))
}

func (x *exchange) status() {
	if !x.reads() {
		x.notAllowed()
		return
	}
	apps := `{"django_filters":"25.2","django_prometheus":"2.4.1","django_rq":"3.2.2","django_tables2":"2.8.0","drf_spectacular":"0.29.0",` +
		`"drf_spectacular_sidecar":"2026.1.1","mptt":"0.17.0","rest_framework":"3.16.1","social_django":"5.7.0","taggit":"6.1.0","timezone_field":"7.2.1"}`
	b := fmt.Appendf(nil, `{"django-version":%q,`, x.django)
	if x.generation < 44 {
		b = append(append(b, `"installed-apps":`...), apps...)
	} else {
		b = append(append(b, `"hostname":"netbox","installed_apps":`...), apps...)
	}
	b = fmt.Appendf(b, `,"netbox-version":%q,`, x.name)
	if x.generation >= 44 {
		b = fmt.Appendf(b, `"netbox-full-version":%q,`, x.name)
	}
	x.send(http.StatusOK, fmt.Appendf(b, `"plugins":{},"python-version":%q,"rq-workers-running":1}`, x.python))
}

func (x *exchange) whoami() {
	url := wire.Quote(nil, x.base()+"/api/users/users/1/")
	web := wire.Quote(nil, x.base()+"/users/users/1/")
	x.send(http.StatusOK, fmt.Appendf(nil, `{"id":1,"url":%s,"display_url":%s,"display":"muster","username":"muster","first_name":"","last_name":"",`+
		`"email":"","is_active":true,"date_joined":"2026-01-01T00:00:00Z","last_login":null,"groups":[],"permissions":[]}`, url, web))
}

const bodyLimit = 32 << 20

// body reads the request's body; false after an answer that refuses it.
func (x *exchange) body() (value any, ok bool) {
	kind := x.r.Header.Get("Content-Type")
	if media, _, _ := strings.Cut(kind, ";"); strings.TrimSpace(media) != "application/json" {
		x.detail(http.StatusUnsupportedMediaType, fmt.Sprintf("Unsupported media type %q in request.", kind))
		return nil, false
	}
	text, err := io.ReadAll(io.LimitReader(x.r.Body, bodyLimit))
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err != nil {
		at := 0
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = int(syntax.Offset)
		}
		x.detail(http.StatusBadRequest, fmt.Sprintf("JSON parse error - Expecting value: line 1 column %d (char %d)", at, max(at-1, 0)))
		return nil, false
	}
	return value, true
}

// general is the member for what is wrong with a request as a whole.
func (f *face) general() string {
	if f.generation < 47 {
		return "non_field_errors"
	}
	return "__all__"
}
