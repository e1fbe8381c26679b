package redfish

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// view is one request to one BMC.
type view struct {
	f       *Face
	m       *world.Machine // as it is now, not to be changed
	now     time.Time
	bmc     *memory
	r       *http.Request
	account account // who asks, where the request needs somebody

	guard, guarded string // the ETag that a change needs, of which resource
}

// resource is something at a path.
type resource struct {
	render func(v *view) object // nil: it is not there now
	change func(v *view, body object) *answer
	add    func(v *view, body object) *answer // POST to a collection
	remove func(v *view) *answer
	board  bool // of the baseboard: it answers while the host is on only

	pending bool // a monitor of what is not done: 202
}

// action is something that is done by a POST.
type action struct {
	owner string // path of the resource that has it
	name  string
	run   func(v *view, body object) *answer
	raw   func(v *view) *answer // instead of run: the body is no JSON
}

// model is what the BMCs of a class have.
type model struct {
	resources map[string]*resource
	actions   map[string]*action
}

const bodyLimit = 1 << 20

// root is where the service is.
const root = "/redfish/v1"

// open are the paths that need no login.
var open = map[string]bool{"/redfish": true, root: true, root + "/odata": true, root + "/$metadata": true, root + "/openapi.yaml": true}

// handle gives the answer to the request.
func (v *view) handle() *answer {
	path := strings.TrimSuffix(v.r.URL.Path, "/")
	if v.now.Before(v.m.BMC.NotReady) {
		return refuse("ServiceTemporarilyUnavailable", "10").with("Retry-After", "10")
	}
	switch v.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete:
	default:
		return refuse("OperationNotAllowed").with("Allow", "GET, HEAD, POST, PATCH, DELETE")
	}
	if version := v.r.Header.Get("OData-Version"); version != "" && version != "4.0" {
		return refuse("HeaderInvalid", "OData-Version")
	}
	login := path == sessionsPath && v.r.Method == http.MethodPost || path == sessionsPath+"/Members" && v.r.Method == http.MethodPost
	if !login && !(open[path] && v.reads()) {
		if refused := v.authenticate(); refused != nil {
			return refused
		}
	}
	if a := v.document(path); a != nil {
		return a
	}
	if act := v.model().actions[path]; act != nil {
		return v.act(act)
	}
	collection, ofMembers := strings.CutSuffix(path, "/Members")
	if ofMembers && v.r.Method == http.MethodPost {
		path = collection
	}
	res := v.find(path)
	if res == nil {
		return refuse("ResourceMissingAtURI", path)
	}
	if res.board && !v.m.On {
		return refuse("ResourceInStandby")
	}
	body := res.render(v)
	if body == nil {
		return refuse("ResourceMissingAtURI", path)
	}
	a := v.method(path, res, body)
	a.allow = res.allow()
	return a
}

func (v *view) model() *model { return v.f.models[v.m.Class] }

func (r *resource) allow() string {
	allow := []string{"GET", "HEAD"}
	if r.change != nil {
		allow = append(allow, "PATCH")
	}
	if r.add != nil {
		allow = append(allow, "POST")
	}
	if r.remove != nil {
		allow = append(allow, "DELETE")
	}
	return strings.Join(allow, ", ")
}

// method does to a resource what the request asks for.
func (v *view) method(path string, res *resource, body object) *answer {
	switch v.r.Method {
	case http.MethodGet, http.MethodHead:
		if res.pending {
			return tell(http.StatusAccepted, body).with("Location", v.location(path)).with("Retry-After", "2")
		}
		return v.read(body)
	case http.MethodPatch:
		if res.change == nil {
			return refuse("OperationNotAllowed")
		}
		if !v.account.configures() && !v.ownPassword(path) {
			return refuse("InsufficientPrivilege")
		}
		sent, refused := v.sent()
		if refused != nil {
			return refused
		}
		v.bmc.writing.Lock() // of two with the same ETag one comes too late
		defer v.bmc.writing.Unlock()
		return v.patch(path, sent)
	case http.MethodPost:
		if res.add == nil {
			return refuse("OperationNotAllowed")
		}
		if path != sessionsPath && !v.account.configures() {
			return refuse("InsufficientPrivilege")
		}
		sent, refused := v.sent()
		if refused != nil {
			return refused
		}
		return res.add(v, sent)
	case http.MethodDelete:
		if res.remove == nil {
			return refuse("OperationNotAllowed")
		}
		if !v.account.configures() && !v.ownSession(path) {
			return refuse("InsufficientPrivilege")
		}
		return res.remove(v)
	}
	return refuse("OperationNotAllowed")
}

// patch changes a resource as it is now.
func (v *view) patch(path string, sent object) *answer {
	v.refresh()
	res := v.find(path)
	if res == nil {
		return refuse("ResourceMissingAtURI", path)
	}
	if refused := v.precondition(path, res.render(v), true); refused != nil {
		return refused
	}
	return res.change(v, sent)
}

// read answers a GET, with the query parameters that are known.
func (v *view) read(body object) *answer {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		return refuse("QueryNotSupported", v.r.URL.RawQuery)
	}
	levels := 0
	for name, values := range query {
		switch {
		case name == "$expand":
			if levels = expandLevels(values[0]); levels == 0 {
				return refuse("QueryParameterValueTypeError", values[0], name)
			}
		case strings.HasPrefix(name, "$"):
			return refuse("QueryNotSupported", name)
		}
	}
	if levels > 0 {
		v.expand(body, levels)
	}
	return tell(http.StatusOK, body)
}

// precondition holds If-Match against the resource as it is. A change of a
// strict BMC's resource must give one.
func (v *view) precondition(path string, body object, required bool) *answer {
	if v.lenient() {
		return nil
	}
	want := v.r.Header.Get("If-Match")
	switch {
	case want == "" && required:
		return refuse("PreconditionRequired")
	case want != "" && want != "*" && want != etagOf(path, body):
		return refuse("PreconditionFailed")
	}
	if want != "*" {
		v.guard, v.guarded = want, path
	}
	return nil
}

// holds checks the precondition again, on the machine that is about to be
// changed.
func (v *view) holds(m *world.Machine, now time.Time) bool {
	if v.guard == "" {
		return true
	}
	at := *v
	at.m, at.now = m, now
	res := at.find(v.guarded)
	return res != nil && etagOf(v.guarded, res.render(&at)) == v.guard
}

// sent gives the JSON object of the request.
func (v *view) sent() (object, *answer) {
	if kind := v.r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			return nil, refuse("UnrecognizedRequestBody")
		}
	}
	raw, err := io.ReadAll(io.LimitReader(v.r.Body, bodyLimit+1))
	if err != nil || len(raw) > bodyLimit {
		return nil, refuse("MalformedJSON")
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		return nil, refuse("MalformedJSON")
	}
	return o, nil
}

// act runs an action.
func (v *view) act(a *action) *answer {
	if v.r.Method != http.MethodPost {
		refused := refuse("OperationNotAllowed")
		refused.allow = "POST"
		return refused
	}
	if !v.account.configures() {
		return refuse("InsufficientPrivilege")
	}
	owner := v.find(a.owner)
	if owner == nil || owner.board && !v.m.On {
		return refuse("ResourceInStandby")
	}
	if refused := v.precondition(a.owner, owner.render(v), false); refused != nil {
		return refused
	}
	if a.raw != nil {
		return a.raw(v)
	}
	sent, refused := v.sent()
	if refused != nil {
		return refused
	}
	return a.run(v, sent)
}

// failed is the answer where the world did not take a change.
func failed(err error) *answer {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.answer
	}
	return refuse("InternalError")
}

// refusal carries an answer out of a Do.
type refusal struct{ answer *answer }

func (r *refusal) Error() string { return "the BMC refuses" }

// location is a path as Location headers give it.
func (v *view) location(path string) string {
	if !v.f.options.Absolute {
		return path
	}
	scheme := "http"
	if v.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + v.r.Host + path
}
