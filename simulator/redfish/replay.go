package redfish

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/simulator/capture"
	"github.com/musterhq/muster/simulator/world"
)

// ReplayOptions are how a captured BMC is served.
type ReplayOptions struct {
	User, Password string           // "": nobody has to log in
	Delay          time.Duration    // of a change of power, default 2 s
	Clock          func() time.Time // default time.Now
}

// Replay serves a captured BMC: what it answered, under the paths that it
// answered at. Its resets are carried out, on the power alone and as long as the
// handler lives; nothing else can be changed.
func Replay(tree capture.Tree, o ReplayOptions) http.Handler {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Delay == 0 {
		o.Delay = world.PowerDelay
	}
	r := &replay{tree: tree, options: o, resets: map[string]string{}, power: map[string]switching{}}
	for path, a := range tree {
		body, _ := a.Body.(object)
		actions, _ := body["Actions"].(object)
		for _, name := range []string{"#ComputerSystem.Reset", "#Chassis.Reset"} {
			action, _ := actions[name].(object)
			if target, ok := action["target"].(string); ok {
				r.resets[pathOf(target)] = path
			}
		}
	}
	return r
}

// replay is one captured BMC.
type replay struct {
	tree    capture.Tree
	options ReplayOptions
	resets  map[string]string // target of an action → path of the resource that has it

	mu    sync.Mutex
	power map[string]switching // by path, of what was reset
}

// switching is the power of a resource: what it goes to, and when.
type switching struct {
	moves []bool // each takes Delay
	began time.Time
	was   bool
}

var hostForm = regexp.MustCompile(`^https?://[^/]+`)

func pathOf(uri string) string { return capture.Path(hostForm.ReplaceAllString(uri, "")) }

func (p *replay) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path := capture.Path(r.URL.Path)
	if r.URL.RawQuery != "" && strings.Contains(r.URL.RawQuery, "$skip") {
		path += "?" + r.URL.RawQuery
	}
	a := p.handle(path, r)
	h := rw.Header()
	for name, values := range a.header {
		h[name] = values
	}
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-store")
	var body []byte
	if o, ok := a.body.(object); ok || a.body != nil {
		if body, _ = json.Marshal(a.body); ok && o == nil {
			body = nil
		}
		if h.Get("Content-Type") == "" {
			h.Set("Content-Type", "application/json")
		}
	}
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	rw.WriteHeader(a.status)
	if r.Method != http.MethodHead && a.status != http.StatusNotModified {
		_, _ = rw.Write(body) // a client that has gone wants no answer
	}
}

func (p *replay) handle(path string, r *http.Request) *answer {
	if p.options.User != "" && !open[path] {
		user, password, _ := r.BasicAuth()
		if user != p.options.User || subtle.ConstantTimeCompare([]byte(password), []byte(p.options.Password)) != 1 {
			return refuse("NoValidSession")
		}
	}
	if owner, isReset := p.resets[path]; isReset {
		if r.Method != http.MethodPost {
			return refuse("OperationNotAllowed").with("Allow", "POST")
		}
		return p.reset(owner, r)
	}
	was, known := p.tree[path]
	switch {
	case !known:
		return refuse("ResourceMissingAtURI", path)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return refuse("OperationNotAllowed").with("Allow", "GET, HEAD")
	}
	a := &answer{status: was.Status, body: was.Body}
	for name, value := range was.Headers {
		a.with(name, value)
	}
	if a.status != http.StatusOK {
		return a
	}
	if body, isObject := was.Body.(object); isObject {
		if p.now(path, &body) {
			a.body = body
			raw, _ := json.Marshal(body) // it was read from JSON
			h := fnv.New64a()
			_, _ = h.Write(raw)
			a.with("ETag", fmt.Sprintf(`"%016x"`, h.Sum64()))
		}
	}
	if etag := a.header.Get("ETag"); etag != "" && r.Header.Get("If-None-Match") == etag {
		a.status = http.StatusNotModified
	}
	return a
}

// now puts the power that resets have made into a resource, and tells whether
// there was any.
func (p *replay) now(path string, body *object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.power[path]
	if !ok {
		return false
	}
	at := s.was
	gone := int(p.options.Clock().Sub(s.began) / p.options.Delay)
	for i, to := range s.moves {
		if i >= gone {
			break
		}
		at = to
	}
	word := powerWord(at)
	if gone < len(s.moves) && s.moves[gone] != at {
		word = map[bool]string{true: "PoweringOn", false: "PoweringOff"}[s.moves[gone]]
	}
	*body = maps.Clone(*body)
	(*body)["PowerState"] = word
	return true
}

// reset carries out a reset of a captured resource.
func (p *replay) reset(owner string, r *http.Request) *answer {
	var sent object
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, bodyLimit)).Decode(&sent); err != nil || sent == nil {
		return refuse("MalformedJSON")
	}
	kind, ok := sent["ResetType"].(string)
	if !ok {
		return refuse("ActionParameterMissing", "Reset", "ResetType")
	}
	if allowed := p.allowed(owner); !slices.Contains(allowed, any(kind)) {
		return refuse("ActionParameterValueNotInList", kind, "ResetType", "Reset")
	}
	body, _ := p.tree[owner].Body.(object)
	on := body["PowerState"] == "On"
	current := body
	if p.now(owner, &current) {
		on = current["PowerState"] == "On"
	}
	s := switching{was: on, began: p.options.Clock()}
	switch kind {
	case "On", "ForceOn":
		s.moves = []bool{true}
	case "ForceOff", "GracefulShutdown":
		s.moves = []bool{false}
	case "ForceRestart", "GracefulRestart", "PowerCycle":
		s.moves = []bool{false, true}
	default:
		return &answer{status: http.StatusNoContent}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.power[owner] = s
	return &answer{status: http.StatusNoContent}
}

// allowed gives the kinds of reset that a captured resource declares.
func (p *replay) allowed(owner string) []any {
	body, _ := p.tree[owner].Body.(object)
	actions, _ := body["Actions"].(object)
	for name, value := range actions {
		action, _ := value.(object)
		if !strings.HasSuffix(name, ".Reset") {
			continue
		}
		if list, ok := action["ResetType@Redfish.AllowableValues"].([]any); ok {
			return list
		}
		at, _ := action["@Redfish.ActionInfo"].(string)
		infoBody, _ := p.tree[pathOf(at)].Body.(object)
		parameters, _ := infoBody["Parameters"].([]any)
		for _, value := range parameters {
			if parameter, _ := value.(object); parameter["Name"] == "ResetType" {
				list, _ := parameter["AllowableValues"].([]any)
				return list
			}
		}
	}
	return nil
}
