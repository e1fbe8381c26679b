package ironic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// refusal is an error in Ironic's words: JSON inside a JSON string.
type refusal struct {
	status int
	server bool // its own fault
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// unacceptable is what a version does not have yet.
var unacceptable = refuse(http.StatusNotAcceptable, "Request not acceptable.")

// route is an error before Ironic itself is reached, in another shape.
type route struct {
	status int
	text   string
}

func (e *route) Error() string { return e.text }

func routing(status int, format string, args ...any) error {
	return &route{status, fmt.Sprintf(format, args...)}
}

func noRoute(status int) error { return &route{status: status} }

// unauthorized is the answer of the gate before Ironic.
type unauthorized struct{ challenge, body string }

func (e *unauthorized) Error() string { return "unauthorized" }

// errUnchanged ends a change that turned out to be none: success, and no effect.
var errUnchanged = errors.New("nothing changed")

func (c *call) fail(err error) {
	var inner any
	status := http.StatusInternalServerError
	var own *refusal
	var gate *unauthorized
	var way *route
	switch {
	case errors.As(err, &gate):
		c.Header().Set("WWW-Authenticate", gate.challenge)
		c.write(http.StatusUnauthorized, []byte(gate.body))
		return
	case errors.As(err, &way):
		c.Header().Del("X-OpenStack-Ironic-API-Version")
		inner, status = struct {
			Code        int    `json:"code"`
			Title       string `json:"title"`
			Description string `json:"description"`
		}{way.status, http.StatusText(way.status), way.text}, way.status
	default:
		f := struct {
			Code  string  `json:"faultcode"`
			Text  string  `json:"faultstring"`
			Debug *string `json:"debuginfo"`
		}{"Server", err.Error(), nil}
		if errors.As(err, &own) {
			status = own.status
			if !own.server {
				f.Code = "Client"
			}
		}
		inner = f
	}
	text, _ := json.Marshal(inner) // of strings and numbers: it never fails
	body, _ := json.Marshal(map[string]string{"error_message": string(text)})
	c.write(status, body)
}

func (c *call) notAllowed(allow string) error {
	c.Header().Set("Allow", allow)
	return noRoute(http.StatusMethodNotAllowed)
}

func (c *call) write(status int, body []byte) {
	c.Header().Set("Content-Type", "application/json")
	c.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.WriteHeader(status)
	_, _ = c.Write(body) // who went away does not hear it
}

func (c *call) send(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c.write(status, body)
	return nil
}

// accepted answers without a body.
func (c *call) accepted(status int, location string) error {
	if location != "" {
		c.Header().Set("Location", c.base+location)
	}
	c.WriteHeader(status)
	return nil
}

// read decodes the request's JSON.
func (c *call) read(into any) error {
	body, err := io.ReadAll(c.Request.Body)
	if err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "the request is too large")
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &refusal{status: http.StatusInternalServerError, server: true, text: "Expecting value: " + err.Error()}
	}
	return nil
}

// arguments reads a body that is an object of the known keys.
func (c *call) arguments(known ...string) (map[string]any, error) {
	var args map[string]any
	if err := c.read(&args); err != nil {
		return nil, err
	}
	if args == nil {
		args = map[string]any{}
	}
	var odd []string
	for key := range args {
		if !slices.Contains(known, key) {
			odd = append(odd, key)
		}
	}
	if len(odd) > 0 {
		slices.Sort(odd)
		return nil, refuse(http.StatusBadRequest, "Unexpected arguments: %s", strings.Join(odd, ", "))
	}
	return args, nil
}

func noNode(ident string) error {
	return refuse(http.StatusNotFound, "Node %s could not be found.", ident)
}

// look reads a node.
func (c *call) look(ident string) (n *world.Node, err error) {
	c.world.Read(func(s *world.State) { n = s.FindNode(c.site, ident) })
	if n == nil {
		return nil, noNode(ident)
	}
	return n, nil
}

// change changes a node, which is a copy that is Put if edit gives no error.
func (c *call) change(ident, op, detail string, edit func(s *world.State, n *world.Node) error) (changed *world.Node, err error) {
	n, err := c.look(ident)
	if err != nil {
		return nil, err
	}
	err = c.world.Do(world.Effect{Face: world.FaceIronic, Site: c.site, Op: op, Subject: n.Subject(), Detail: detail}, func(s *world.State) error {
		changed = s.Nodes.Edit(n.Key())
		if changed == nil {
			return noNode(ident)
		}
		if err := edit(s, changed); err != nil {
			return err
		}
		s.Nodes.Put(changed.Key(), changed)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return changed, err
}

// locked refuses what needs the lock of a node that a conductor holds.
func locked(n *world.Node) error {
	if n.Reservation == "" {
		return nil
	}
	return refuse(http.StatusConflict, "Node %s is locked by host %s, please retry after the current operation is completed.", n.UUID, n.Reservation)
}

// Header is the answer's, Write writes the answer: the request has both too.
func (c *call) Header() http.Header { return c.ResponseWriter.Header() }

func (c *call) Write(b []byte) (int, error) { return c.ResponseWriter.Write(b) }
